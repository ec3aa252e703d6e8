package sim

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// Operation is a random operation of users, or of programs that are not part of Millrace.
type Operation func(*World)

// Workloads is what users do with Deployments and their pods.
var Workloads = []Operation{
	scaleSome, scaleSome, imageSome, imageSome, pauseSome, deleteSome, recreateSome, deletePod, failPod, releasePod, tamperSome,
}

// Furniture is what users do with namespaces and their default content.
var Furniture = []Operation{newNamespace, newNamespace, tamperCertificate, deleteFurniture}

// Everything is both.
var Everything = slices.Concat(Furniture, []Operation{deleteSet}, Workloads)

const namespace = "default"

func deploymentRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Deployments.Name, Namespace: namespace, Name: name}
}

// some is one of two Deployments; it is created if it does not exist.
func (w *World) some() (ref events.Ref, there bool) {
	name := fmt.Sprintf("d%d", w.roll(2))
	ref = deploymentRef(name)
	if w.api.Get(ref) == nil {
		w.note("user: create %s", name)
		w.create(ref, w.anyDeployment(name))
		return ref, false
	}
	return ref, true
}

func scaleSome(w *World) {
	if ref, there := w.some(); there {
		w.Scale(ref.Name, int32(w.roll(6)))
	}
}

func imageSome(w *World) {
	if ref, there := w.some(); there {
		w.Image(ref.Name, fmt.Sprintf("web:v%d", w.roll(3)))
	}
}

func pauseSome(w *World) {
	if ref, there := w.some(); there {
		w.note("user: pause or resume %s", ref.Name)
		w.Edit(ref.Name, func(d *appsv1.Deployment) { d.Spec.Paused = !d.Spec.Paused })
	}
}

var propagations = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

func deleteSome(w *World) {
	if ref, there := w.some(); there {
		w.Delete(ref, propagations[w.roll(3)])
	}
}

// recreateSome deletes a Deployment and creates another one of the same name at once.
func recreateSome(w *World) {
	if ref, there := w.some(); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
		w.some()
		if w.api.Get(ref) == nil {
			w.note("user: create %s again", ref.Name)
			w.create(ref, w.anyDeployment(ref.Name))
		}
	}
}

func deleteSet(w *World) {
	if sets := w.api.List(kinds.ReplicaSets.Name); len(sets) > 0 {
		w.Delete(refOf(kinds.ReplicaSets.Name, sets[w.roll(len(sets))]), propagations[w.roll(2)])
	}
}

func deletePod(w *World) {
	if pod := w.anyPod(); pod != nil {
		w.note("user: delete pod %s", pod.GetName())
		w.api.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()})
	}
}

func failPod(w *World) {
	if pod := w.anyPod(); pod != nil {
		w.note("node: pod %s failed", pod.GetName())
		w.api.Change(refOf(kinds.Pods.Name, pod), func(obj metav1.Object) {
			obj.(*corev1.Pod).Status.Phase = corev1.PodFailed
			obj.(*corev1.Pod).Status.Conditions = nil
		})
	}
}

// releasePod takes a pod out of its set's selector, or puts it back.
func releasePod(w *World) {
	if pod := w.anyPod(); pod != nil {
		w.Relabel(pod)
	}
}

func tamperSome(w *World) { w.Tamper() }

// Tamper is another program that writes to the same objects, so that writes meet conflicts.
func (w *World) Tamper() {
	for _, kind := range []kinds.Name{kinds.Deployments.Name, kinds.ReplicaSets.Name} {
		for _, obj := range w.api.List(kind) {
			w.Annotate(refOf(kind, obj), fmt.Sprint(w.tally.Steps))
		}
	}
}

// ScaleSets has another client give every ReplicaSet another size.
func (w *World) ScaleSets(n int32) {
	w.note("foreign: scale every replica set to %d", n)
	for _, obj := range w.api.List(kinds.ReplicaSets.Name) {
		w.api.Change(refOf(kinds.ReplicaSets.Name, obj), func(obj metav1.Object) { obj.(*appsv1.ReplicaSet).Spec.Replicas = &n })
	}
}

// Created is how many pods were created within the given time.
func (w *World) Created(since time.Duration) (n int) {
	for _, at := range w.guard.pods {
		if w.now.Sub(at) <= since {
			n++
		}
	}
	return n
}

func newNamespace(w *World) {
	ref := events.Ref{Kind: kinds.Namespaces.Name, Name: fmt.Sprintf("ns%d", w.roll(3))}
	if w.api.Get(ref) == nil {
		w.note("user: create namespace %s", ref.Name)
		w.Namespace(ref.Name)
	}
}

func tamperCertificate(w *World) {
	if all := w.api.List(kinds.ConfigMaps.Name); len(all) > 0 {
		w.Forge(all[w.roll(len(all))].GetNamespace())
	}
}

