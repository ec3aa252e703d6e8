package owner

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Adopt gives an object a controller, on the condition that the owner is not
// being deleted and the object has the same uid.
func Adopt(kind kinds.Kind, obj metav1.Object, ownerKind kinds.Kind, owner metav1.Object) events.Command {
	reference := Reference(ownerKind, owner)
	alive := reconcile.IfAlive(ownerKind, owner)
	if !mergesByKey(kind) {
		references := append(slices.Clone(obj.GetOwnerReferences()), reference)
		return replace(kind, obj, references, alive)
	}
	return patch(kind, obj, []metav1.OwnerReference{reference}, alive)
}

// Release removes the references to owners from an object.
func Release(kind kinds.Kind, obj metav1.Object, owners ...types.UID) events.Command {
	if !mergesByKey(kind) {
		kept := slices.DeleteFunc(slices.Clone(obj.GetOwnerReferences()), func(r metav1.OwnerReference) bool {
			return slices.Contains(owners, r.UID)
		})
		return replace(kind, obj, kept)
	}
	return patch(kind, obj, removals(owners...))
}

// removal removes the reference with a uid from a merged list.
type removal struct {
	Patch string    `json:"$patch"`
	UID   types.UID `json:"uid"`
}

func removals(owners ...types.UID) []removal {
	all := make([]removal, 0, len(owners))
	for _, uid := range owners {
		all = append(all, removal{Patch: "delete", UID: uid})
	}
	return all
}

// mergesByKey reports whether the API server can merge owner references one by
// one. It can for kinds with Go types; a patch of a custom resource must give
// the whole list. To take an unknown built-in kind for a custom one costs a
// conflict at worst.
func mergesByKey(kind kinds.Kind) bool { return kinds.Scheme().Recognizes(kind.GVK()) }

// patch merges references into the existing ones. The uid in it makes the API
// server refuse the patch for another object of that name.
func patch(kind kinds.Kind, obj metav1.Object, references any, with ...reconcile.Option) events.Command {
	return marked(kind, obj, map[string]any{"ownerReferences": references}, with...)
}

// marked merges fields into an object's metadata, under the same condition.
func marked(kind kinds.Kind, obj metav1.Object, metadata map[string]any, with ...reconcile.Option) events.Command {
	metadata["uid"] = obj.GetUID()
	body := map[string]any{"metadata": metadata}
	return reconcile.Patch(kind, obj, types.StrategicMergePatchType, reconcile.Body(body), with...)
}

// replace gives the whole list, on the condition that no client has changed the
// object.
func replace(kind kinds.Kind, obj metav1.Object, references []metav1.OwnerReference, with ...reconcile.Option) events.Command {
	var list any // null removes the field
	if len(references) > 0 {
		list = references
	}
	body := map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "ownerReferences": list,
	}}
	with = append(with, reconcile.IfUnchanged(obj))
	return reconcile.Patch(kind, obj, types.MergePatchType, reconcile.Body(body), with...)
}
