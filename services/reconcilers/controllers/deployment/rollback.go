package deployment

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

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
