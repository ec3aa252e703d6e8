package owner

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Candidates returns the objects of a kind that [Claims] may decide about: those
// that the owner controls, and the orphans that its selector matches.
func Candidates[T metav1.Object](s reconcile.Snapshot, kind kinds.Of[T], owner metav1.Object, selector labels.Selector) []T {
	var all []T
	for _, obj := range reconcile.ControlledBy(s, kind, owner.GetUID()) {
		if obj.GetNamespace() == owner.GetNamespace() {
			all = append(all, obj)
		}
	}
	for _, obj := range reconcile.Orphans(s, kind, owner.GetNamespace()) {
		if selector.Matches(labels.Set(obj.GetLabels())) {
			all = append(all, obj)
		}
	}
	return all
}
