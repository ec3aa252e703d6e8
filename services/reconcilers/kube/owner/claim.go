package owner

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Claimant is an owner that looks for its own.
type Claimant struct {
	Kind     kinds.Kind
	Owner    metav1.Object
	Selector labels.Selector
	// Finalizer is put on what is adopted and taken off what is released; empty is
	// none. Only kinds that have a Go type can be claimed with one.
	Finalizer string
}

// Claim says which of some objects are the claimant's and which should change
// hands. Objects keep the order in which they were given.
type Claim[T metav1.Object] struct {
	// Mine has the owner's reference already and matches its selector.
	Mine []T
	// Adopted matches and has no controller; it is the owner's once Commands
	// are carried out, and not before: the owner may be gone by then.
	Adopted []T
	// Released has the owner's reference but does not match any more.
	Released []T
	// Commands adopt and release, sorted by the objects' names.
	Commands []events.Command
}

// Claims sorts objects of a kind by whether they are the claimant's. An owner on
// its way out keeps what it has and takes or gives up nothing.
//
// Upstream: pkg/controller/controller_ref_manager.go, ClaimObject. Where that
// looks whether the owner still lives before the first adoption, each adoption
// here is conditional on it.
func Claims[T metav1.Object](c Claimant, kind kinds.Of[T], objs []T) Claim[T] {
	var claim Claim[T]
	leaving := c.Owner.GetDeletionTimestamp() != nil
	for _, obj := range objs {
		controller := metav1.GetControllerOfNoCopy(obj)
		matches := c.Selector.Matches(labels.Set(obj.GetLabels()))
		switch {
		case controller != nil && controller.UID != c.Owner.GetUID():
			// another owner's
		case controller != nil && matches:
			claim.Mine = append(claim.Mine, obj)
		case leaving:
			// nothing changes hands
		case controller != nil:
			claim.Released = append(claim.Released, obj)
			claim.Commands = append(claim.Commands, c.release(kind.Kind, obj))
		case matches && obj.GetDeletionTimestamp() == nil && obj.GetNamespace() == c.Owner.GetNamespace():
			claim.Adopted = append(claim.Adopted, obj)
			claim.Commands = append(claim.Commands, c.adopt(kind.Kind, obj))
		}
	}
	slices.SortStableFunc(claim.Commands, func(a, b events.Command) int { return cmp.Compare(a.Name, b.Name) })
	return claim
}

func (c Claimant) adopt(kind kinds.Kind, obj metav1.Object) events.Command {
	if c.Finalizer == "" {
		return Adopt(kind, obj, c.Kind, c.Owner)
	}
	return marked(kind, obj, map[string]any{
		"ownerReferences": []metav1.OwnerReference{Reference(c.Kind, c.Owner)},
		"finalizers":      []string{c.Finalizer},
	}, reconcile.IfAlive(c.Kind, c.Owner))
}

func (c Claimant) release(kind kinds.Kind, obj metav1.Object) events.Command {
	if c.Finalizer == "" {
		return Release(kind, obj, c.Owner.GetUID())
	}
	return marked(kind, obj, map[string]any{
		"ownerReferences":                     removals(c.Owner.GetUID()),
		"$deleteFromPrimitiveList/finalizers": []string{c.Finalizer},
	})
}
