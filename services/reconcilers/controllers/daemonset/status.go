package daemonset

import (
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// report updates the status if it differs.
func (s *stage) report() reconcile.Decision {
	next := s.status()
	next.ObservedGeneration = max(next.ObservedGeneration, s.Set.Status.ObservedGeneration)
	if equality.Semantic.DeepEqual(next, s.Set.Status) {
		return reconcile.Decision{}
	}
	return reconcile.Do("the status has changed", reconcile.UpdateStatus(kinds.DaemonSets.Kind, s.reported(next)))
}

// reported returns a copy of the set with a status.
func (v View) reported(status appsv1.DaemonSetStatus) *appsv1.DaemonSet {
	set := *v.Set // shallow: the parts are only read
	set.TypeMeta = metav1.TypeMeta{APIVersion: kinds.DaemonSets.APIVersion(), Kind: kinds.DaemonSets.Kind.Kind}
	set.Status = status
	return &set
}

// status returns the observed status. If a node has several pods, the first one counts.
//
// Upstream: updateDaemonSetStatus. There a generation counts as observed when pods were
// created and deleted for it; here when it was seen, as for other sets. The numbers are of
// that generation either way.
func (s *stage) status() appsv1.DaemonSetStatus {
	next := appsv1.DaemonSetStatus{
		ObservedGeneration: s.Set.Generation, DesiredNumberScheduled: int32(s.desired),
		CollisionCount: s.Set.Status.CollisionCount, Conditions: s.Set.Status.Conditions,
	}
	for _, here := range s.places {
		switch {
		case !here.known || len(here.pods) == 0:
			continue
		case !here.run:
			next.NumberMisscheduled++
			continue
		}
		next.CurrentNumberScheduled++
		first := here.pods[0]
		if pod.Ready(first) {
			next.NumberReady++
			if s.available(first) {
				next.NumberAvailable++
			}
		}
		if s.updated(first) {
			next.UpdatedNumberScheduled++
		}
	}
	next.NumberUnavailable = next.DesiredNumberScheduled - next.NumberAvailable
	return next
}
