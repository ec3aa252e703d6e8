package reconcile

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Create is the create of an object under a name. Creates that give the same body
// share it, so body carries no name of its own.
func Create(kind kinds.Kind, namespace, name string, body json.RawMessage, with ...Option) events.Command {
	c := command(events.VerbCreate, kind, namespace, name)
	c.Body = body
	return options(c, with)
}

// Update replaces an object; it is conditional on the uid and resourceVersion
// that obj carries.
func Update(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := command(events.VerbUpdate, kind, obj.GetNamespace(), obj.GetName())
	c.Body = Body(obj)
	c.If = &events.If{UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion()}
	return options(c, with)
}

// UpdateStatus replaces an object's status, under the same conditions.
func UpdateStatus(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := Update(kind, obj, with...)
	c.Subresource = "status"
	return c
}

// UpdateApproval replaces the conditions of a request that say whether it is approved, under
// the same conditions.
func UpdateApproval(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := Update(kind, obj, with...)
	c.Subresource = events.SubApproval
	return c
}

// Patch changes an object that must have obj's uid.
func Patch(kind kinds.Kind, obj metav1.Object, how types.PatchType, patch json.RawMessage, with ...Option) events.Command {
	c := command(events.VerbPatch, kind, obj.GetNamespace(), obj.GetName())
	c.PatchType, c.Body = how, patch
	c.If = &events.If{UID: obj.GetUID()}
	return options(c, with)
}

// Delete ends an object; it always carries the uid.
func Delete(kind kinds.Kind, obj metav1.Object, with ...Option) events.Command {
	c := command(events.VerbDelete, kind, obj.GetNamespace(), obj.GetName())
	c.If = &events.If{UID: obj.GetUID()}
	return options(c, with)
}

// AskOf reads a subresource of an object that is named as owner references name it,
// whatever its kind. The answer is in the outcome ([Snapshot].Last), together with the
// note; so who asks must be a controller that remembers.
func AskOf(namespace string, of metav1.OwnerReference, subresource string, note any) events.Command {
	return events.Command{
		Verb: events.VerbAsk, Namespace: namespace, Name: of.Name, Of: &of, Subresource: subresource, Note: Body(note),
	}
}

// AskFor reads an object of a kind, or whether there is none of that name. The answer is
// in the outcome ([Snapshot].Last); so who asks must be a controller that remembers.
func AskFor(kind kinds.Kind, namespace, name string) events.Command {
	return command(events.VerbAsk, kind, namespace, name)
}

// Record writes a Kubernetes Event and changes nothing else.
func Record(n events.Notice) events.Command {
	return events.Command{Verb: events.VerbRecord, OnApplied: &n}
}

// Option changes a command.
type Option func(*events.Command)

// IfUnchanged makes the command depend on obj's resourceVersion.
func IfUnchanged(obj metav1.Object) Option {
	return func(c *events.Command) { condition(c).ResourceVersion = obj.GetResourceVersion() }
}

// IfAbsent makes the command depend on owners not being there, checked live.
func IfAbsent(owners ...metav1.OwnerReference) Option {
	return func(c *events.Command) { condition(c).Absent = owners }
}

// IfLeaving makes the command depend on owners being gone, or being deleted and
// waiting for their dependents, checked live.
func IfLeaving(owners ...metav1.OwnerReference) Option {
	return func(c *events.Command) { condition(c).Leaving = owners }
}

// IfSameOwners lets a delete survive a resourceVersion conflict that did not
// touch the owner references.
func IfSameOwners(obj metav1.Object) Option {
	return func(c *events.Command) { condition(c).SameOwners = obj.GetOwnerReferences() }
}

// IfAlive makes the command depend on an object that lives, checked live.
func IfAlive(kind kinds.Kind, obj metav1.Object) Option {
	return func(c *events.Command) {
		condition(c).Alive = &events.Alive{
			Kind: kind.Name, Version: kind.Version, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
		}
	}
}

// IfUnused makes the command depend on nothing needing its object ([events.UserKinds]),
// checked live.
func IfUnused() Option {
	return func(c *events.Command) { condition(c).Unused = true }
}

// IfUnshared makes the command depend on no other object of its kind having an address of the
// ranges that the body gives ([events.HasRanges]), checked live.
func IfUnshared() Option {
	return func(c *events.Command) { condition(c).Unshared = true }
}

// Propagate sets what happens to the dependents of a deleted object.
func Propagate(how metav1.DeletionPropagation) Option {
	return func(c *events.Command) { c.Propagation = how }
}

// Tell sets what users are told when the command is applied and when it failed;
// either may be nil.
func Tell(applied, failed *events.Notice) Option {
	return func(c *events.Command) { c.OnApplied, c.OnFailed = applied, failed }
}

// About is the reference under which an object's Events are found.
func About(kind kinds.Kind, obj metav1.Object) corev1.ObjectReference {
	return corev1.ObjectReference{
		APIVersion: kind.APIVersion(), Kind: kind.Kind,
		Namespace: obj.GetNamespace(), Name: obj.GetName(),
		UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
	}
}

// Body is an object as the JSON body of a command.
func Body(obj any) json.RawMessage {
	text, err := json.Marshal(obj)
	if err != nil {
		panic(fmt.Sprintf("a Kubernetes object of type %T has no JSON form: %v", obj, err)) // impossible for API types
	}
	return text
}

func command(verb events.Verb, kind kinds.Kind, namespace, name string) events.Command {
	return events.Command{Verb: verb, Kind: kind.Name, Version: kind.Version, Namespace: namespace, Name: name}
}

func condition(c *events.Command) *events.If {
	if c.If == nil {
		c.If = &events.If{}
	}
	return c.If
}

func options(c events.Command, with []Option) events.Command {
	for _, option := range with {
		option(&c)
	}
	return c
}