func deleteFurniture(w *World) {
	kind := []kinds.Name{kinds.ServiceAccounts.Name, kinds.ConfigMaps.Name}[w.roll(2)]
	if all := w.api.List(kind); len(all) > 0 {
		w.Delete(refOf(kind, all[w.roll(len(all))]), metav1.DeletePropagationBackground)
	}
}

func (w *World) anyPod() metav1.Object {
	pods := w.api.List(kinds.Pods.Name)
	if len(pods) == 0 {
		return nil
	}
	return pods[w.roll(len(pods))]
}

func refOf(kind kinds.Name, obj metav1.Object) events.Ref {
	return events.Ref{Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Edit changes a Deployment.
func (w *World) Edit(name string, change func(*appsv1.Deployment)) {
	w.api.Change(deploymentRef(name), func(obj metav1.Object) { change(obj.(*appsv1.Deployment)) })
}

// Scale changes the number of replicas of a Deployment.
func (w *World) Scale(name string, n int32) {
	w.note("user: scale %s to %d", name, n)
	w.Edit(name, func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
}

// Image changes the template of a Deployment.
func (w *World) Image(name, image string) {
	w.note("user: set image of %s to %s", name, image)
	w.Edit(name, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

// Delete deletes an object.
func (w *World) Delete(ref events.Ref, how metav1.DeletionPropagation) {
	w.note("user: delete %v, %s", ref, how)
	w.api.Do(plan.Request{Verb: plan.Delete, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Delete: &metav1.DeleteOptions{PropagationPolicy: &how}})
}

// Relabel takes a pod out of its set's selector, or puts it back.
func (w *World) Relabel(pod metav1.Object) {
	w.note("user: relabel pod %s", pod.GetName())
	w.api.Change(refOf(kinds.Pods.Name, pod), func(obj metav1.Object) {
		labels := obj.GetLabels()
		if app, away := labels["was"]; away {
			labels["app"] = app
			delete(labels, "was")
		} else {
			labels["was"], labels["app"] = labels["app"], "none"
		}
		obj.SetLabels(labels)
	})
}

// Annotate writes to an object without changing what it asks for.
func (w *World) Annotate(ref events.Ref, text string) {
	w.note("foreign: annotate %v", ref)
	w.api.Change(ref, func(obj metav1.Object) {
		notes := obj.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes["example.com/note"] = text
		obj.SetAnnotations(notes)
	})
}

// Namespace makes a namespace.
func (w *World) Namespace(name string) {
	w.create(events.Ref{Kind: kinds.Namespaces.Name, Name: name}, &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	})
}

// Forge puts a wrong certificate into a namespace.
func (w *World) Forge(namespace string) {
	w.note("foreign: a wrong certificate in %s", namespace)
	w.api.Change(certificateOf(namespace), func(obj metav1.Object) { obj.(*corev1.ConfigMap).Data = map[string]string{"ca.crt": "forged"} })
}

// Deploy creates a Deployment, defaulted as the API server would.
func (w *World) Deploy(name string, replicas, surge, unavailable int32) {
	w.create(deploymentRef(name), deployment(name, replicas, rolling(surge, unavailable)))
}

func (w *World) create(ref events.Ref, obj any) {
	body, err := json.Marshal(obj)
	if err != nil {
		panic(err) // an API object
	}
	w.api.Do(plan.Request{Verb: plan.Create, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Body: body})
}

// populate creates the initial objects.
func (w *World) populate() {
	if w.api.of(kinds.Namespaces.Name) != nil {
		w.Namespace(namespace)
	}
	if w.runs("storage-version-migrator-controller") {
		w.api.encoded = map[stored]int{}
	}
	switch {
	case w.stores():
		w.furnishStorage()
	case w.hasDevices():
		w.furnishDevices()
	case w.api.of(kinds.Nodes.Name) != nil:
		w.someNode()
	}
}

func (w *World) anyDeployment(name string) *appsv1.Deployment {
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if w.roll(4) > 0 {
		surge, unavailable := int32(w.roll(3)), int32(w.roll(2))
		if surge+unavailable == 0 {
			surge = 1
		}
		strategy = rolling(surge, unavailable)
	}
	d := deployment(name, int32(w.roll(5)), strategy)
	d.Spec.RevisionHistoryLimit = new(int32(1)) // which three templates exceed
	if w.roll(3) == 0 {
		d.Spec.MinReadySeconds = 5
	}
	return d
}

func rolling(surge, unavailable int32) appsv1.DeploymentStrategy {
	most, least := intstr.FromInt32(surge), intstr.FromInt32(unavailable)
	return appsv1.DeploymentStrategy{
		Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &most, MaxUnavailable: &least},
	}
}

func deployment(name string, replicas int32, strategy appsv1.DeploymentStrategy) *appsv1.Deployment {
	limit, deadline := int32(2), int32(600)
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web:v0"}}},
			},
			RevisionHistoryLimit: &limit, ProgressDeadlineSeconds: &deadline, Strategy: strategy,
		},
	}
}
