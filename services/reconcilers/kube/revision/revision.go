// Package revision reads and writes the pod templates that ControllerRevisions hold, so
// that a set can roll back to them.
package revision

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Patch is a template as revisions hold it: a patch that gives a set this template.
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

// Creates is the promise to create revisions that hold [Patch] of the template in the key's
// object, and nothing else, because controllers create pods from revisions.
func Creates() reconcile.Write {
	const template, patch = ".data.spec.template", "['$patch']"
	return reconcile.Write{
		Verb: events.VerbCreate, Kind: kinds.ControllerRevisions.Name, On: reconcile.Beside, Name: reconcile.After, Child: true,
		Fields: []string{".metadata.labels", ".metadata.annotations", ".metadata.ownerReferences", template, ".revision"},
		Values: []reconcile.Value{{Path: template + patch, One: []string{"replace"}}},
		Copies: []reconcile.Copy{{To: template, From: ".spec.template", But: []string{patch}}},
	}
}

// Of returns the revisions that a set controls and the orphans that its selector matches,
// and the names of other revisions with the set's prefix, which are taken.
func Of(s reconcile.Snapshot, set metav1.Object, selector labels.Selector, prefix string) (own []*appsv1.ControllerRevision, taken []string) {
	own = owner.Candidates(s, kinds.ControllerRevisions, set, selector)
	for _, r := range reconcile.List(s, kinds.ControllerRevisions, set.GetNamespace()) {
		mine := slices.ContainsFunc(own, func(o *appsv1.ControllerRevision) bool { return o.Name == r.Name })
		if !mine && strings.HasPrefix(r.Name, prefix) {
			taken = append(taken, r.Name)
		}
	}
	return own, taken
}

// Template is the template that a revision holds; ok is false if it holds none.
func Template(r *appsv1.ControllerRevision) (t *corev1.PodTemplateSpec, ok bool) {
	var said struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	err := json.Unmarshal(r.Data.Raw, &said)
	return said.Spec.Template, err == nil && said.Spec.Template != nil
}

// Holds reports whether a revision holds a template. It compares their meaning: an older API
// server may have encoded the same template differently, which is no reason to replace
// pods.
func Holds(r *appsv1.ControllerRevision, t *corev1.PodTemplateSpec) bool {
	held, ok := Template(r)
	return ok && equality.Semantic.DeepEqual(held, t)
}

// Sorted returns revisions, the oldest first.
func Sorted(revisions []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	sorted := slices.Clone(revisions)
	slices.SortStableFunc(sorted, func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return sorted
}
