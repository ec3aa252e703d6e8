package cluster

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// SomeOf is one of two objects of a kind; it is created if it does not exist.
func (w *Cluster) SomeOf(kind kinds.Kind, stem string, fresh func(name string) any) (ref events.Ref, there bool) {
	ref = events.Ref{Kind: kind.Name, Name: fmt.Sprint(stem, w.Roll(2))}
	if kind.Namespaced {
		ref.Namespace = Namespace
	}
	if w.API.Get(ref) == nil {
		w.Note("user: create %v", ref)
		w.Create(ref, fresh(ref.Name))
		return ref, false
	}
	return ref, true
}

// Operation is a random operation of users, or of programs that are not part of Millrace.
type Operation func(*Cluster)

// Namespace is where users create their objects.
const Namespace = "default"

// Propagations are the ways to delete an object that others belong to.
var Propagations = []metav1.DeletionPropagation{
	metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
}

// DeletePod has a user delete a pod.
func DeletePod(w *Cluster) {
	if pod := w.AnyPod(); pod != nil {
		w.Note("user: delete pod %s", pod.GetName())
		w.API.Do(plan.Request{Verb: plan.Delete, Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()})
	}
}

// FailPod has a pod fail.
func FailPod(w *Cluster) {
	if pod := w.AnyPod(); pod != nil {
		w.Note("node: pod %s failed", pod.GetName())
		w.API.Change(apiserver.RefOf(kinds.Pods.Name, pod), func(obj metav1.Object) {
			obj.(*corev1.Pod).Status.Phase = corev1.PodFailed
			obj.(*corev1.Pod).Status.Conditions = nil
		})
	}
}

// ReleasePod takes a pod out of its set's selector, or puts it back.
func ReleasePod(w *Cluster) {
	if pod := w.AnyPod(); pod != nil {
		w.Relabel(pod)
	}
}

// AnyPod is one of the pods; nil if there is none.
func (w *Cluster) AnyPod() metav1.Object {
	pods := w.API.List(kinds.Pods.Name)
	if len(pods) == 0 {
		return nil
	}
	return pods[w.Roll(len(pods))]
}

// Delete deletes an object.
func (w *Cluster) Delete(ref events.Ref, how metav1.DeletionPropagation) {
	w.Note("user: delete %v, %s", ref, how)
	w.API.Do(plan.Request{Verb: plan.Delete, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Delete: &metav1.DeleteOptions{PropagationPolicy: &how}})
}

// Relabel takes a pod out of its set's selector, or puts it back.
func (w *Cluster) Relabel(pod metav1.Object) {
	w.Note("user: relabel pod %s", pod.GetName())
	w.API.Change(apiserver.RefOf(kinds.Pods.Name, pod), func(obj metav1.Object) {
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
func (w *Cluster) Annotate(ref events.Ref, text string) {
	w.Note("foreign: annotate %v", ref)
	w.API.Change(ref, func(obj metav1.Object) {
		notes := obj.GetAnnotations()
		if notes == nil {
			notes = map[string]string{}
		}
		notes["example.com/note"] = text
		obj.SetAnnotations(notes)
	})
}

// Namespace makes a namespace.
func (w *Cluster) Namespace(name string) {
	w.Create(events.Ref{Kind: kinds.Namespaces.Name, Name: name}, &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}, ObjectMeta: metav1.ObjectMeta{Name: name},
	})
}

// Create creates an object as a user does.
func (w *Cluster) Create(ref events.Ref, obj any) {
	body, err := json.Marshal(obj)
	if err != nil {
		panic(err) // an API object
	}
	w.API.Do(plan.Request{Verb: plan.Create, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name, Body: body})
}
