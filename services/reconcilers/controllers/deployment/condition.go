package deployment

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of the condition Progressing.
const (
	reasonCreateError = "ReplicaSetCreateError"
	reasonCreated     = "NewReplicaSetCreated"
	reasonFound       = "FoundNewReplicaSet"
	reasonUpdated     = "ReplicaSetUpdated"
	reasonComplete    = "NewReplicaSetAvailable"
	reasonTimedOut    = "ProgressDeadlineExceeded"
	reasonPaused      = "DeploymentPaused"
	reasonResumed     = "DeploymentResumed"
)

// condition is a condition without its times.
type condition struct {
	kind            appsv1.DeploymentConditionType
	status          corev1.ConditionStatus
	reason, message string
}

// tell sets a condition unless it has this status and reason already. Like all functions
// here, it does not modify its arguments.
//
// Upstream: pkg/controller/deployment/util, SetDeploymentCondition; as there, a
// condition that changes goes to the end, and another message alone is no change.
func (r *rollout) tell(have []appsv1.DeploymentCondition, c condition) []appsv1.DeploymentCondition {
	was, there := find(have, c.kind)
	if there && was.Status == c.status && was.Reason == c.reason {
		return have
	}
	return r.renew(have, c)
}

// renew sets a condition and its lastUpdateTime.
func (r *rollout) renew(have []appsv1.DeploymentCondition, c condition) []appsv1.DeploymentCondition {
	now := metav1.NewTime(r.now.Truncate(time.Second))
	since := now
	if was, there := find(have, c.kind); there && was.Status == c.status {
		since = was.LastTransitionTime
	}
	return append(without(have, c.kind), appsv1.DeploymentCondition{
		Type: c.kind, Status: c.status, Reason: c.reason, Message: c.message,
		LastUpdateTime: now, LastTransitionTime: since,
	})
}

// find returns the condition of a type.
func find(have []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) (appsv1.DeploymentCondition, bool) {
	for _, c := range have {
		if c.Type == kind {
			return c, true
		}
	}
	return appsv1.DeploymentCondition{}, false
}

// without copies conditions except those of one type.
func without(have []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) []appsv1.DeploymentCondition {
	return slices.DeleteFunc(slices.Clone(have), func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
