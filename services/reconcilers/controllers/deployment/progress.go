package deployment

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
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

// deadline returns how long a rollout may go without progress; ok is false if it has no deadline.
func deadline(d *appsv1.Deployment) (limit time.Duration, ok bool) {
	seconds := d.Spec.ProgressDeadlineSeconds
	if seconds == nil || *seconds == math.MaxInt32 {
		return 0, false
	}
	return time.Duration(*seconds) * time.Second, true
}

// complete reports whether, according to a status, every wanted replica has the current
// template and is available, and no other replica exists.
func complete(d *appsv1.Deployment, s appsv1.DeploymentStatus) bool {
	goal := wanted(d)
	return s.UpdatedReplicas == goal && s.Replicas == goal && s.AvailableReplicas == goal && s.ObservedGeneration >= d.Generation
}

// beginnings returns the conditions with the changes that start the clock of the
// deadline: the Deployment was paused or resumed, or its new set was created or found.
//
// Upstream: pkg/controller/deployment/sync.go, checkPausedConditions and
// getNewReplicaSet. A rollout that missed its deadline stays so when paused.
func (r *rollout) beginnings() []appsv1.DeploymentCondition {
	d, have := r.deployment, r.deployment.Status.Conditions
	if _, limited := deadline(d); !limited {
		return have
	}
	was, there := find(have, appsv1.DeploymentProgressing)
	say := func(status corev1.ConditionStatus, reason, message string) []appsv1.DeploymentCondition {
		return r.tell(have, condition{appsv1.DeploymentProgressing, status, reason, message})
	}
	created := fmt.Sprintf("Created new replica set %q", r.newName())
	if d.DeletionTimestamp == nil && was.Reason != reasonTimedOut {
		switch paused := was.Reason == reasonPaused; {
		case d.Spec.Paused && !paused:
			return say(corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
		case !d.Spec.Paused && paused:
			have = say(corev1.ConditionUnknown, reasonResumed, "Deployment is resumed")
			if r.begun != "" {
				// Upstream: this is a write of its own, and the news of the set, which
				// comes after it with the old version, is refused and never told.
				return have
			}
		}
	}
	switch {
	case r.begun != "" && was.Reason == reasonCreated && was.Message != created:
		// Under another name, after a collision or for another template. Upstream:
		// then the words stay the old ones, and so does the clock.
		return r.renew(have, condition{appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, created})
	case r.begun != "":
		return say(corev1.ConditionTrue, reasonCreated, created)
	case r.fresh == nil || r.fresh.recorded:
		return have
	case r.untold(was):
		return r.renew(have, condition{appsv1.DeploymentProgressing, corev1.ConditionTrue, reasonCreated, created})
	case was.Reason == reasonCreateError: // this time the create succeeded
		return say(corev1.ConditionTrue, reasonCreated, created)
	case !there:
		return say(corev1.ConditionTrue, reasonFound, fmt.Sprintf("Found new replica set %q", r.fresh.seen.Name))
	default:
		return have
	}
}

// untold reports whether the new set was created for this rollout and the condition does
// not say so yet, because the report was held back or met a conflict. A created set has a
// revision that the Deployment does not have yet, and no earlier revision; a set that a
// rollback reuses has one. Without this report the deadline would not run.
//
// Upstream: the condition is written right after the set is created, and never if that
// meets a conflict.
func (r *rollout) untold(was appsv1.DeploymentCondition) bool {
	notes := r.fresh.seen.Annotations
	_, reused := notes[historyNote]
	known := notes[revisionNote] == r.deployment.Annotations[revisionNote] || strings.Contains(was.Message, strconv.Quote(r.newName()))
	quiet := was.Reason == "" || was.Reason == reasonPaused || was.Reason == reasonResumed
	return !quiet && !reused && !known
}

// progress returns the conditions of a status with what it says, compared with the status
// before, about the progress of the rollout.
//
// Upstream: pkg/controller/deployment/progress.go, syncRolloutStatus. A rollout
// that was completed is not judged again as long as only pods of the present
// template are there.
func (r *rollout) progress(before, status appsv1.DeploymentStatus) []appsv1.DeploymentCondition {
	d, have := r.deployment, status.Conditions
	limit, limited := deadline(d)
	was, there := find(before.Conditions, appsv1.DeploymentProgressing)
	settled := status.Replicas == status.UpdatedReplicas && was.Reason == reasonComplete
	switch {
	case !limited:
		have = without(have, appsv1.DeploymentProgressing)
	case settled:
	case complete(d, status):
		have = r.tell(have, r.saying(corev1.ConditionTrue, reasonComplete, "has successfully progressed"))
	case advanced(before, status):
		have = r.renew(have, r.saying(corev1.ConditionTrue, reasonUpdated, "is progressing"))
	case there && was.Reason != reasonComplete && !r.now.Before(was.LastUpdateTime.Add(limit)):
		have = r.tell(have, r.saying(corev1.ConditionFalse, reasonTimedOut, "has timed out progressing"))
	}
	return r.failures(have)
}

// saying returns the condition Progressing about the new set, or about the Deployment
// while it has no new set.
func (r *rollout) saying(status corev1.ConditionStatus, reason, what string) condition {
	message := fmt.Sprintf("Deployment %q %s.", r.deployment.Name, what)
	if name := r.newName(); name != "" {
		message = fmt.Sprintf("ReplicaSet %q %s.", name, what)
	}
	return condition{appsv1.DeploymentProgressing, status, reason, message}
}

// newName returns the name of the new set, also while it is being created.
func (r *rollout) newName() string {
	if r.fresh != nil {
		return r.fresh.seen.Name
	}
	return r.begun
}

// advanced reports whether there are more new pods, fewer old ones, or more pods that are
// ready or available.
func advanced(before, after appsv1.DeploymentStatus) bool {
	return after.UpdatedReplicas > before.UpdatedReplicas ||
		after.Replicas-after.UpdatedReplicas < before.Replicas-before.UpdatedReplicas ||
		after.ReadyReplicas > before.ReadyReplicas ||
		after.AvailableReplicas > before.AvailableReplicas
}

// failures returns the conditions with the first ReplicaFailure of a set; the new set comes first.
func (r *rollout) failures(have []appsv1.DeploymentCondition) []appsv1.DeploymentCondition {
	sets := r.old
	if r.fresh != nil {
		sets = append([]*set{r.fresh}, r.old...)
	}
	for _, s := range sets {
		for _, c := range s.seen.Status.Conditions {
			if c.Type != appsv1.ReplicaSetReplicaFailure {
				continue
			}
			was, there := find(have, appsv1.DeploymentReplicaFailure)
			if there && was.Status == c.Status && was.Reason == c.Reason {
				return have
			}
			since := c.LastTransitionTime
			if there && was.Status == c.Status {
				since = was.LastTransitionTime
			}
			return append(without(have, appsv1.DeploymentReplicaFailure), appsv1.DeploymentCondition{
				Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
				LastUpdateTime: c.LastTransitionTime, LastTransitionTime: since,
			})
		}
	}
	return without(have, appsv1.DeploymentReplicaFailure)
}

// nextCheck requests a wake at the deadline.
//
// Upstream: pkg/controller/deployment/progress.go, requeueStuckDeployment, a
// second later, and also when the rollout was completed and there is nothing to
// say then.
func (r *rollout) nextCheck(status appsv1.DeploymentStatus) reconcile.Decision {
	limit, limited := deadline(r.deployment)
	c, there := find(status.Conditions, appsv1.DeploymentProgressing)
	if !limited || !there || c.Reason == reasonComplete || c.Reason == reasonTimedOut {
		return reconcile.Decision{}
	}
	return reconcile.Wake(c.LastUpdateTime.Add(limit), "the rollout has a deadline")
}

// progressing writes the condition Progressing and nothing else.
func (r *rollout) progressing(status corev1.ConditionStatus, reason, message string) reconcile.Decision {
	if _, limited := deadline(r.deployment); !limited {
		return reconcile.Decision{}
	}
	was, there := find(r.deployment.Status.Conditions, appsv1.DeploymentProgressing)
	if there && was.Status == status && was.Reason == reason {
		return reconcile.Decision{}
	}
	seen := reported(r.deployment)
	seen.Status.Conditions = r.renew(seen.Status.Conditions, condition{appsv1.DeploymentProgressing, status, reason, message})
	return reconcile.Do("the rollout cannot start", reconcile.UpdateStatus(kinds.Deployments.Kind, seen))
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
