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

// condition is what a condition says, without when.
type condition struct {
	kind            appsv1.DeploymentConditionType
	status          corev1.ConditionStatus
	reason, message string
}

// tell sets a condition unless it has this status and reason already. It changes
// nothing that it is given, like everything here.
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

// renew sets a condition, and says that it was looked at now.
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

// find is the condition of a type.
func find(have []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) (appsv1.DeploymentCondition, bool) {
	for _, c := range have {
		if c.Type == kind {
			return c, true
		}
	}
	return appsv1.DeploymentCondition{}, false
}

// without is a copy of conditions, but for one type.
func without(have []appsv1.DeploymentCondition, kind appsv1.DeploymentConditionType) []appsv1.DeploymentCondition {
	return slices.DeleteFunc(slices.Clone(have), func(c appsv1.DeploymentCondition) bool { return c.Type == kind })
}
