// Package finalizer puts finalizers on objects and takes them off.
package finalizer

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Has tells whether an object has a finalizer.
func Has(obj metav1.Object, name string) bool { return slices.Contains(obj.GetFinalizers(), name) }

// Add puts a finalizer on an object, which must not be shared.
func Add(obj metav1.Object, name string) {
	obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), name))
}

// Remove takes a finalizer off an object, which must not be shared.
func Remove(obj metav1.Object, name string) {
	obj.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name }))
}
