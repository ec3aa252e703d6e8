package workloads

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/nodes"
)

// Sets is what users do with ReplicationControllers and StatefulSets.
var Sets = []cluster.Operation{
	ScaleController, ScaleController, deleteController, scaleStateful, scaleStateful, scaleStateful, rollStateful, rollStateful,
	deleteStateful, cluster.DeletePod, cluster.DeletePod, cluster.FailPod, cluster.ReleasePod,
}

// SomeController is one of the ReplicationControllers; it is created if it does not exist.
func SomeController(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.ReplicationControllers.Kind, "rc", func(name string) any {
		labels := map[string]string{"app": name}
		return &corev1.ReplicationController{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
			Spec: corev1.ReplicationControllerSpec{
				Replicas: new(int32(w.Roll(5))), Selector: labels,
				Template: &corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:v0"}}},
				},
			},
		}
	})
}

// ScaleController scales a ReplicationController.
func ScaleController(w *cluster.Cluster) {
	if ref, there := SomeController(w); there {
		n := int32(w.Roll(6))
		w.Note("user: scale %v to %d", ref, n)
		w.API.Change(ref, func(obj metav1.Object) { obj.(*corev1.ReplicationController).Spec.Replicas = &n })
	}
}

func deleteController(w *cluster.Cluster) {
	if ref, there := SomeController(w); there {
		w.Delete(ref, cluster.Propagations[w.Roll(3)])
	}
}

func someStateful(w *cluster.Cluster) (events.Ref, bool) {
	return w.SomeOf(kinds.StatefulSets.Kind, "db", func(name string) any { return AnyStateful(w, name) })
}

// AnyStateful is a StatefulSet of a random shape.
func AnyStateful(w *cluster.Cluster, name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(w.Roll(4))), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "db:v0"}}},
			},
			PodManagementPolicy: appsv1.OrderedReadyPodManagement, RevisionHistoryLimit: new(int32(2)),
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{
				Type: appsv1.RollingUpdateStatefulSetStrategyType, RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32(0))},
			},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.RetainPersistentVolumeClaimRetentionPolicyType,
			},
		},
	}
	if w.Roll(3) == 1 {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	if w.Roll(2) == 1 {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	}
	if w.Roll(3) == 1 {
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	if w.Roll(3) == 1 {
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return set
}

// Stateful changes a StatefulSet.
func Stateful(w *cluster.Cluster, name string, change func(*appsv1.StatefulSet)) {
	w.API.Change(statefulRef(name), func(obj metav1.Object) { change(obj.(*appsv1.StatefulSet)) })
}

func statefulRef(name string) events.Ref {
	return events.Ref{Kind: kinds.StatefulSets.Name, Namespace: cluster.Namespace, Name: name}
}

func scaleStateful(w *cluster.Cluster) {
	if ref, there := someStateful(w); there {
		n := int32(w.Roll(5))
		w.Note("user: scale %v to %d", ref, n)
		Stateful(w, ref.Name, func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n })
	}
}

func rollStateful(w *cluster.Cluster) {
	if ref, there := someStateful(w); there {
		image, from := fmt.Sprintf("db:v%d", w.Roll(3)), int32(w.Roll(3))
		w.Note("user: set image of %v to %s from %d on", ref, image, from)
		Stateful(w, ref.Name, func(set *appsv1.StatefulSet) {
			set.Spec.Template.Spec.Containers[0].Image = image
			set.Spec.UpdateStrategy.RollingUpdate.Partition = &from
		})
	}
}

func deleteStateful(w *cluster.Cluster) {
	if ref, there := someStateful(w); there {
		how := cluster.Propagations[w.Roll(3)]
		if how == metav1.DeletePropagationForeground && slices.ContainsFunc(w.API.List(kinds.PersistentVolumeClaims.Name), ofAPod) {
			w.Guard.Spare(cluster.ClaimsCircle)
			how = metav1.DeletePropagationBackground
		}
		w.Delete(ref, how)
	}
}

// ofAPod reports whether a claim is deleted with its pod, because its set was scaled down.
func ofAPod(claim metav1.Object) bool {
	return slices.ContainsFunc(claim.GetOwnerReferences(), func(o metav1.OwnerReference) bool { return o.Kind == kinds.Pods.Kind.Kind })
}

// Gather deletes the pods that were taken out of their selectors. Such a pod of a StatefulSet
// keeps its name, and the set waits for it, as upstream's does; one that uses a claim holds the
// claim, and so everything that waits for the claim. The same is true of a pod that was put
// back when its set was already being deleted: the set adopts no more pods.
func Gather(w *cluster.Cluster) {
	for _, pod := range w.API.List(kinds.Pods.Name) {
		if _, away := pod.GetLabels()["was"]; away || cluster.ControllerOf(pod) == "" {
			w.Delete(apiserver.RefOf(kinds.Pods.Name, pod), metav1.DeletePropagationBackground)
		}
	}
}

// ordinalOf is the number of a pod of a StatefulSet.
func ordinalOf(set, pod string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(pod, set+"-"))
	return n, err == nil
}

