package sim

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
)

// Sets is what users do with ReplicationControllers and StatefulSets.
var Sets = []Operation{
	scaleController, scaleController, deleteController, scaleStateful, scaleStateful, scaleStateful, rollStateful, rollStateful,
	deleteStateful, deletePod, deletePod, failPod, releasePod,
}

// someOf is one of two objects of a kind; it is created if it does not exist.
func (w *World) someOf(kind kinds.Kind, stem string, fresh func(name string) any) (ref events.Ref, there bool) {
	ref = events.Ref{Kind: kind.Name, Name: fmt.Sprint(stem, w.roll(2))}
	if kind.Namespaced {
		ref.Namespace = namespace
	}
	if w.api.Get(ref) == nil {
		w.note("user: create %v", ref)
		w.create(ref, fresh(ref.Name))
		return ref, false
	}
	return ref, true
}

func (w *World) someController() (events.Ref, bool) {
	return w.someOf(kinds.ReplicationControllers.Kind, "rc", func(name string) any {
		labels := map[string]string{"app": name}
		return &corev1.ReplicationController{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ReplicationController"},
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: corev1.ReplicationControllerSpec{
				Replicas: new(int32(w.roll(5))), Selector: labels,
				Template: &corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:v0"}}},
				},
			},
		}
	})
}

func scaleController(w *World) {
	if ref, there := w.someController(); there {
		n := int32(w.roll(6))
		w.note("user: scale %v to %d", ref, n)
		w.api.Change(ref, func(obj metav1.Object) { obj.(*corev1.ReplicationController).Spec.Replicas = &n })
	}
}

func deleteController(w *World) {
	if ref, there := w.someController(); there {
		w.Delete(ref, propagations[w.roll(3)])
	}
}

func (w *World) someStateful() (events.Ref, bool) {
	return w.someOf(kinds.StatefulSets.Kind, "db", func(name string) any { return w.anyStateful(name) })
}

func (w *World) anyStateful(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	set := &appsv1.StatefulSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(w.roll(4))), Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
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
	if w.roll(3) == 1 {
		set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	}
	if w.roll(2) == 1 {
		set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
	}
	if w.roll(3) == 1 {
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenScaled = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	if w.roll(3) == 1 {
		set.Spec.PersistentVolumeClaimRetentionPolicy.WhenDeleted = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	}
	return set
}

// Stateful changes a StatefulSet.
func (w *World) Stateful(name string, change func(*appsv1.StatefulSet)) {
	w.api.Change(statefulRef(name), func(obj metav1.Object) { change(obj.(*appsv1.StatefulSet)) })
}

func statefulRef(name string) events.Ref {
	return events.Ref{Kind: kinds.StatefulSets.Name, Namespace: namespace, Name: name}
}

func scaleStateful(w *World) {
	if ref, there := w.someStateful(); there {
		n := int32(w.roll(5))
		w.note("user: scale %v to %d", ref, n)
		w.Stateful(ref.Name, func(set *appsv1.StatefulSet) { set.Spec.Replicas = &n })
	}
}

func rollStateful(w *World) {
	if ref, there := w.someStateful(); there {
		image, from := fmt.Sprintf("db:v%d", w.roll(3)), int32(w.roll(3))
		w.note("user: set image of %v to %s from %d on", ref, image, from)
		w.Stateful(ref.Name, func(set *appsv1.StatefulSet) {
			set.Spec.Template.Spec.Containers[0].Image = image
			set.Spec.UpdateStrategy.RollingUpdate.Partition = &from
		})
	}
}

func deleteStateful(w *World) {
	if ref, there := w.someStateful(); there {
		how := propagations[w.roll(3)]
		if how == metav1.DeletePropagationForeground && slices.ContainsFunc(w.api.List(kinds.PersistentVolumeClaims.Name), ofAPod) {
			w.guard.spare(claimsCircle)
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
func Gather(w *World) {
	for _, pod := range w.api.List(kinds.Pods.Name) {
		if _, away := pod.GetLabels()["was"]; away || controllerOf(pod) == "" {
			w.Delete(refOf(kinds.Pods.Name, pod), metav1.DeletePropagationBackground)
		}
	}
}

func deleteClaim(w *World) {
	if all := w.api.List(kinds.PersistentVolumeClaims.Name); len(all) > 0 {
		w.Delete(refOf(kinds.PersistentVolumeClaims.Name, all[w.roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

// ordinalOf is the number of a pod of a StatefulSet.
func ordinalOf(set, pod string) (n int, ok bool) {
	n, err := strconv.Atoi(strings.TrimPrefix(pod, set+"-"))
	return n, err == nil
}

// controllersFilled reports whether every ReplicationController has the pods that it asks for.
func (w *World) controllersFilled(pods map[types.UID]int) error {
	for _, obj := range w.api.List(kinds.ReplicationControllers.Name) {
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

// statefulFilled reports whether every StatefulSet has its pods, each with its claims, and its
// status says so.
func (w *World) statefulFilled(pods map[types.UID]int) error {
	for _, obj := range w.api.List(kinds.StatefulSets.Name) {
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
			if err := w.memberOf(set, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func memberRef(set *appsv1.StatefulSet, i int) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: namespace, Name: fmt.Sprintf("%s-%d", set.Name, i)}
}

func (w *World) memberOf(set *appsv1.StatefulSet, i int) error {
	name := fmt.Sprintf("%s-%d", set.Name, i)
	p, ok := w.api.Get(memberRef(set, i)).(*corev1.Pod)
	switch {
	case !ok || controllerOf(p) != set.UID:
		return fmt.Errorf("%s has no member %d", set.Name, i)
	case i >= int(*set.Spec.UpdateStrategy.RollingUpdate.Partition) && imageOf(set.Spec.Template) != p.Spec.Containers[0].Image:
		return fmt.Errorf("%s still runs %s, and %s wants %s", name, p.Spec.Containers[0].Image, set.Name, imageOf(set.Spec.Template))
	}
	for _, t := range set.Spec.VolumeClaimTemplates {
		// A pod that was adopted without the claim keeps its volumes, which are immutable.
		claim := t.Name + "-" + name
		uses := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim
		})
		if uses && w.api.Get(events.Ref{Kind: kinds.PersistentVolumeClaims.Name, Namespace: namespace, Name: claim}) == nil {
			return fmt.Errorf("%s has no claim %s", name, t.Name)
		}
	}
	return nil
}

// tends checks a delete by a controller that has rules of its own.
func (g *guard) tends(c *carrying, obj metav1.Object) {
	switch o := obj.(type) {
	case *batchv1.Job:
		g.expires(c, o)
	case *corev1.Pod:
		g.cleans(c, o)
	}
}
