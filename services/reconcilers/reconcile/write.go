package reconcile

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Writes is the promise of a controller.
type Writes []Write

// Write is one thing that a controller may do: a verb on a kind (or on its
// subresource). Any stands for every kind. The rest bounds what is written, and where
// ([Description.Fits]). What is said of the key's object counts where that is known: the
// writer reads it for turns that act, and for those that update its status.
type Write struct {
	Verb        events.Verb
	Kind        kinds.Name
	Subresource string
	Any         bool
	// On is how the object stands to the key; empty bounds nothing.
	On Stand
	// Name is how its name follows from that of the key; empty bounds nothing.
	Name Naming
	// NamedBy is the field of the key's object that has its name; empty bounds nothing.
	NamedBy string
	// Named are the names that objects may have; nil: any.
	Named []string
	// Child bounds which controller a body names: the key's object.
	Child bool
	// Fields are the paths that a body may hold beside what names its object; nil: any.
	Fields []string
	// Values are what a body may hold at a path.
	Values []Value
	// Copies are the parts of a body that are parts of the key's object.
	Copies []Copy
	// Elements are the lists of the object of which a body changes only some elements.
	Elements []Elements
	// Changes are the paths in which the object may be changed by an update; nil: any.
	// Of a status of the key's object they are those outside of the status; nil: none.
	Changes []string
	// Removes: a list in the body only takes elements away. Adds: a patch takes nothing away.
	Removes, Adds bool
	// Where is a field that the key's object must have; empty: none.
	Where string
	// Absent is an owner that must be proven absent; nil: none.
	Absent *Absent
	// Unused: the command has the condition that nothing needs its object.
	Unused bool
	// Unshared: the command has the condition that no other object has its ranges.
	Unshared bool
	// How are the types that a patch may have; nil: strategic merge.
	How []types.PatchType
	// Unchanged: the command names the version that the object must have. An update always
	// does.
	Unchanged bool
	// Propagation is what a delete may say of dependents; nil: nothing.
	Propagation []metav1.DeletionPropagation
	// AtOnce: a delete gives no time to end.
	AtOnce bool
}

// Stand says how the object that a command is about stands to the key of its turn.
type Stand string

// The stands. The zero value bounds nothing.
const (
	// Itself is the key's object.
	Itself Stand = "the object of the key"
	// Namesake has the key's namespace and name.
	Namesake Stand = "of the key's namespace and name"
	// Beside is in the key's namespace.
	Beside Stand = "in the key's namespace"
	// Within is in the namespace that the key names.
	Within Stand = "in the namespace that is the key"
)

// Naming says how a name follows from that of the key.
type Naming string

// The namings. The zero value bounds nothing. Of a long name only the beginning counts: the
// rest makes room for what follows it.
const (
	// After begins with the name of the key.
	After Naming = "named after the key"
	// Amid has the name of the key in it, between dashes.
	Amid Naming = "with the key's name in its own"
)

// stem is how much of the name of a key the names of its dependents have at least.
const stem = 40

func (n Naming) holds(name, key string) bool {
	key = key[:min(len(key), stem)]
	switch n {
	case After:
		return strings.HasPrefix(name, key)
	case Amid:
		return strings.Contains(name, "-"+key)
	default:
		return true
	}
}

// Value is what a body may hold at a path: one of some texts, or nothing.
type Value struct {
	Path string
	One  []string
}

// Copy is a part of a body, To, that is a part of the key's object, From; where From leads
// to several, it is one of them. In the paths of But, which begin at To, they may differ,
// and a list may have the elements of Plus, too.
type Copy struct {
	To, From string
	But      []string
	Plus     []string
	// Revision: it may also be that part as it is in the ControllerRevision of the key's
	// object that a pod names in its label. One that is of the key's object as it is needs
	// no revision: that may have been created just now.
	Revision bool
	// Claims is where the key's object has the names of the volumes in whose place a pod
	// has claims of its own: To are volumes, and such a claim is named after its volume and
	// the pod. Empty: none.
	Claims string
	// Of, when set, is whose part From is, instead of the key's object.
	Of *Named
}

// Named are the objects of a kind in the key's namespace that the key's object names in a field.
type Named struct {
	Kind kinds.Name
	By   string
}