// ControllersFilled reports whether every ReplicationController has the pods that it asks for.
func ControllersFilled(w *cluster.Cluster, pods map[types.UID]int) error {
	for _, obj := range w.API.List(kinds.ReplicationControllers.Name) {
		rc := obj.(*corev1.ReplicationController)
		switch {
		case rc.DeletionTimestamp != nil:
			return fmt.Errorf("%s is still on its way out", rc.Name)
		case pods[rc.UID] != int(*rc.Spec.Replicas):
			return fmt.Errorf("%s has %d live pods and asks for %d", rc.Name, pods[rc.UID], *rc.Spec.Replicas)
		case rc.Status.Replicas != *rc.Spec.Replicas || rc.Status.ObservedGeneration != rc.Generation:
			return fmt.Errorf("%s says %d replicas at generation %d; it has %d at %d", rc.Name, rc.Status.Replicas, rc.Status.ObservedGeneration, *rc.Spec.Replicas, rc.Generation)
		}
	}
	return nil
}

// StatefulFilled reports whether every StatefulSet has its pods, each with its claims, and its
// status says so.
func StatefulFilled(w *cluster.Cluster, pods map[types.UID]int) error {
	for _, obj := range w.API.List(kinds.StatefulSets.Name) {
		set := obj.(*appsv1.StatefulSet)
		n := *set.Spec.Replicas
		switch {
		case set.DeletionTimestamp != nil:
			return fmt.Errorf("%s is still on its way out", set.Name)
		case pods[set.UID] != int(n):
			return fmt.Errorf("%s has %d live pods and asks for %d", set.Name, pods[set.UID], n)
		case set.Status.Replicas != n || set.Status.ReadyReplicas != n || set.Status.ObservedGeneration != set.Generation:
			return fmt.Errorf("%s says %d replicas, %d ready, at generation %d; it asks for %d at %d", set.Name,
				set.Status.Replicas, set.Status.ReadyReplicas, set.Status.ObservedGeneration, n, set.Generation)
		}
		for i := range int(n) {
			if err := memberOf(w, set, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func memberRef(set *appsv1.StatefulSet, i int) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: cluster.Namespace, Name: fmt.Sprintf("%s-%d", set.Name, i)}
}

func memberOf(w *cluster.Cluster, set *appsv1.StatefulSet, i int) error {
	name := fmt.Sprintf("%s-%d", set.Name, i)
	p, ok := w.API.Get(memberRef(set, i)).(*corev1.Pod)
	switch {
	case !ok || cluster.ControllerOf(p) != set.UID:
		return fmt.Errorf("%s has no member %d", set.Name, i)
	case i >= int(*set.Spec.UpdateStrategy.RollingUpdate.Partition) && cluster.ImageOf(set.Spec.Template) != p.Spec.Containers[0].Image:
		return fmt.Errorf("%s still runs %s, and %s wants %s", name, p.Spec.Containers[0].Image, set.Name, cluster.ImageOf(set.Spec.Template))
	}
	for _, t := range set.Spec.VolumeClaimTemplates {
		// A pod that was adopted without the claim keeps its volumes, which are immutable.
		claim := t.Name + "-" + name
		uses := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
		if uses && w.API.Get(events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: cluster.Namespace, Name: claim}) == nil {
			return fmt.Errorf("%s has no claim %s", name, t.Name)
		}
	}
	return nil
}

// Tends checks a delete by a controller that has rules of its own.
func Tends(g *cluster.Guard, c *cluster.Taken, obj metav1.Object) {
	switch o := obj.(type) {
	case *batchv1.Job:
		expires(g, c, o)
	case *corev1.Pod:
		nodes.Cleans(g, c, o)
	}
}
