package statefulset

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// report updates the status if it differs, and records Events that have not been recorded.
// A changed collision count alone is no reason for an update.
func (s stage) report() reconcile.Decision {
	next, had := s.status(), s.Set.Status
	told := s.telling()
	if next.ObservedGeneration <= had.ObservedGeneration && counts(next) == counts(had) {
		if len(told) > 1 {
			return reconcile.Do("there are Events to record", told...)
		}
		return reconcile.Decision{}
	}
	next.Conditions = had.Conditions
	reported := *s.Set // shallow: the parts are only read
	reported.TypeMeta = metav1.TypeMeta{APIVersion: kinds.StatefulSets.APIVersion(), Kind: kinds.StatefulSets.Kind.Kind}
	reported.Status = next
	d := reconcile.Do("the status has changed", append([]events.Command{reconcile.UpdateStatus(kinds.StatefulSets.Kind, &reported)}, told...)...)
	d.Passing = s.passing(next)
	return d
}

// passing reports whether a status is an intermediate one that no reader waits for: not all
// pods exist, are available and have the update revision, and the status does not decide
// which pods are created.
func (s stage) passing(next appsv1.StatefulSetStatus) bool {
	wanted := int32(s.wanted())
	there := next.Replicas == wanted && next.AvailableReplicas == wanted && next.UpdatedReplicas == wanted
	return !there && !s.divided() && next.ObservedGeneration == s.Set.Status.ObservedGeneration
}

// figures are the compared fields of a status.
type figures struct {
	replicas, ready, available, current, updated int32
	currentRevision, updateRevision              string
}

func counts(s appsv1.StatefulSetStatus) figures {
	return figures{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas, s.CurrentRevision, s.UpdateRevision}
}

// status computes the status from what is seen. When all wanted pods have the update
// revision and are ready, that becomes the current revision.
//
// Upstream: computeReplicaStatus and completeRollingUpdate. It takes a pod that it deletes
// from the current ones at once; here that is so when it is seen.
func (s stage) status() appsv1.StatefulSetStatus {
	next := appsv1.StatefulSetStatus{
		ObservedGeneration: s.Set.Generation, CurrentRevision: s.current.Name, UpdateRevision: s.update.Name,
		CollisionCount: ptr.To(ptr.Deref(s.Set.Status.CollisionCount, 0)),
	}
	for _, p := range s.pods {
		if p.Status.Phase == "" {
			continue
		}
		next.Replicas++
		if running(p) {
			next.ReadyReplicas++
			if s.available(p) {
				next.AvailableReplicas++
			}
		}
		if p.DeletionTimestamp != nil {
			continue
		}
		if revisionOf(p) == s.current.Name {
			next.CurrentReplicas++
		}
		if revisionOf(p) == s.update.Name {
			next.UpdatedReplicas++
		}
	}
	wanted := int32(s.wanted())
	if s.Set.Spec.UpdateStrategy.Type == appsv1.RollingUpdateStatefulSetStrategyType &&
		next.UpdatedReplicas == wanted && next.ReadyReplicas == wanted && next.Replicas == wanted {
		next.CurrentReplicas, next.CurrentRevision = next.UpdatedReplicas, next.UpdateRevision
	}
	return next
}
