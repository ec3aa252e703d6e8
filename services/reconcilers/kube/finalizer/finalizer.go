// Package finalizer adds finalizers to objects and removes them.
package finalizer

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Has reports whether an object has a finalizer.
func Has(obj metav1.Object, name string) bool { return slices.Contains(obj.GetFinalizers(), name) }

// Add adds a finalizer to an object, which must not be shared.
func Add(obj metav1.Object, name string) {
	obj.SetFinalizers(append(slices.Clone(obj.GetFinalizers()), name))
}

// Remove removes a finalizer from an object, which must not be shared.
func Remove(obj metav1.Object, name string) {
	obj.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool { return f == name }))
}
