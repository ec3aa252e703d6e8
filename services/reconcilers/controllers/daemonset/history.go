package daemonset

import (
	"cmp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/revision"
	"github.com/millrace/millrace/services/reconcilers/kube/template"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// hashLabel distinguishes revisions, and the pods that were created from them.
const hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey

// history has the past revisions of a set and its current one.
type history struct {
	// past are the revisions with another template than the set's, oldest first.
	past []*appsv1.ControllerRevision
	// hash is the hash of the current revision; empty while there is none.
	hash string
}

// history finds the revision of the set's template. change has commands if that revision,
// or an older one, must be created or corrected first.
//
// Upstream: constructHistory. It compares bytes; here what they mean counts, or every
// pod would be replaced when the API writes the same template in other words.
func (v View) history(mine []*corev1.Pod) (h history, change reconcile.Decision) {
	var current []*appsv1.ControllerRevision
	newest := int64(0)
	for _, r := range revision.Sorted(v.Revisions) {
		if r.Labels[hashLabel] == "" {
			labelled := *r // shallow: the parts are only read
			labelled.Labels = label.With(r.Labels, hashLabel, r.Name)
			change.Commands = append(change.Commands, reconcile.Update(kinds.ControllerRevisions.Kind, &labelled))
		}
		if revision.Holds(r, &v.Set.Spec.Template) {
			current = append(current, r)
			continue
		}
		h.past, newest = append(h.past, r), max(newest, r.Revision)
	}
	if len(current) > 0 {
		h.hash = current[len(current)-1].Labels[hashLabel]
	}
	switch {
	case len(change.Commands) > 0:
		change.Because = "a revision does not say which pods are of it"
		return h, change
	case len(current) == 0:
		return h, v.create(newest + 1)
	case len(current) > 1:
		return h, v.merge(current[:len(current)-1], h.hash, mine)
	case current[0].Revision <= newest:
		again := *current[0] // shallow: only the number changes
		again.Revision = newest + 1
		return h, reconcile.Do("the template equals an older revision", reconcile.Update(kinds.ControllerRevisions.Kind, &again))
	}
	return h, change
}

// merge replaces several revisions of one template by one: it relabels the pods of the
// others, and then deletes the others.
//
// Upstream: dedupCurHistories. There the pods of older templates become its own, too,
// and are never replaced.
func (v View) merge(others []*appsv1.ControllerRevision, hash string, mine []*corev1.Pod) reconcile.Decision {
	var pods, revisions []events.Command
	for _, p := range mine {
		at := hashIn(p)
		if at != hash && slices.ContainsFunc(others, func(r *appsv1.ControllerRevision) bool { return r.Labels[hashLabel] == at }) {
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]string{hashLabel: hash}}}
			pods = append(pods, reconcile.Patch(kinds.Pods.Kind, p, types.MergePatchType, reconcile.Body(patch)))
		}
	}
	slices.SortStableFunc(pods, func(a, b events.Command) int { return cmp.Compare(a.Name, b.Name) })
	for _, r := range others {
		revisions = append(revisions, reconcile.Delete(kinds.ControllerRevisions.Kind, r))
	}
	if len(pods) > 0 {
		return reconcile.Do("pods have a duplicate revision", pods[:min(len(pods), Burst)]...)
	}
	return reconcile.Do("two revisions have the same template", revisions...)
}

// create creates the revision of the set's template. If another revision has its name, it
// first counts a collision in the status, which changes the name of the next attempt.
func (v View) create(number int64) reconcile.Decision {
	hash := template.Hash(&v.Set.Spec.Template, v.Set.Status.CollisionCount)
	name := revisionPrefix(v.Set) + hash
	own := func(r *appsv1.ControllerRevision) bool { return r.Name == name }
	if slices.Contains(v.Taken, name) || slices.ContainsFunc(v.Revisions, own) {
		counted := v.reported(v.Set.Status)
		counted.Status.CollisionCount = ptr.To(ptr.Deref(v.Set.Status.CollisionCount, 0) + 1)
		return reconcile.Do("another revision has the name for the template's revision", reconcile.UpdateStatus(kinds.DaemonSets.Kind, counted))
	}
	r := &appsv1.ControllerRevision{
		TypeMeta: metav1.TypeMeta{APIVersion: kinds.ControllerRevisions.APIVersion(), Kind: kinds.ControllerRevisions.Kind.Kind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.Set.Namespace, Name: name, Labels: label.With(v.Set.Spec.Template.Labels, hashLabel, hash), Annotations: v.Set.Annotations,
			OwnerReferences: []metav1.OwnerReference{owner.Reference(kinds.DaemonSets.Kind, v.Set)},
		},
		Data: runtime.RawExtension{Raw: revision.Patch(&v.Set.Spec.Template)}, Revision: number,
	}
	return reconcile.Do("the template has no revision yet",
		reconcile.Create(kinds.ControllerRevisions.Kind, v.Set.Namespace, name, reconcile.Body(r)))
}

// revisionPrefix returns the prefix of the names of a set's revisions. It leaves room for
// the longest hash.
func revisionPrefix(set *appsv1.DaemonSet) string {
	const room = validation.DNS1123SubdomainMaxLength - len("-4294967295")
	return set.Name[:min(len(set.Name), room)] + "-"
}

// forget deletes the oldest revisions beyond the history limit, except those that still
// have pods. The exceptions count towards the limit.
//
// Upstream: cleanupHistory.
func (s *stage) forget() reconcile.Decision {
	limit := len(s.past)
	if s.Set.Spec.RevisionHistoryLimit != nil {
		limit = int(*s.Set.Spec.RevisionHistoryLimit)
	}
	excess := len(s.past) - limit
	live := map[string]bool{}
	for _, p := range s.pods {
		live[hashIn(p)] = true
	}
	var commands []events.Command
	for _, r := range s.past {
		if len(commands) < excess && !live[r.Labels[hashLabel]] {
			commands = append(commands, reconcile.Delete(kinds.ControllerRevisions.Kind, r))
		}
	}
	if len(commands) == 0 {
		return reconcile.Decision{}
	}
	return reconcile.Do("there are more old revisions than the history limit", commands...)
}
