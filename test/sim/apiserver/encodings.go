package apiserver

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
)

// Stored is a version of an object.
type Stored struct{ uid, version string }

// StoredAs is the current version of an object.
func StoredAs(obj metav1.Object) Stored {
	return Stored{string(obj.GetUID()), obj.GetResourceVersion()}
}

// rewrite stores an object again if its encoding is not the current one.
func (a *API) rewrite(c *Collection, ref events.Ref, old metav1.Object) metav1.Object {
	if a.Encoded == nil || a.Encoded[StoredAs(old)] == a.Encoding {
		return old
	}
	next := clone(old)
	a.Writes++
	a.commit(c, ref, old, next)
	return next
}
