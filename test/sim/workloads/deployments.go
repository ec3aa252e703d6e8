package workloads

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Workloads is what users do with Deployments and their pods.
var Workloads = []cluster.Operation{
	ScaleSome, ScaleSome, ImageSome, ImageSome, pauseSome, deleteSome, recreateSome, cluster.DeletePod, cluster.FailPod, cluster.ReleasePod, tamperSome,
}

// DeploymentRef is the place of a Deployment.
func DeploymentRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Deployments.Name, Namespace: cluster.Namespace, Name: name}
}

// Some is one of two Deployments; it is created if it does not exist.
func Some(w *cluster.Cluster) (ref events.Ref, there bool) {
	name := fmt.Sprintf("d%d", w.Roll(2))
	ref = DeploymentRef(name)
	if w.API.Get(ref) == nil {
		w.Note("user: create %s", name)
		w.Create(ref, anyDeployment(w, name))
		return ref, false
	}
	return ref, true
}

// ScaleSome scales one of the Deployments.
func ScaleSome(w *cluster.Cluster) {
	if ref, there := Some(w); there {
		Scale(w, ref.Name, int32(w.Roll(6)))
	}
}

// ImageSome changes the image of one of the Deployments.
func ImageSome(w *cluster.Cluster) {
	if ref, there := Some(w); there {
		Image(w, ref.Name, fmt.Sprintf("web:v%d", w.Roll(3)))
	}
}

func pauseSome(w *cluster.Cluster) {
	if ref, there := Some(w); there {
		w.Note("user: pause or resume %s", ref.Name)
		Edit(w, ref.Name, func(d *appsv1.Deployment) { d.Spec.Paused = !d.Spec.Paused })
	}
}

func deleteSome(w *cluster.Cluster) {
	if ref, there := Some(w); there {
		w.Delete(ref, cluster.Propagations[w.Roll(3)])
	}
}

// recreateSome deletes a Deployment and creates another one of the same name at once.
func recreateSome(w *cluster.Cluster) {
	if ref, there := Some(w); there {
		w.Delete(ref, metav1.DeletePropagationBackground)
		Some(w)
		if w.API.Get(ref) == nil {
			w.Note("user: create %s again", ref.Name)
			w.Create(ref, anyDeployment(w, ref.Name))
		}
	}
}

// DeleteSet deletes a ReplicaSet.
func DeleteSet(w *cluster.Cluster) {
	if sets := w.API.List(kinds.ReplicaSets.Name); len(sets) > 0 {
		w.Delete(apiserver.RefOf(kinds.ReplicaSets.Name, sets[w.Roll(len(sets))]), cluster.Propagations[w.Roll(2)])
	}
}

func tamperSome(w *cluster.Cluster) { Tamper(w) }

// Tamper is another program that writes to the same objects, so that writes meet conflicts.
func Tamper(w *cluster.Cluster) {
	for _, kind := range []kinds.Name{kinds.Deployments.Name, kinds.ReplicaSets.Name} {
		for _, obj := range w.API.List(kind) {
			w.Annotate(apiserver.RefOf(kind, obj), fmt.Sprint(w.Counts.Steps))
		}
	}
}

// ScaleSets has another client give every ReplicaSet another size.
func ScaleSets(w *cluster.Cluster, n int32) {
	w.Note("foreign: scale every replica set to %d", n)
	for _, obj := range w.API.List(kinds.ReplicaSets.Name) {
		w.API.Change(apiserver.RefOf(kinds.ReplicaSets.Name, obj), func(obj metav1.Object) { obj.(*appsv1.ReplicaSet).Spec.Replicas = &n })
	}
}

// Created is how many pods were created within the given time.
func Created(w *cluster.Cluster, since time.Duration) (n int) {
	for _, at := range w.Guard.Pods.Created {
		if w.Now.Sub(at) <= since {
			n++
		}
	}
	return n
}

// Scale changes the number of replicas of a Deployment.
func Scale(w *cluster.Cluster, name string, n int32) {
	w.Note("user: scale %s to %d", name, n)
	Edit(w, name, func(d *appsv1.Deployment) { d.Spec.Replicas = &n })
}

// Image changes the template of a Deployment.
func Image(w *cluster.Cluster, name, image string) {
	w.Note("user: set image of %s to %s", name, image)
	Edit(w, name, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = image })
}

// Deploy creates a Deployment, defaulted as the API server would.
func Deploy(w *cluster.Cluster, name string, replicas, surge, unavailable int32) {
	w.Create(DeploymentRef(name), deployment(name, replicas, rolling(surge, unavailable)))
}

func anyDeployment(w *cluster.Cluster, name string) *appsv1.Deployment {
	strategy := appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	if w.Roll(4) > 0 {
		surge, unavailable := int32(w.Roll(3)), int32(w.Roll(2))
		if surge+unavailable == 0 {
			surge = 1
		}
		strategy = rolling(surge, unavailable)
	}
	d := deployment(name, int32(w.Roll(5)), strategy)
	d.Spec.RevisionHistoryLimit = new(int32(1)) // which three templates exceed
	if w.Roll(3) == 0 {
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
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: cluster.Namespace},
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

// Edit changes a Deployment.
func Edit(w *cluster.Cluster, name string, change func(*appsv1.Deployment)) {
	w.API.Change(DeploymentRef(name), func(obj metav1.Object) { change(obj.(*appsv1.Deployment)) })
}
