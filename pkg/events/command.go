package events

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/cespare/xxhash/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// Verb is what a command does.
type Verb string

// The verbs of commands. VerbRecord changes nothing: it only writes its notices as Events.
// VerbAsk changes nothing either: the writer returns what it reads as the answer in the result.
const (
	VerbCreate Verb = "create"
	VerbUpdate Verb = "update"
	VerbPatch  Verb = "patch"
	VerbDelete Verb = "delete"
	VerbRecord Verb = "record"
	VerbAsk    Verb = "ask"
)

// Command is one request that a decision makes to the API server. Its fields are the whole
// request: the writer adds only the identity.
type Command struct {
	Verb        Verb       `json:"verb"`
	Kind        kinds.Name `json:"kind,omitempty"`
	Version     string     `json:"version,omitempty"` // API version of the group, "v1"
	Namespace   string     `json:"namespace,omitempty"`
	Name        string     `json:"name,omitempty"`
	Subresource string     `json:"subresource,omitempty"`

	// Of is the object that an ask is about when its resource is not known: an object of the
	// command's namespace, in the form of an owner reference.
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

	// Note comes back in the result, whether or not the command succeeds. The controller uses it
	// to remember why it made the command.
	Note json.RawMessage `json:"note,omitempty"`

	// Applied and Failed are positions, from 1, in Turn.Notices: the Event to write when the
	// command has been applied or has failed. 0 means none.
	Applied int `json:"applied,omitempty"`
	Failed  int `json:"failed,omitempty"`

	// OnApplied and OnFailed are the same notices before [Turn.Pack] moves them to the table.
	OnApplied *Notice `json:"-"`
	OnFailed  *Notice `json:"-"`
}

// If is the condition of a command. The zero value requires nothing.
type If struct {
	// UID the object must have. Every delete carries it.
	UID types.UID `json:"uid,omitempty"`
	// ResourceVersion the object must have. Set when the decision rests on fields that change.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Absent are owners of the object that must not exist; the writer checks them live just
	// before the command. An owner that exists with that UID refuses the command; an entry
	// without a UID matches any object of that name.
	Absent []metav1.OwnerReference `json:"absent,omitempty"`
	// Leaving are owners that must not live; the writer checks them live, too. They must be
	// gone, or be deleted and waiting for their dependents (foreground deletion).
	Leaving []metav1.OwnerReference `json:"leaving,omitempty"`
	// SameOwners lets a delete proceed after a ResourceVersion conflict when the live object
	// still has the UID and exactly these owner references.
	SameOwners []metav1.OwnerReference `json:"sameOwners,omitempty"`
	// Alive is an object that must exist with its UID and without a deletionTimestamp, checked
	// live: for example the owner that adopts.
	Alive *Alive `json:"alive,omitempty"`
	// Unused is true when the writer may carry out the command only if nothing needs its object.
	// The writer checks that just before the command, as for an ask for users ([query.SubUsers]).
	Unused bool `json:"unused,omitempty"`
	// Unshared is true when the writer may carry out the command only if no other object of the
	// kind has an address in the ranges that the body assigns ([query.RangesIn]). The writer lists the
	// objects just before the first such command of the turn.
	Unshared bool `json:"unshared,omitempty"`
}

// Alive identifies an object that a command relies on.
type Alive struct {
	Kind      kinds.Name `json:"kind"`
	Version   string     `json:"version"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
	UID       types.UID  `json:"uid"`
}

// Notice is a Kubernetes Event to write about an object. In Message, "{name}" stands for the
// name of the command's object and "{error}" for the failure.
type Notice struct {
	About   corev1.ObjectReference `json:"about"`
	Type    string                 `json:"type"` // corev1.EventTypeNormal or EventTypeWarning
	Reason  string                 `json:"reason"`
	Message string                 `json:"message"`
}

// Ref is the command's object.
func (c Command) Ref() Ref { return Ref{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name} }

// Reports is true for commands that only report what was observed: status writes and Events.
// They may run while creates and deletes are in flight.
func (c Command) Reports() bool { return c.Subresource == "status" || c.Verb == VerbRecord }

// Lane is one of the sequences of turns that a key has. Its value is what messages and their
// subjects hold; [Lane.String] is its name.
type Lane string

const (
	// LaneWrite has the turns that create, delete, change and scale. They never overlap.
	LaneWrite Lane = "act"
	// LaneStatus has the turns that write status and Events only. One may be in flight beside a
	// turn of the write lane.
	LaneStatus Lane = "tell"
	// LanePark has turns without commands. They record that a key or message is parked, and why;
	// see design rule I17.
	LanePark Lane = "park"
)

// String is the name of the lane: write, status or park. Messages of every version so far hold
// "act" for write and "tell" for status.
func (l Lane) String() string {
	switch l {
	case LaneWrite:
		return "write"
	case LaneStatus:
		return "status"
	}
	return string(l)
}

// Lane is the lane of the command: status for status writes and Events, write for all others.
func (c Command) Lane() Lane {
	if c.Reports() {
		return LaneStatus
	}
	return LaneWrite
}

// Digest is equal for equal requests in the same order; notices do not count. Call it before
// [Turn.Pack] moves shared bodies out of the commands.
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

// ErrSuperseded says that a command cannot be compared with its turn's object, because the known
// version of the object is not the one that the turn saw. The turn is not at fault.
var ErrSuperseded = errors.New("the object has changed since")

// Certifies reports whether the command is a [query.SubCertificate] patch of a
// CertificateSigningRequest.
func (c Command) Certifies() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.CertificateSigningRequests.Name && c.Subresource == query.SubCertificate
}

// AsksExpiry reports whether a command asks for the expiry of a token: the only ask whose answer
// may reveal data of a Secret.
func (c Command) AsksExpiry() bool {
	return c.Verb == VerbAsk && c.Kind == kinds.Secrets.Name && c.Of == nil && c.Subresource == query.SubExpiry
}

// Signs reports whether the command is a [query.SubSignatures] patch.
func (c Command) Signs() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.ConfigMaps.Name && c.Subresource == query.SubSignatures
}

// FillsToken reports whether the command is a [query.SubToken] patch of a Secret.
func (c Command) FillsToken() bool {
	return c.Verb == VerbPatch && c.Kind == kinds.Secrets.Name && c.Subresource == query.SubToken
}

// Searches reports whether a command asks for something that no single request can answer, so that
// the writer has to search.
func (c Command) Searches() bool {
	return c.Verb == VerbAsk && slices.Contains([]string{query.SubContents, query.SubUsers, query.SubTypes, query.SubReadings, query.SubReview, query.SubExpiry, query.SubObjects}, c.Subresource)
}
