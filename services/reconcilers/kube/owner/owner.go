// Package owner knows who controls an object, and plans how objects change
// hands.
package owner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Of is the reference to the controller of an object; ok is false for an
// orphan.
func Of(obj metav1.Object) (controller metav1.OwnerReference, ok bool) {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return *ref, true
	}
	return metav1.OwnerReference{}, false
}

// Controls tells whether an object is controlled by an owner.
func Controls(owner, obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref != nil && ref.UID == owner.GetUID()
}

// Refers tells whether a reference is to an object of a kind. The group counts,
// the version does not: an object is the same in every version.
func Refers(ref metav1.OwnerReference, kind kinds.Kind, owner metav1.Object) bool {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && group.Group == kind.Name.Group() && ref.Kind == kind.Kind &&
		ref.Name == owner.GetName() && ref.UID == owner.GetUID()
}

// Reference is what the objects that an owner controls carry. While such an
// object is there, an owner that is deleted in the foreground stays.
func Reference(kind kinds.Kind, owner metav1.Object) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: kind.APIVersion(), Kind: kind.Kind,
		Name: owner.GetName(), UID: owner.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}
}
