package workloads

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
)

func surge(d *appsv1.Deployment) int {
	if d.Spec.Strategy.RollingUpdate == nil {
		return 0
	}
	n, _ := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, int(*d.Spec.Replicas), true)
	return n
}

// asksFor is the most live pods or replicas that an object asks for; ok is false for one that
// asks for no number.
func asksFor(obj metav1.Object) (n int, ok bool) {
	switch o := obj.(type) {
	case *appsv1.ReplicaSet:
		return int(*o.Spec.Replicas), true
	case *corev1.ReplicationController:
		return int(*o.Spec.Replicas), true
	case *appsv1.StatefulSet:
		return int(*o.Spec.Replicas), true
	case *appsv1.Deployment:
		return int(*o.Spec.Replicas) + surge(o), true
	case *batchv1.Job:
		return atOnce(o), true
	default:
		return 0, false
	}
}

// ReplicasJudged judges a ReplicaSet or a ReplicationController: it creates no surplus pod,
// deletes only surplus pods, and deletes no ready pod while it keeps one that is not ready.
//
// Upstream: pkg/controller, ActivePods and ActivePodsWithRanks; a pod that has no node, is
// pending, or is not ready, comes before any that is ready.
func ReplicasJudged(l *cluster.Look, f cluster.Findings) {
	asked, ok := asksFor(l.Own)
	gone, created := l.Deletes(kinds.Pods.Name), len(l.Creates(kinds.Pods.Name))
	if !ok || len(gone)+created == 0 {
		return
	}
	mine := l.Live()
	if l.Own.GetDeletionTimestamp() != nil {
		f.Breaks("I4", "creates %d pods and deletes %d of an owner on its way out", created, len(gone))
	}
	kept := len(mine) - len(gone)
	switch {
	case created > 0 && len(mine)+created > asked:
		f.Breaks("I2", "creates %d pods; it has %d and asks for %d", created, len(mine), asked)
	case len(gone) > 0 && kept < asked:
		f.Breaks("I4", "deletes %d of %d pods, and asks for %d", len(gone), len(mine), asked)
	}
	strangers(gone, mine, f)
	for _, p := range mine {
		other := slices.IndexFunc(mine, func(q *corev1.Pod) bool { return !gone[q.UID] && !cluster.Ready(q) })
		if gone[p.UID] && cluster.Ready(p) && other >= 0 {
			f.Breaks("I5", "deletes %s, which is ready, and keeps %s, which is not", p.Name, mine[other].Name)
		}
	}
}

// strangers reports deleted pods that are not among those that may be deleted.
func strangers(gone map[types.UID]bool, mine []*corev1.Pod, f cluster.Findings) {
	for uid := range gone {
		if !slices.ContainsFunc(mine, func(p *corev1.Pod) bool { return p.UID == uid }) {
			f.Breaks("I4", "deletes a pod %s that is not a live one of its own", uid)
		}
	}
}

// Filled reports whether a ReplicaSet has the pods that it asks for, and its status says so.
func Filled(rs *appsv1.ReplicaSet, pods int) error {
	switch {
	case rs.DeletionTimestamp != nil:
		return fmt.Errorf("%s is still on its way out", rs.Name)
	case pods != int(*rs.Spec.Replicas):
		return fmt.Errorf("%s has %d live pods and asks for %d", rs.Name, pods, *rs.Spec.Replicas)
	case rs.Status.Replicas != *rs.Spec.Replicas || rs.Status.ObservedGeneration != rs.Generation:
		return fmt.Errorf("%s says %d replicas at generation %d; it has %d at %d", rs.Name, rs.Status.Replicas, rs.Status.ObservedGeneration, *rs.Spec.Replicas, rs.Generation)
	default:
		return nil
	}
}

// RolledOut reports whether a Deployment is as its spec asks.
func RolledOut(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) error {
	if d.DeletionTimestamp != nil {
		return fmt.Errorf("%s is still on its way out", d.Name)
	}
	if d.Status.ObservedGeneration != d.Generation {
		return fmt.Errorf("%s reports generation %d of %d", d.Name, d.Status.ObservedGeneration, d.Generation)
	}
	total, past := int32(0), 0 // of the past: sets without pods, since others cannot go
	for _, rs := range sets {
		total += *rs.Spec.Replicas
		current := rs.Spec.Template.Spec.Containers[0].Image == d.Spec.Template.Spec.Containers[0].Image
		if !current && *rs.Spec.Replicas == 0 {
			past++
		}
		if !d.Spec.Paused && !current && *rs.Spec.Replicas > 0 {
			return fmt.Errorf("%s still has %d replicas of an old template in %s", d.Name, *rs.Spec.Replicas, rs.Name)
		}
	}
	if past > int(*d.Spec.RevisionHistoryLimit) {
		return fmt.Errorf("%s has kept %d replica sets of the past, and is to keep %d", d.Name, past, *d.Spec.RevisionHistoryLimit)
	}
	if !d.Spec.Paused && (total != *d.Spec.Replicas || d.Status.AvailableReplicas != total || d.Status.UpdatedReplicas != total) {
		return fmt.Errorf("%s wants %d, its replica sets %d; it says %d available and %d updated", d.Name, *d.Spec.Replicas, total, d.Status.AvailableReplicas, d.Status.UpdatedReplicas)
	}
	return nil
}
