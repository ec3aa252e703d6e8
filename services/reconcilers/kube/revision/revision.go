// Package revision knows how ControllerRevisions hold what the pods of a set were made
// of, so that a set can go back to it.
package revision

import (
	"cmp"
	"encoding/json"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Patch is a template as revisions hold it: what makes a set one of that template.
//
// Upstream: getPatch of the controllers of StatefulSets and DaemonSets. Its bytes are
// hashed into names, and kube-controller-manager compares them.
func Patch(t *corev1.PodTemplateSpec) []byte {
	var body map[string]any
	if err := json.Unmarshal(reconcile.Body(t), &body); err != nil {
		return nil // impossible: it was written just now
	}
	body["$patch"] = "replace"
	return reconcile.Body(map[string]any{"spec": map[string]any{"template": body}})
}

// Template is what a revision holds; ok is false where that is no template.
func Template(r *appsv1.ControllerRevision) (t *corev1.PodTemplateSpec, ok bool) {
	var said struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	err := json.Unmarshal(r.Data.Raw, &said)
	return said.Spec.Template, err == nil && said.Spec.Template != nil
}

// Holds tells whether a revision is of a template. They are compared by what they
// mean: an older API wrote down the same template in other words, and that is no
// reason to replace pods.
func Holds(r *appsv1.ControllerRevision, t *corev1.PodTemplateSpec) bool {
	held, ok := Template(r)
	return ok && equality.Semantic.DeepEqual(held, t)
}

// Sorted are revisions, the oldest first.
func Sorted(revisions []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	sorted := slices.Clone(revisions)
	slices.SortStableFunc(sorted, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}
