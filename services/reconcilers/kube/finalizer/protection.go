package finalizer

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Protection is a finalizer that keeps the objects of a kind while they are in use.
type Protection struct {
	Kind      kinds.Kind
	Finalizer string
	// Noun is what reasons call an object, such as "claim".
	Noun string
}

// Object is an object of the API in its Go type.
type Object interface {
	runtime.Object
	metav1.Object
}

// Keep decides about an object whose use does not matter: one that is not deleted gets the
// finalizer, and a deleted one without it does not concern the controller. ok is false for a
// deleted object with the finalizer, about which the controller decides by its use.
func (p Protection) Keep(obj Object) (d reconcile.Decision, ok bool) {
	deleted, guarded := obj.GetDeletionTimestamp() != nil, Has(obj, p.Finalizer)
	switch {
	case !deleted && !guarded:
		return reconcile.Do("the "+p.Noun+" is not protected yet", p.update(obj, Add)), true
	case !deleted:
		return reconcile.Nothing("the " + p.Noun + " is protected"), true
	case !guarded:
		return reconcile.Nothing("the " + p.Noun + " is deleted, and has no finalizer of this controller"), true
	default:
		return reconcile.Decision{}, false
	}
}

// Release removes the finalizer of a deleted object that is not in use.
func (p Protection) Release(obj Object, because string, with ...reconcile.Option) reconcile.Decision {
	return reconcile.Do(because, p.update(obj, Remove, with...))
}

func (p Protection) update(obj Object, change func(metav1.Object, string), with ...reconcile.Option) events.Command {
	next := obj.DeepCopyObject().(Object)
	change(next, p.Finalizer)
	return reconcile.Update(p.Kind, next, with...)
}