// Elements are a list in a body that has the elements which that list of the object has, in their
// order, but for those whose field By is one of some texts: such elements may come and go.
type Elements struct {
	Path, By string
	One      []string
}

// Absent is an owner whose absence a command has as a condition: of a kind, and of the name
// that the key's object has in a field; if the condition names a uid, of the one that it has
// in another field.
type Absent struct{ Kind, NamedBy, UIDBy string }

// Tells is what a controller may say in Events.
type Tells []Telling

// Telling is one kind of object that Events may be about.
type Telling struct {
	// Kind is what they are about; Any stands for every kind.
	Kind kinds.Kind
	Any  bool
	// On is how the object stands to the key; empty bounds nothing.
	On Stand
	// Reasons are those that Events may have; nil: any.
	Reasons []string
}

// Allows tells whether a command keeps the promise, as far as can be told without its
// body. Recording Events always does.
func (w Writes) Allows(c events.Command) bool {
	return c.Verb == events.VerbRecord || slices.ContainsFunc(w, func(p Write) bool { return p.allows(c) })
}

func (w Write) allows(c events.Command) bool {
	return w.Verb == c.Verb && (w.Any || w.Kind == c.Kind) && w.Subresource == c.Subresource
}

// String is the promise as the documents have it.
func (w Write) String() string {
	var b bytes.Buffer
	what := string(w.Kind)
	if w.Any {
		what = "any kind"
	}
	if w.Subresource != "" {
		what += "/" + w.Subresource
	}
	fmt.Fprintf(&b, "%s %s", w.Verb, what)
	add := func(so bool, format string, args ...any) {
		if so {
			fmt.Fprintf(&b, format, args...)
		}
	}
	add(len(w.Named) > 0, " named %s", strings.Join(w.Named, ", "))
	add(w.On != "", ", %s", w.On)
	add(w.Name != "", ", %s", w.Name)
	add(w.NamedBy != "", ", named in its %s", w.NamedBy)
	add(w.Child, ", with the key's object as its controller")
	add(w.Fields != nil, ", only %s", cmp.Or(strings.Join(w.Fields, ", "), "its name"))
	add(w.Removes, ", taking away only")
	add(w.Adds, ", taking nothing away")
	for _, v := range w.Values {
		add(true, ", %s only %s", v.Path, strings.Join(v.One, " or "))
	}
	for _, c := range w.Copies {
		add(true, ", its %s a copy of %s", c.To, c.From)
		if c.Of != nil {
			add(true, " in %s, named in its %s", c.Of.Kind, c.Of.By)
		}
		add(c.Revision, " or of a revision of it")
		add(c.Claims != "", " but for the pod's own claims, named in %s", c.Claims)
		add(len(c.But)+len(c.Plus) > 0, " but for %s", strings.Join(slices.Concat(c.But, c.Plus), ", "))
	}
	for _, l := range w.Elements {
		add(true, ", its %s that of the object but for elements whose %s is %s", l.Path, l.By, strings.Join(l.One, " or "))
	}
	keeps := (&promise{Write: w}).keeps()
	add(keeps, ", leaving its metadata as they are")
	add(keeps && w.Changes != nil, " but for %s", strings.Join(w.Changes, ", "))
	add(!keeps && w.Changes != nil, ", changing only %s", strings.Join(w.Changes, ", "))
	add(w.Where != "", ", where the key's object has %s", w.Where)
	add(w.Absent != nil, ", once it is proven absent: %s", w.Absent)
	add(w.Unused, ", once it is proven that nothing needs it")
	add(w.Unshared, ", once it is proven that no other has these addresses")
	add(w.Unchanged, ", unchanged since it was seen")
	add(w.AtOnce, ", at once")
	return b.String()
}

func (a *Absent) String() string {
	if a == nil {
		return ""
	}
	return "its " + a.Kind + ", named in " + a.NamedBy
}

// String is the promise as the documents have it.
func (t Telling) String() string {
	what := t.Kind.Kind
	if t.Any {
		what = "object of any kind"
	}
	text := "an Event about the " + what
	if t.On != "" {
		text += ", " + string(t.On)
	}
	if t.Reasons != nil {
		text += ": " + strings.Join(t.Reasons, ", ")
	}
	return text
}
