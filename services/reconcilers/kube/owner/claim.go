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

// Claimant is an owner that claims objects.
type Claimant struct {
	Kind     kinds.Kind
	Owner    metav1.Object
	Selector labels.Selector
	// Finalizer is added to adopted objects and removed from released ones; empty:
	// none. Only kinds that have a Go type can be claimed with one.
	Finalizer string
}

// Claim sorts objects by whether they belong to the claimant, and holds the
// commands that adopt and release. Objects keep their order.
type Claim[T metav1.Object] struct {
	// Mine have the owner's reference and match its selector.
	Mine []T
	// Adopted match and have no controller. They belong to the owner once Commands
	// are carried out, and not before, because the owner may be deleted by then.
	Adopted []T
	// Released have the owner's reference but do not match any more.
	Released []T
	// Commands adopt and release, sorted by the objects' names.
	Commands []events.Command
}

// Claims sorts objects of a kind by whether they belong to the claimant. An owner
// that is being deleted keeps what it has, and adopts and releases nothing.
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
