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

// Writes is the promise of a controller: the writes that it may request.
type Writes []Write

// Write is one thing that a controller may do: a verb on a kind (or on its subresource). Any
// stands for every kind. The other fields bound the object and the body ([Description.Fits]).
// Bounds that involve the key's object are checked only where that is known: the writer reads it
// for turns that act, and for those that update its status.
type Write struct {
	Verb        events.Verb
	Kind        kinds.Name
	Subresource string
	Any         bool
	// On is how the object relates to the key; empty: any object.
	On Stand
	// Name is how the object's name follows from the key's; empty: any name.
	Name Naming
	// NamedBy is the field of the key's object that holds the object's name; empty: any name.
	NamedBy string
	// Named are the names that the object may have; nil: any.
	Named []string
	// Child requires that a controller reference in the body names the key's object.
	Child bool
	// Fields are the paths that a body may hold apart from those that identify its object; nil:
	// any.
	Fields []string
	// Values are the values that a body may hold at some paths.
	Values []Value
	// Copies are the parts of a body that must equal parts of the key's object.
	Copies []Copy
	// Elements are lists of the object in which a body may change only some elements.
	Elements []Elements
	// Changes are the paths of the object that an update may change; nil: any. For a status of
	// the key's object they are paths outside the status; nil: none.
	Changes []string
	// Removes: the lists in a body only remove elements. Adds: a patch removes nothing.
	Removes, Adds bool
	// Where is a field that the key's object must have; empty: none.
	Where string
	// Absent is an owner whose absence the command must have as a condition; nil: none.
	Absent *Absent
	// Unused: the command must be conditional on no other object needing its object.
	Unused bool
	// Unshared: the command must be conditional on no other object having its address ranges.
	Unshared bool
	// How are the allowed patch types; nil: strategic merge.
	How []types.PatchType
	// Unchanged: the command must name the object's resourceVersion. An update always must.
	Unchanged bool
	// Propagation are the propagation policies that a delete may set; nil: none.
	Propagation []metav1.DeletionPropagation
	// AtOnce: a delete may set a grace period of zero.
	AtOnce bool
}

// Stand is how the object of a command relates to the key of its turn.
type Stand string

// The relations. The zero value bounds nothing.
const (
	// Itself: the key's object.
	Itself Stand = "the object of the key"
	// Namesake: an object with the key's namespace and name.
	Namesake Stand = "of the key's namespace and name"
	// Beside: an object in the key's namespace.
	Beside Stand = "in the key's namespace"
	// Within: an object in the namespace that the key names.
	Within Stand = "in the namespace that is the key"
)

// Naming is how a name follows from the key's name.
type Naming string

// The namings. The zero value bounds nothing. Only the first [stem] characters of the key's name
// count, because a long name is cut to make room for a suffix.
const (
	// After: the name begins with the key's name.
	After Naming = "named after the key"
	// Amid: the name contains the key's name after a dash.
	Amid Naming = "with the key's name in its own"
)

// stem is how many characters of a long key name its dependents' names keep at least.
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

// Value bounds a body at a path: one of some strings, or nothing.
type Value struct {
	Path string
	One  []string
}

// Copy requires that a part of a body, To, equals a part of the key's object, From; if From leads
// to several values, one of them. The two may differ at the paths of But, which begin at To, and
// a list may also have the elements of Plus.
type Copy struct {
	To, From string
	But      []string
	Plus     []string
	// Revision: To may also equal that part of the ControllerRevision of the key's object that a
	// pod's label names. A part that equals the key's object as it is needs no revision, because
	// that may have been created just now.
	Revision bool
	// Claims is the path in the key's object to the names of volumes that a pod replaces with
	// claims of its own. To are volumes then, and such a claim is named after its volume and the
	// pod. Empty: none.
	Claims string
	// Of are the objects that From is a part of; nil: the key's object.
	Of *Named
}

// Named are objects of a kind in the key's namespace that a field of the key's object names.
type Named struct {
	Kind kinds.Name
	By   string
}

// Elements is a list in a body that must equal the object's list, in order, except for elements
// whose field By is one of some strings. The update may add and remove those.
type Elements struct {
	Path, By string
	One      []string
}

// Absent is an owner whose absence a command has as a condition: of a kind, with the name that
// the key's object has in the field NamedBy and, if the condition names a uid, the uid that it
// has in the field UIDBy.
type Absent struct{ Kind, NamedBy, UIDBy string }

// EventPromises is the promise of the Events that a controller may record.
type EventPromises []EventPromise

// EventPromise is one kind of object that Events may be about.
type EventPromise struct {
	// Kind is the kind of the object; Any stands for every kind.
	Kind kinds.Kind
	Any  bool
	// On is how the object relates to the key; empty: any object.
	On Stand
	// Reasons are the allowed reasons; nil: any.
	Reasons []string
}

// Allows reports whether a command is within the promise, as far as that can be told without its
// body. Recording Events always is.
func (w Writes) Allows(c events.Command) bool {
	return c.Verb == events.VerbRecord || slices.ContainsFunc(w, func(p Write) bool { return p.allows(c) })
}

func (w Write) allows(c events.Command) bool {
	return w.Verb == c.Verb && (w.Any || w.Kind == c.Kind) && w.Subresource == c.Subresource
}

// String returns the promise as the documentation shows it.
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

// String returns the promise as the documentation shows it.
func (t EventPromise) String() string {
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
