// Package replicationcontroller keeps as many pods running as each ReplicationController wants.
// Package [replicas] treats it as an older kind of ReplicaSet: its selector is a plain map, its
// status does not count terminating pods, and it has no sibling sets.
package replicationcontroller

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the ReplicationController controller under the default feature gates.
var Controller = New(nil)

// New returns the controller under feature gates that differ from their defaults.
func New(gates gate.Set) reconcile.Controller[replicas.View] {
	gates = gates.Of(gate.PodDeletionCost)
	sets := replicas.Sets[*corev1.ReplicationController]{
		Kind:       kinds.ReplicationControllers,
		ReplicaSet: replicaSet,
		With:       reported,
		Gates:      gates,
	}
	return reconcile.Controller[replicas.View]{
		Name:        "replicationcontroller-controller",
		Aliases:     []string{"replicationcontroller"},
		Identity:    "replication-controller",
		Source:      "replication-controller",
		Queue:       "replicationmanager",
		Owns:        &kinds.ReplicationControllers.Kind,
		Inputs:      sets.Inputs(),
		Writes:      sets.Writes(),
		Events:      sets.Events(),
		Settings:    gates.Settings(),
		StatusBlind: true,
		Metrics:     replicas.Metrics(),
		Observe:     sets.Observe,
		Decide:      sets.Decide,
		AsGood:      replicas.AsGood,
	}
}

// replicaSet converts a ReplicationController to a ReplicaSet.
//
// Upstream: pkg/controller/replication/conversion.go. A missing template, which
// the API does not allow, is one without labels: nothing can be created of it.
func replicaSet(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec: appsv1.ReplicaSetSpec{
			Replicas: rc.Spec.Replicas, MinReadySeconds: rc.Spec.MinReadySeconds,
			Selector: &metav1.LabelSelector{MatchLabels: rc.Spec.Selector},
		},
		Status: appsv1.ReplicaSetStatus{
			Replicas: rc.Status.Replicas, FullyLabeledReplicas: rc.Status.FullyLabeledReplicas,
			ReadyReplicas: rc.Status.ReadyReplicas, AvailableReplicas: rc.Status.AvailableReplicas,
			ObservedGeneration: rc.Status.ObservedGeneration,
		},
	}
	if rc.Spec.Template != nil {
		set.Spec.Template = *rc.Spec.Template
	}
	for _, c := range rc.Status.Conditions {
		set.Status.Conditions = append(set.Status.Conditions, appsv1.ReplicaSetCondition{
			Type: appsv1.ReplicaSetConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return set
}

// reported converts a set with another status back to a ReplicationController.
func reported(set *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) metav1.Object {
	rc := &corev1.ReplicationController{
		TypeMeta:   metav1.TypeMeta{APIVersion: kinds.ReplicationControllers.APIVersion(), Kind: kinds.ReplicationControllers.Kind.Kind},
		ObjectMeta: set.ObjectMeta,
		Spec: corev1.ReplicationControllerSpec{
			Replicas: set.Spec.Replicas, MinReadySeconds: set.Spec.MinReadySeconds, Template: &set.Spec.Template,
		},
		Status: corev1.ReplicationControllerStatus{
			Replicas: status.Replicas, FullyLabeledReplicas: status.FullyLabeledReplicas,
			ReadyReplicas: status.ReadyReplicas, AvailableReplicas: status.AvailableReplicas,
			ObservedGeneration: status.ObservedGeneration,
		},
	}
	if set.Spec.Selector != nil {
		rc.Spec.Selector = set.Spec.Selector.MatchLabels
	}
	for _, c := range status.Conditions {
		rc.Status.Conditions = append(rc.Status.Conditions, corev1.ReplicationControllerCondition{
			Type: corev1.ReplicationControllerConditionType(c.Type), Status: c.Status,
			LastTransitionTime: c.LastTransitionTime, Reason: c.Reason, Message: c.Message,
		})
	}
	return rc
}
