// Package owner knows which object controls another, and plans adoptions and
// releases.
package owner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Of returns the reference to the controller of an object; ok is false for an
// orphan.
func Of(obj metav1.Object) (controller metav1.OwnerReference, ok bool) {
	if ref := metav1.GetControllerOfNoCopy(obj); ref != nil {
		return *ref, true
	}
	return metav1.OwnerReference{}, false
}

// Controls reports whether an owner controls an object.
func Controls(owner, obj metav1.Object) bool {
	ref := metav1.GetControllerOfNoCopy(obj)
	return ref != nil && ref.UID == owner.GetUID()
}

// Refers reports whether a reference names an object of a kind. It compares the
// group but not the version, because an object is the same in every version.
func Refers(ref metav1.OwnerReference, kind kinds.Kind, owner metav1.Object) bool {
	group, err := schema.ParseGroupVersion(ref.APIVersion)
	return err == nil && group.Group == kind.Name.Group() && ref.Kind == kind.Kind &&
		ref.Name == owner.GetName() && ref.UID == owner.GetUID()
}

// Reference is the controller reference to an owner. It blocks a foreground
// deletion of the owner while the dependent exists.
func Reference(kind kinds.Kind, owner metav1.Object) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{
		APIVersion: kind.APIVersion(), Kind: kind.Kind,
		Name: owner.GetName(), UID: owner.GetUID(),
		Controller: &yes, BlockOwnerDeletion: &yes,
	}
}
