package rules

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/access"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/devices"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/nodes"
	"github.com/millrace/millrace/test/sim/storage"
	"github.com/millrace/millrace/test/sim/workloads"
)

// AsAsked is the first thing in a world at rest that is not as its specs ask.
func AsAsked(w *cluster.Cluster) error {
	pods, sets := map[types.UID]int{}, map[types.UID][]*appsv1.ReplicaSet{}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil {
			continue
		}
		if cluster.Active(pod) {
			pods[owner.UID]++
		}
		if ref, known := w.API.OwnerRef(owner, pod.Namespace); known && w.API.Get(ref) == nil {
			return fmt.Errorf("pod %s outlived its owner %s", pod.Name, owner.Name)
		}
	}
	for _, obj := range w.API.List(kinds.ReplicaSets.Name) {
		rs := obj.(*appsv1.ReplicaSet)
		if err := workloads.Filled(rs, pods[rs.UID]); err != nil {
			return err
		}
		if owner := metav1.GetControllerOfNoCopy(rs); owner != nil {
			if w.API.Get(events.Ref{Kind: kinds.Deployments.Name, Namespace: rs.Namespace, Name: owner.Name}) == nil {
				return fmt.Errorf("%s outlived its owner %s", rs.Name, owner.Name)
			}
			sets[owner.UID] = append(sets[owner.UID], rs)
		}
	}
	for _, obj := range w.API.List(kinds.Deployments.Name) {
		if err := workloads.RolledOut(obj.(*appsv1.Deployment), sets[obj.GetUID()]); err != nil {
			return err
		}
	}
	if err := workloads.Budgeted(w); err != nil {
		return err
	}
	for _, look := range []func(*cluster.Cluster) error{
		func(c *cluster.Cluster) error { return workloads.ControllersFilled(c, pods) }, func(c *cluster.Cluster) error { return workloads.StatefulFilled(c, pods) }, workloads.DaemonsFilled,
		func(c *cluster.Cluster) error { return workloads.WorksDone(c, pods) }, workloads.RunsKept, workloads.RunsMade, network.Published, network.Mirrored, tended, storage.Claimed, metadata.WithinLimits, access.Tokened, workloads.Autoscaled, metadata.WrittenDown, access.TokensGone, nodes.SettledNodes,
		storage.Bound, network.InRanges, access.RequestsAnswered, devices.DevicesSettled, access.Joinable, network.Grouped, metadata.MigrationsOver, devices.PoolsAnswered, storage.WarnedOfConflicts,
	} {
		if err := look(w); err != nil {
			return err
		}
	}
	return metadata.Furnished(w)
}

// tended reports whether nodes, volumes, claims, roles and pods are as they should be.
func tended(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.Nodes.Name) {
		if w.Promises["ttl-controller"] == nil {
			break
		}
		if told := obj.GetAnnotations()[corev1.ObjectTTLAnnotationKey]; told != "0" {
			return fmt.Errorf("%s is told to keep secrets for %q s", obj.GetName(), told)
		}
	}
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if pod.Spec.NodeName != "" && w.API.Of(kinds.Nodes.Name) != nil && w.API.Get(cluster.NodeRef(pod.Spec.NodeName)) == nil {
			return fmt.Errorf("pod %s is left on node %s, which is gone", pod.Name, pod.Spec.NodeName)
		}
		if n, _ := w.API.Get(cluster.NodeRef(pod.Spec.NodeName)).(*corev1.Node); pod.DeletionTimestamp != nil && n != nil && nodes.Silenced(n) && !nodes.WellSaid(n) {
			return fmt.Errorf("pod %s is to go and is left on node %s, which is out of service", pod.Name, pod.Spec.NodeName)
		}
	}
	if err := storage.Protected(w); err != nil {
		return err
	}
	return metadata.Aggregated(w)
}

// Unanswered is a question that has no answer yet, in a world in which nothing is under way.
func Unanswered(w *cluster.Cluster) error {
	for _, look := range []func(*cluster.Cluster) error{access.RequestsAnswered, access.Joinable, devices.PoolsAnswered, storage.WarnedOfConflicts} {
		if err := look(w); err != nil {
			return err
		}
	}
	return nil
}
