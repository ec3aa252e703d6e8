package workloads

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Daemons is what users do with DaemonSets, and what happens to nodes.
var Daemons = []cluster.Operation{
	nodes.NewNode, nodes.NewNode, nodes.NewNode, nodes.DeleteNode, closeNode, closeNode, newDaemons, newDaemons, newDaemons, rollDaemons, rollDaemons, rollDaemons,
	deleteDaemons, cluster.DeletePod, cluster.DeletePod, cluster.FailPod, cluster.FailPod, cluster.ReleasePod,
}

func someDaemons(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.DaemonSets.Kind, "agent", func(name string) any { return AnyDaemons(w, name) })
}

// AnyDaemons is a set that may miss a pod or two during a rolling update, or have two on a
// node.
func AnyDaemons(w *cluster.Cluster, name string) *appsv1.DaemonSet {
	labels := map[string]string{"app": name}
	surge, unavailable := intstr.FromInt32(0), intstr.FromInt32(int32(1+w.Roll(2)))
	if w.Roll(2) == 1 {
		surge, unavailable = unavailable, surge
	}
	return &appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, RevisionHistoryLimit: new(int32(1)),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "agent:v0"}}},
			},
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type: appsv1.RollingUpdateDaemonSetStrategyType, RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: &surge, MaxUnavailable: &unavailable},
			},
		},
	}
}

func newDaemons(w *cluster.Cluster) { someDaemons(w) }

func rollDaemons(w *cluster.Cluster) {
	if ref, there := someDaemons(w); there {
		image := fmt.Sprintf("agent:v%d", w.Roll(3))
		w.Note("user: set image of %v to %s", ref, image)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*appsv1.DaemonSet).Spec.Template.Spec.Containers[0].Image = image })
	}
}

func deleteDaemons(w *cluster.Cluster) {
	if ref, there := someDaemons(w); there {
		w.Delete(ref, cluster.Propagations[w.Roll(3)])
	}
}

// closeNode taints a node against new pods, or against all pods, or removes the taint.
func closeNode(w *cluster.Cluster) {
	if ref, there := nodes.SomeNode(w); there {
		effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute}
		effect := effects[w.Roll(3)]
		w.Note("user: taint %v: %q", ref, effect)
		w.API.Change(ref, func(obj metav1.Object) {
			if node := obj.(*corev1.Node); effect == "" {
				node.Spec.Taints = nil
			} else {
				node.Spec.Taints = []corev1.Taint{{Key: "example.com/closed", Effect: effect}}
			}
		})
	}
}

// daemonOf is the DaemonSet and the node of a live pod.
func daemonOf(w *cluster.Cluster, obj metav1.Object) (set *appsv1.DaemonSet, node string, ok bool) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || !cluster.Active(pod) {
		return nil, "", false
	}
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "DaemonSet" {
		return nil, "", false
	}
	ref := events.Ref{Kind: kinds.DaemonSets.Name, Namespace: pod.Namespace, Name: owner.Name}
	set, ok = w.API.Get(ref).(*appsv1.DaemonSet)
	return set, nodes.BoundNode(pod), ok && set.UID == owner.UID
}

// Daemon checks the creation of a pod of a DaemonSet: its node has no other live one or, if two
// are allowed, one other with another template.
func Daemon(g *cluster.Guard, old, now metav1.Object) {
	set, node, ok := daemonOf(g.World, now)
	if !ok || old != nil || g.Record.Restoring {
		return
	}
	most := 1
	if set.Spec.UpdateStrategy.RollingUpdate.MaxSurge.IntVal > 0 {
		most = 2
	}
	has := daemonsOn(g.World, set, node)
	if len(has) > most {
		g.Breaks("I2", "%s is pod number %d of %s on %s", now.GetName(), len(has), set.Name, node)
	}
	for _, other := range has {
		if other.UID != now.GetUID() && cluster.ImageOfPod(other) == cluster.ImageOfPod(now.(*corev1.Pod)) {
			g.Breaks("I2", "%s is created beside %s, which is of the same template", now.GetName(), other.Name)
		}
	}
}

// daemonsOn are the live pods of a DaemonSet on a node.
func daemonsOn(w *cluster.Cluster, set *appsv1.DaemonSet, node string) (all []*corev1.Pod) {
	for _, obj := range w.API.List(kinds.Pods.Name) {
		if of, at, ok := daemonOf(w, obj); ok && of.UID == set.UID && at == node {
			all = append(all, obj.(*corev1.Pod))
		}
	}
	return all
}

// DaemonsFilled reports whether every node has the pods that each DaemonSet wants there, and the
// sets' statuses say so.
func DaemonsFilled(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.DaemonSets.Name) {
		set := obj.(*appsv1.DaemonSet)
		if set.DeletionTimestamp != nil {
			return fmt.Errorf("%s is still on its way out", set.Name)
		}
		desired := int32(0)
		for _, obj := range w.API.List(kinds.Nodes.Name) {
			node := obj.(*corev1.Node)
			pods, effect := daemonsOn(w, set, node.Name), closed(node)
			switch {
			case effect == "" && len(pods) != 1, effect == corev1.TaintEffectNoSchedule && len(pods) > 1, effect == corev1.TaintEffectNoExecute && len(pods) > 0:
				return fmt.Errorf("%s has %d live pods on %s, which is closed by %q", set.Name, len(pods), node.Name, effect)
			case effect != "":
				continue
			case cluster.ImageOf(set.Spec.Template) != pods[0].Spec.Containers[0].Image:
				return fmt.Errorf("%s still runs %s on %s, and wants %s", set.Name, pods[0].Spec.Containers[0].Image, node.Name, cluster.ImageOf(set.Spec.Template))
			}
			desired++
		}
		s := set.Status
		if s.DesiredNumberScheduled != desired || s.NumberAvailable != desired || s.UpdatedNumberScheduled != desired || s.ObservedGeneration != set.Generation {
			return fmt.Errorf("%s says %+v at generation %d, and is to have %d pods", set.Name, s, set.Generation, desired)
		}
	}
	return nil
}

func closed(node *corev1.Node) corev1.TaintEffect {
	if len(node.Spec.Taints) == 0 {
		return ""
	}
	return node.Spec.Taints[0].Effect
}
