package deployment

import (
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// report updates the status if it differs, together with the annotation that has the
// revision of the new set. In a rollout it also reports progress, and requests a wake at the deadline.
func (r *rollout) report(rolling bool) reconcile.Decision {
	d := r.deployment
	seen := reported(d)
	seen.Status.Conditions = r.beginnings()
	base := seen.Status
	seen.Status = r.count(base)
	var next reconcile.Decision
	if rolling {
		seen.Status.Conditions = r.progress(base, seen.Status)
		next = r.nextCheck(seen.Status)
	}
	r.revise(seen)
	if equality.Semantic.DeepEqual(seen.Status, d.Status) && maps.Equal(seen.Annotations, d.Annotations) {
		return next
	}
	told := reconcile.Do("the status has changed", reconcile.UpdateStatus(kinds.Deployments.Kind, seen))
	told.Passing = passing(d, seen.Status)
	return reconcile.Join(told, next)
}

// passing reports whether a status is only an intermediate one for which no reader waits:
// the rollout is not complete, and no condition has changed its status.
func passing(d *appsv1.Deployment, status appsv1.DeploymentStatus) bool {
	was := d.Status
	news := func(c appsv1.DeploymentCondition) bool {
		before, there := find(was.Conditions, c.Type)
		return !there || before.Status != c.Status
	}
	return !complete(d, status) && status.ObservedGeneration == was.ObservedGeneration &&
		len(status.Conditions) == len(was.Conditions) && !slices.ContainsFunc(status.Conditions, news)
}

// reported returns a copy of a Deployment whose status and annotations may be replaced.
func reported(d *appsv1.Deployment) *appsv1.Deployment {
	seen := *d // shallow: the parts are only read
	seen.TypeMeta = metav1.TypeMeta{APIVersion: kinds.Deployments.APIVersion(), Kind: kinds.Deployments.Kind.Kind}
	return &seen
}

// revise copies the revision of the new set to the Deployment, unless this turn still
// changes the set's annotations.
//
// Upstream: the status subresource lets annotations through.
func (r *rollout) revise(seen *appsv1.Deployment) {
	if r.fresh == nil || r.fresh.recorded {
		return
	}
	if revision := r.fresh.seen.Annotations[revisionNote]; seen.Annotations[revisionNote] != revision {
		notes := maps.Clone(seen.Annotations)
		if notes == nil {
			notes = map[string]string{}
		}
		notes[revisionNote] = revision
		seen.Annotations = notes
	}
}

// count returns the status with its counts and the condition Available.
//
// Upstream: pkg/controller/deployment/sync.go, calculateStatus.
func (r *rollout) count(base appsv1.DeploymentStatus) appsv1.DeploymentStatus {
	d, all := r.deployment, r.all()
	asked := sum(all, func(s *set) int32 { return sizeOf(s.seen) })
	status := appsv1.DeploymentStatus{
		ObservedGeneration:  d.Generation,
		Replicas:            sum(all, func(s *set) int32 { return s.seen.Status.Replicas }),
		ReadyReplicas:       sum(all, func(s *set) int32 { return s.seen.Status.ReadyReplicas }),
		AvailableReplicas:   sum(all, available),
		UnavailableReplicas: max(asked-sum(all, available), 0),
		CollisionCount:      base.CollisionCount,
	}
	if r.gates.On(gate.DeploymentReplicaSetTerminatingReplicas) {
		status.TerminatingReplicas = terminating(all)
	}
	if r.fresh != nil {
		status.UpdatedReplicas = r.fresh.seen.Status.Replicas
	}
	available := condition{appsv1.DeploymentAvailable, corev1.ConditionFalse,
		"MinimumReplicasUnavailable", "Deployment does not have minimum availability."}
	if status.AvailableReplicas >= least(d) {
		available = condition{appsv1.DeploymentAvailable, corev1.ConditionTrue,
			"MinimumReplicasAvailable", "Deployment has minimum availability."}
	}
	status.Conditions = r.tell(base.Conditions, available)
	return status
}

// terminating returns how many pods of the sets are terminating; nil if a set that its
// controller has observed does not report it.
func terminating(sets []*set) *int32 {
	var total int32
	for _, s := range sets {
		switch status := &s.seen.Status; {
		case status.TerminatingReplicas != nil:
			total += *status.TerminatingReplicas
		case status.ObservedGeneration != 0:
			return nil
		}
	}
	return &total
}
