package workloads_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/workloads"
)

// TestTheOracleBites tests the comparison itself: it must detect a controller with one small fault.
func TestTheOracleBites(t *testing.T) {
	for name, m := range deploymentMutants() {
		t.Run("deployment "+name, func(t *testing.T) {
			oracletest.Noticed(t, workloads.Deployment, m, deploymentKey, deploymentWorld)
		})
	}
	for name, m := range replicaSetMutants() {
		t.Run("replica set "+name, func(t *testing.T) {
			oracletest.Noticed(t, workloads.ReplicaSet, m, replicaSetKey, replicaSetWorld)
		})
	}
}

func deploymentMutants() map[string]oracletest.Mutant {
	seeing := func(change func(*appsv1.Deployment)) oracletest.Mutant {
		return oracletest.Mutant{Mask: func(w *reconciletest.World) { oracletest.Each(w, kinds.Deployments, change) }}
	}
	rolling := func(change func(*appsv1.RollingUpdateDeployment)) oracletest.Mutant {
		return seeing(func(d *appsv1.Deployment) {
			if r := d.Spec.Strategy.RollingUpdate; r != nil {
				change(r)
			}
		})
	}
	return map[string]oracletest.Mutant{
		"wants one more":       seeing(func(d *appsv1.Deployment) { *d.Spec.Replicas++ }),
		"has no surge":         rolling(func(r *appsv1.RollingUpdateDeployment) { r.MaxSurge = oracletest.Ptr(intstr.FromInt32(0)) }),
		"may miss one more":    rolling(func(r *appsv1.RollingUpdateDeployment) { r.MaxUnavailable = oracletest.Ptr(intstr.FromInt32(4)) }),
		"sees no pause":        seeing(func(d *appsv1.Deployment) { d.Spec.Paused = false }),
		"has a later deadline": seeing(func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = oracletest.Ptr(int32(700)) }),
		"keeps one more":       seeing(func(d *appsv1.Deployment) { *d.Spec.RevisionHistoryLimit++ }),
		"sees no deletion":     seeing(func(d *appsv1.Deployment) { d.DeletionTimestamp = nil }),
		"sees no notes":        seeing(func(d *appsv1.Deployment) { d.Annotations = nil }),
		"sees no collisions":   seeing(func(d *appsv1.Deployment) { d.Status.CollisionCount = nil }),
		"waits for minutes":    seeing(func(d *appsv1.Deployment) { d.Spec.MinReadySeconds += 60 }),
		"sees no set fail": {Mask: func(w *reconciletest.World) {
			oracletest.Each(w, kinds.ReplicaSets, func(rs *appsv1.ReplicaSet) { rs.Status.Conditions = nil })
		}},
		"sees every pod gone": {Mask: func(w *reconciletest.World) {
			oracletest.Each(w, kinds.Pods, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
		}},
		"is a second late":       {Late: time.Second},
		"forgets the last":       {Garble: oracletest.ForgetLast},
		"tells no user":          {Garble: oracletest.TellNothing},
		"says it in other words": {Garble: oracletest.Replace("minimum availability", "some availability")},
		"is no owner's":          {Garble: oracletest.Replace(`"controller":true`, `"controller":false`)},
	}
}

func replicaSetMutants() map[string]oracletest.Mutant {
	seeing := func(change func(*appsv1.ReplicaSet)) oracletest.Mutant {
		return oracletest.Mutant{Mask: func(w *reconciletest.World) { oracletest.Each(w, kinds.ReplicaSets, change) }}
	}
	pods := func(change func(*corev1.Pod)) oracletest.Mutant {
		return oracletest.Mutant{Mask: func(w *reconciletest.World) { oracletest.Each(w, kinds.Pods, change) }}
	}
	return map[string]oracletest.Mutant{
		"wants one more":       seeing(func(rs *appsv1.ReplicaSet) { *rs.Spec.Replicas++ }),
		"waits a second more":  seeing(func(rs *appsv1.ReplicaSet) { rs.Spec.MinReadySeconds++ }),
		"sees no deletion":     seeing(func(rs *appsv1.ReplicaSet) { rs.DeletionTimestamp = nil }),
		"sees no cost":         pods(func(p *corev1.Pod) { p.Annotations = nil }),
		"sees no restarts":     pods(func(p *corev1.Pod) { p.Status.ContainerStatuses = nil }),
		"sees no node":         pods(func(p *corev1.Pod) { p.Spec.NodeName = "" }),
		"sees no age":          pods(func(p *corev1.Pod) { p.CreationTimestamp.Reset() }),
		"sees nothing leave":   pods(func(p *corev1.Pod) { p.DeletionTimestamp = nil }),
		"sees nothing ready":   pods(func(p *corev1.Pod) { p.Status.Conditions = nil }),
		"forgets the last":     {Garble: oracletest.ForgetLast},
		"tells no user":        {Garble: oracletest.TellNothing},
		"has another template": {Garble: oracletest.Replace("web:v", "web:x")},
	}
}

func TestDeploymentDecidesAsUpstreamDoes(t *testing.T) {
	oracletest.Agree(t, workloads.Deployment, deploymentKey, deploymentWorld, gate.DeploymentReplicaSetTerminatingReplicas)
}

func TestReplicaSetDecidesAsUpstreamDoes(t *testing.T) {
	oracletest.Agree(t, workloads.ReplicaSet, replicaSetKey, replicaSetWorld, gate.PodDeletionCost, gate.DeploymentReplicaSetTerminatingReplicas)
}
