// Package replicaset keeps as many pods running as each ReplicaSet wants. Package
// [replicas] implements this for ReplicaSets and ReplicationControllers alike.
package replicaset

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/replicas"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the ReplicaSet controller under the default feature gates.
var Controller = New(nil)

// New returns the controller under feature gates that differ from their defaults.
func New(gates gate.Set) reconcile.Controller[replicas.View] {
	gates = gates.Of(gate.PodDeletionCost, gate.DeploymentReplicaSetTerminatingReplicas)
	sets := replicas.Sets[*appsv1.ReplicaSet]{
		Kind:          kinds.ReplicaSets,
		ReplicaSet:    func(set *appsv1.ReplicaSet) *appsv1.ReplicaSet { return set },
		With:          reported,
		CountsLeaving: true,
		Siblings:      true,
		Gates:         gates,
	}
	return reconcile.Controller[replicas.View]{
		Name:        "replicaset-controller",
		Aliases:     []string{"replicaset"},
		Queue:       "replicaset",
		Owns:        &kinds.ReplicaSets.Kind,
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

func reported(set *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) metav1.Object {
	with := *set // shallow: the parts are only read
	with.TypeMeta = metav1.TypeMeta{APIVersion: kinds.ReplicaSets.APIVersion(), Kind: kinds.ReplicaSets.Kind.Kind}
	with.Status = status
	return &with
}
