package sim

import (
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

const namespace = "default"

func deploymentRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Deployments.Name, Namespace: namespace, Name: name}
}

// user does one thing that users do.
func (w *World) user() {
	w.changes--
	name := fmt.Sprintf("d%d", w.random.IntN(2))
	ref := deploymentRef(name)
	if w.api.Get(ref) == nil {
		w.note("user: create %s", name)
		w.create(ref, w.deployment(name))
		return
	}
	switch w.random.IntN(8) {
	case 0, 1:
		n := int32(w.random.IntN(6))
		w.note("user: scale %s to %d", name, n)
		w.edit(ref, func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
	case 2, 3:
		image := fmt.Sprintf("web:v%d", w.random.IntN(3))
		w.note("user: set image of %s to %s", name, image)
		w.edit(ref, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
	case 4:
		w.note("user: pause or resume %s", name)
		w.edit(ref, func(d *appsv1.Deployment) { d.Spec.Paused = !d.Spec.Paused })
	case 5:
		how := []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan}[w.random.IntN(3)]
		w.note("user: delete %s, %s", name, how)
		w.api.Do(plan.Request{Verb: plan.Delete, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Delete: &metav1.DeleteOptions{PropagationPolicy: &how}})
	case 6:
		w.deletePod()
	case 7:
		w.failPod()
	}
}

func (w *World) edit(ref events.Ref, change func(*appsv1.Deployment)) {
	w.api.Change(ref, func(obj metav1.Object) { change(obj.(*appsv1.Deployment)) })
}

func (w *World) deletePod() {
	if pods := w.api.List(kinds.Pods.Name); len(pods) > 0 {
		pod := pods[w.random.IntN(len(pods))]
		w.note("user: delete pod %s", pod.GetName())
		w.api.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()})
	}
}

func (w *World) failPod() {
	if pods := w.api.List(kinds.Pods.Name); len(pods) > 0 {
		pod := pods[w.random.IntN(len(pods))]
		w.note("node: pod %s failed", pod.GetName())
		w.api.Change(events.Ref{Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()}, func(obj metav1.Object) {
			obj.(*corev1.Pod).Status.Phase = corev1.PodFailed
			obj.(*corev1.Pod).Status.Conditions = nil
		})
	}
}

func (w *World) create(ref events.Ref, obj any) {
	body, err := json.Marshal(obj)
	if err != nil {
		panic(err) // an API object
	}
	w.api.Do(plan.Request{Verb: plan.Create, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Body: body})
}

// deployment is a new Deployment, defaulted as the API server would.
func (w *World) deployment(name string) *appsv1.Deployment {
	replicas, limit, deadline := int32(w.random.IntN(5)), int32(2), int32(600)
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:v0"}}},
			},
			RevisionHistoryLimit: &limit, ProgressDeadlineSeconds: &deadline,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		},
	}
	if w.random.IntN(4) > 0 {
		surge, unavailable := intstr.FromInt32(int32(w.random.IntN(3))), intstr.FromInt32(int32(w.random.IntN(2)))
		if surge.IntVal+unavailable.IntVal == 0 {
			surge = intstr.FromInt32(1)
		}
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
			RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
	}
	if w.random.IntN(3) == 0 {
		d.Spec.MinReadySeconds = 5
	}
	return d
}
