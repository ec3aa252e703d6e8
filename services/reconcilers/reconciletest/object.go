package reconciletest

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
)

// Namespace is the namespace of built objects, unless [In] sets another.
const Namespace = "default"

// Edit changes an object while it is built.
type Edit[T metav1.Object] func(T)

// Pod returns a pending pod with the label app=web; its uid is "uid-" and its name.
func Pod(name string, edits ...Edit[*corev1.Pod]) *corev1.Pod {
	return build(&corev1.Pod{
		ObjectMeta: meta(name),
		Status:     corev1.PodStatus{Phase: corev1.PodPending},
	}, edits)
}

// ReplicaSet returns a set that wants replicas pods with the label app=web.
func ReplicaSet(name string, replicas int32, edits ...Edit[*appsv1.ReplicaSet]) *appsv1.ReplicaSet {
	return build(&appsv1.ReplicaSet{
		ObjectMeta: meta(name),
		Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector(), Template: template()},
	}, edits)
}

// Deployment returns a deployment that wants replicas pods with the label app=web.
func Deployment(name string, replicas int32, edits ...Edit[*appsv1.Deployment]) *appsv1.Deployment {
	return build(&appsv1.Deployment{
		ObjectMeta: meta(name),
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: selector(), Template: template()},
	}, edits)
}

func build[T metav1.Object](obj T, edits []Edit[T]) T {
	for _, edit := range edits {
		edit(obj)
	}
	return obj
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: Namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Generation: 1,
		Labels: map[string]string{"app": "web"}, CreationTimestamp: metav1.NewTime(Now.Add(-time.Hour)),
	}
}

func selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
}

func template() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "nginx:1"}}},
	}
}

// In puts an object into a namespace.
func In[T metav1.Object](namespace string) Edit[T] {
	return func(obj T) { obj.SetNamespace(namespace) }
}

// Labelled gives an object these labels and no others.
func Labelled[T metav1.Object](labels map[string]string) Edit[T] {
	return func(obj T) { obj.SetLabels(labels) }
}

// OwnedBy gives an object a controller reference.
func OwnedBy[T metav1.Object](kind kinds.Kind, controller metav1.Object) Edit[T] {
	return func(obj T) {
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), owner.Reference(kind, controller)))
	}
}

// Deleted marks an object as being deleted since a moment.
func Deleted[T metav1.Object](at time.Time) Edit[T] {
	return func(obj T) {
		moment := metav1.NewTime(at)
		obj.SetDeletionTimestamp(&moment)
	}
}

// On puts a pod on a node, where it runs.
func On(node string) Edit[*corev1.Pod] {
	return func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning }
}

// InPhase puts a pod into a phase.
func InPhase(phase corev1.PodPhase) Edit[*corev1.Pod] {
	return func(p *corev1.Pod) { p.Status.Phase = phase }
}

// ReadySince makes a pod ready since a moment.
func ReadySince(at time.Time) Edit[*corev1.Pod] {
	return func(p *corev1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at),
		})
	}
}
