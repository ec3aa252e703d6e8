package events

import (
	"encoding/json"
	"errors"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Verb is what a command does.
type Verb string

// The verbs of commands. VerbRecord makes no change: it only tells its notices.
// VerbAsk makes none either: what it reads comes back as the answer in its result.
const (
	VerbCreate Verb = "create"
	VerbUpdate Verb = "update"
	VerbPatch  Verb = "patch"
	VerbDelete Verb = "delete"
	VerbRecord Verb = "record"
	VerbAsk    Verb = "ask"
)

// Command is one request that a decision makes of the API server. Its fields
// are the whole request: the writer adds nothing but the identity.
type Command struct {
	Verb        Verb       `json:"verb"`
	Kind        kinds.Name `json:"kind,omitempty"`
	Version     string     `json:"version,omitempty"` // API version of the group, "v1"
	Namespace   string     `json:"namespace,omitempty"`
	Name        string     `json:"name,omitempty"`
	Subresource string     `json:"subresource,omitempty"`

	// Of is what an ask is about, where its resource is not known: an object of the
	// command's namespace, as owner references name it.
	Of *metav1.OwnerReference `json:"of,omitempty"`

	// If is the condition under which the writer may act.
	If *If `json:"if,omitempty"`

	// Body is the object (create, update) or the patch. A created object takes
	// its name and namespace from the command, so that many creates share a body.
	Body json.RawMessage `json:"body,omitempty"`
	// Shape is the position, from 1, of the body in Turn.Shapes when the body
	// is shared; 0 means Body.
	Shape int `json:"shape,omitempty"`
	// PatchType is the content type of a patch.
	PatchType types.PatchType `json:"patchType,omitempty"`
	// Propagation of a delete; empty means the kind's default.
	Propagation metav1.DeletionPropagation `json:"propagation,omitempty"`
	// GraceSeconds of a delete; nil means the object's own.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`

	// Note comes back in the result, whatever becomes of the command: what the
	// controller wants to know when it hears of that.
	Note json.RawMessage `json:"note,omitempty"`

	// Applied and Failed are positions, from 1, in Turn.Notices: what to tell
	// users when the command has been applied or has failed. 0 means nothing.
	Applied int `json:"applied,omitempty"`
	Failed  int `json:"failed,omitempty"`

	// OnApplied and OnFailed are the notices before a turn packs them.
	OnApplied *Notice `json:"-"`
	OnFailed  *Notice `json:"-"`
}

// If is the condition of a command. The zero value asks for nothing.
type If struct {
	// UID the object must have. Every delete carries it.
	UID types.UID `json:"uid,omitempty"`
	// ResourceVersion the object must have, where the judgement rested on
	// fields that change.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Absent are owners of the object that must not exist, checked live just
	// before the command. An owner that is there, with that UID, refuses it; one
	// without a UID is of whatever there is of that name.
	Absent []metav1.OwnerReference `json:"absent,omitempty"`
	// Leaving are owners that must not live, checked likewise: they are gone, or
	// they are being deleted and wait for their dependents to go first.
	Leaving []metav1.OwnerReference `json:"leaving,omitempty"`
	// SameOwners lets a delete go on after a ResourceVersion conflict when the
	// live object still has the UID and exactly these owner references.
	SameOwners []metav1.OwnerReference `json:"sameOwners,omitempty"`
	// Alive is an object that must exist with its UID and not be on its way
	// out, checked live: the owner that adopts.
	Alive *Alive `json:"alive,omitempty"`
	// Unused is true for a command that may be carried out only if nothing needs its
	// object, as an ask for its users ([SubUsers]) finds out just before the command.
	Unused bool `json:"unused,omitempty"`
	// Unshared is true for a command that may be carried out only if no other object of its
	// kind has an address of the ranges that the body gives ([RangesIn]), as a list of them
	// shows that is read just before the first such command of the turn.
	Unshared bool `json:"unshared,omitempty"`
}

// Alive names an object, with its identity, that a command relies on.
type Alive struct {
	Kind      kinds.Name `json:"kind"`
	Version   string     `json:"version"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
	UID       types.UID  `json:"uid"`
}

// Notice is a Kubernetes Event to be written on an object. In Message, "{name}"
// stands for the name of the command's object and "{error}" for the failure.
type Notice struct {
	About   corev1.ObjectReference `json:"about"`
	Type    string                 `json:"type"` // corev1.EventTypeNormal or EventTypeWarning
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
}

// Ref is the object that the command is about.
func (c Command) Ref() Ref { return Ref{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name} }

// Reports is true for commands that only tell what is seen: status and
// Events. They may go on while creates and deletions are under way.
func (c Command) Reports() bool { return c.Subresource == "status" || c.Verb == VerbRecord }

// Lane separates the two kinds of turns of one key.
type Lane string

const (
	// Act turns create, delete, change and scale. They never overlap.
	Act Lane = "act"
	// Tell turns only report; one may be under way beside an act turn.
	Tell Lane = "tell"
	// Park turns carry no commands. They record that a key or message is set
	// aside, and why; see design rule I17.
	Park Lane = "park"
)

// Lane is where the command travels.
func (c Command) Lane() Lane {
	if c.Reports() {
		return Tell
	}
	return Act
}

// Digest is equal for the same requests, in one order; what is told of them does
// not count. Commands whose bodies are shared must not have been packed yet.
func Digest(commands []Command) uint64 {
	var h xxhash.Digest
	h.Reset()
	for _, c := range commands {
		var when If
		if c.If != nil {
			when = *c.If
		}
		for _, part := range [...]string{
			string(c.Verb), string(c.Kind), c.Namespace, c.Name, c.Subresource, string(when.UID), when.ResourceVersion,
		} {
			_, _ = h.WriteString(part)
			_, _ = h.WriteString("\x00")
		}
		_, _ = h.Write(c.Body)
	}
	return h.Sum64()
}

// ErrSuperseded is why a command cannot be compared with the object that its turn is about:
// what is known is another version of that than the turn saw. It is no fault of the turn.
var ErrSuperseded = errors.New("the object has changed since")
