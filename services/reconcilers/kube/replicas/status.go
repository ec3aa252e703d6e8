package replicas

import (
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/label"
	"github.com/millrace/millrace/services/reconcilers/kube/names"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// report writes the status if it differs.
func (s Sets[T]) report(v View, claim owner.Claim[*corev1.Pod], selector labels.Selector, now time.Time) reconcile.Decision {
	status := v.count(claim.Mine, selector, now)
	if !s.CountsLeaving || !v.Gates.On(gate.DeploymentReplicaSetTerminatingReplicas) {
		status.TerminatingReplicas = nil
	}
	status.Conditions = v.conditions(claim, now)
	status.ObservedGeneration = v.Set.Generation
	if equality.Semantic.DeepEqual(status, v.Set.Status) {
		return reconcile.Decision{}
	}
	d := reconcile.Do("the status has changed", reconcile.UpdateStatus(s.Kind.Kind, s.With(v.Set, status)))
	d.Passing = v.passing(status)
	return d
}

// passing reports whether a status is an intermediate one that no reader waits for: not all
// pods exist and are available, and nothing else in the status is new. During a rollout a
// Deployment does wait for the status of each of its sets.
func (v View) passing(status appsv1.ReplicaSetStatus) bool {
	was, wanted := v.Set.Status, int32(v.wanted())
	if desired, rolls := v.Set.Annotations[DesiredNote]; rolls && desired != strconv.Itoa(int(wanted)) {
		return false
	}
	return (status.Replicas != wanted || status.AvailableReplicas != wanted) &&
		status.ObservedGeneration == was.ObservedGeneration && len(status.Conditions) == len(was.Conditions)
}

// count computes the numbers of the status.
//
// Upstream: pkg/controller/replicaset/replica_set_utils.go, calculateStatus.
func (v View) count(mine []*corev1.Pod, selector labels.Selector, now time.Time) appsv1.ReplicaSetStatus {
	var terminating int32
	for _, p := range v.Pods {
		if pod.Terminating(p) && owner.Controls(v.Set, p) && selector.Matches(labels.Set(p.Labels)) {
			terminating++
		}
	}
	status := appsv1.ReplicaSetStatus{Replicas: int32(len(mine)), TerminatingReplicas: &terminating}
	for _, p := range mine {
		if label.Covers(p.Labels, v.Set.Spec.Template.Labels) {
			status.FullyLabeledReplicas++
		}
		if pod.Ready(p) {
			status.ReadyReplicas++
		}
		if v.available(p, now) {
			status.AvailableReplicas++
		}
	}
	return status
}

// conditions are the set's conditions, with ReplicaFailure while creates or deletes fail.
//
// Upstream: as long as the condition is there it keeps the words and the time of
// the first failure.
func (v View) conditions(claim owner.Claim[*corev1.Pod], now time.Time) []appsv1.ReplicaSetCondition {
	had := v.Set.Status.Conditions
	told := slices.ContainsFunc(had, isReplicaFailure)
	reason, message, failed := v.trouble(claim)
	switch {
	case len(claim.Commands) > 0, failed == told:
		return had
	case told:
		return slices.DeleteFunc(slices.Clone(had), isReplicaFailure)
	}
	return append(slices.Clone(had), appsv1.ReplicaSetCondition{
		Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)), Reason: reason, Message: message,
	})
}

func isReplicaFailure(c appsv1.ReplicaSetCondition) bool {
	return c.Type == appsv1.ReplicaSetReplicaFailure
}

// trouble is why the number of pods is still wrong, if the reason is a failure.
func (v View) trouble(claim owner.Claim[*corev1.Pod]) (reason, message string, failed bool) {
	surplus := len(claim.Mine) - v.wanted()
	switch {
	case v.Set.DeletionTimestamp != nil, surplus == 0:
		return "", "", false
	case surplus < 0 && !v.fertile():
		return "FailedCreate", "unable to create pods, no labels", true
	case v.Failure == nil || !v.Failure.serious():
		return "", "", false
	case surplus < 0 && v.failedCreate():
		return "FailedCreate", v.Failure.Result.Message, true
	case surplus > 0 && v.failedDeletion():
		return "FailedDelete", "unable to delete pods: " + v.Failure.Result.Message, true
	default:
		return "", "", false
	}
}

// serious reports whether the API server prevented the change. After a conflict, or a turn
// that came too late to be carried out, the next turn sees more.
//
// Upstream: what fails because the namespace is going away counts as done.
func (f *Failure) serious() bool {
	switch r := f.Result; r.Status {
	case events.Failed:
		return true
	case events.Conflict:
		return false
	default:
		return r.Code != 0 && r.Cause != string(corev1.NamespaceTerminatingCause)
	}
}

// failedCreate reports whether the failure was that of a create: no pod has the name, and
// the name is one that the set gives. The turn need not be of the same kind as the present
// one, because the wanted number may have changed since.
func (v View) failedCreate() bool {
	name := v.Failure.Result.Ref.Name
	return names.Derives(v.Set.Name, name) && !v.sees(name)
}

// failedDeletion reports whether the failure may have been that of a delete: the pod still
// exists.
func (v View) failedDeletion() bool {
	return v.Failure.Result.Status != events.Absent && v.sees(v.Failure.Result.Ref.Name)
}

func (v View) sees(name string) bool {
	return slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == name })
}
