package deployment

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// forget deletes the oldest of the old sets beyond the history limit. It spares a set
// that may still have pods, and deletes no other instead. It also spares a set whose
// revision is not below the new set's yet: if the new set's revision could not be written
// so far, it would not rise without that set.
//
// Upstream: pkg/controller/deployment/sync.go, cleanupDeployment; sets whose
// revision is no number are put in the order of their age there, and come first
// here.
func (r *rollout) forget() reconcile.Decision {
	limit := r.deployment.Spec.RevisionHistoryLimit
	if limit == nil || *limit == math.MaxInt32 {
		return reconcile.Decision{}
	}
	past := slices.DeleteFunc(slices.Clone(r.old), func(s *set) bool { return s.seen.DeletionTimestamp != nil })
	slices.SortStableFunc(past, func(a, b *set) int { return cmp.Compare(orderOf(a), orderOf(b)) })
	surplus := max(len(past)-int(max(*limit, 0)), 0)
	var commands []events.Command
	for _, s := range past[:surplus] {
		if status := s.seen.Status; status.Replicas == 0 && s.size == 0 && !s.changed && s.seen.Generation <= status.ObservedGeneration && !r.counts(s) {
			commands = append(commands, reconcile.Delete(kinds.ReplicaSets.Kind, s.seen, reconcile.IfUnchanged(s.seen)))
		}
	}
	if len(commands) == 0 {
		return reconcile.Decision{}
	}
	return reconcile.Do("there are more old ReplicaSets than the history limit", commands...)
}

// counts reports whether the new set's next revision depends on that of an old one.
func (r *rollout) counts(s *set) bool {
	if r.fresh == nil {
		return false
	}
	had, ok := revisionOf(r.fresh.seen.Annotations)
	return ok && orderOf(s) > 0 && had <= orderOf(s)
}

func orderOf(s *set) int64 {
	revision, ok := revisionOf(s.seen.Annotations)
	if !ok {
		return 0
	}
	return revision
}

// rollbackTo returns the revision to which the annotation asks to go back, 0 for the
// previous one; ok is false if it is missing or not a number.
//
// Upstream: pkg/controller/deployment/rollback.go. The annotation is what became
// of a field of API versions that are gone.
func rollbackTo(d *appsv1.Deployment) (revision int64, ok bool) {
	revision, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	return revision, err == nil
}

// rollBack restores the template of a revision, and always removes the request from the
// Deployment. It does not report a status, because the Deployment is about to change.
func (r *rollout) rollBack(revision int64) reconcile.Decision {
	if r.fresh == nil {
		return r.bear(false)
	}
	r.record()
	if revision == 0 {
		revision = r.lastRevision()
	}
	target := r.revision(revision)
	next := reported(r.deployment)
	next.Annotations = withoutRequest(next.Annotations)
	r.revise(next)
	switch {
	case revision == 0:
		return r.answer(next, corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find last revision.")
	case target == nil:
		return r.answer(next, corev1.EventTypeWarning, "DeploymentRollbackRevisionNotFound", "Unable to find the revision to rollback to.")
	case sameTemplate(&r.deployment.Spec.Template, &target.seen.Spec.Template):
		return r.answer(next, corev1.EventTypeWarning, "DeploymentRollbackTemplateUnchanged",
			fmt.Sprintf("The rollback revision contains the same template as current deployment %q", next.Name))
	}
	next.Spec.Template = target.seen.Spec.Template // shallow: the parts are only read
	next.Spec.Template.Labels = withoutHash(target.seen.Spec.Template.Labels)
	next.Annotations = restored(next.Annotations, target.notes)
	return r.answer(next, corev1.EventTypeNormal, "DeploymentRollback",
		fmt.Sprintf("Rolled back deployment %q to revision %d", next.Name, revision))
}

// answer updates the Deployment and sends an Event with the result of the request.
func (r *rollout) answer(next *appsv1.Deployment, level, reason, message string) reconcile.Decision {
	update := reconcile.Update(kinds.Deployments.Kind, next, reconcile.WithEvents(notice(r.deployment, level, reason, message), nil))
	return reconcile.Do("a rollback is requested", append(r.changes(), update)...)
}

// lastRevision returns the second-highest revision, or 0.
func (r *rollout) lastRevision() int64 {
	var revisions []int64
	for _, s := range r.all() {
		if revision, ok := revisionOf(s.notes); ok {
			revisions = append(revisions, max(revision, 0))
		}
	}
	slices.Sort(revisions)
	if len(revisions) < 2 {
		return 0
	}
	return revisions[len(revisions)-2]
}

// revision returns the set with a revision, nil if there is none.
func (r *rollout) revision(wanted int64) *set {
	for _, s := range r.all() {
		if revision, ok := revisionOf(s.notes); ok && revision == wanted {
			return s
		}
	}
	return nil
}

// withoutRequest copies a Deployment's annotations without the rollback request.
func withoutRequest(notes map[string]string) map[string]string {
	kept := maps.Clone(notes)
	delete(kept, appsv1.DeprecatedRollbackTo)
	return kept
}

// restored returns the annotations of a Deployment that goes back to a set: ownNotes come
// from the Deployment, all others from the set.
func restored(have, past map[string]string) map[string]string {
	notes := map[string]string{}
	for _, key := range ownNotes {
		if value, there := have[key]; there {
			notes[key] = value
		}
	}
	for key, value := range past {
		if !slices.Contains(ownNotes, key) {
			notes[key] = value
		}
	}
	return notes
}
