package history

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #72192. An object with a wrong owner reference (the right name and uid under another
// kind) lived for months, until the controller manager restarted; then the garbage collector deleted it, or
// did not, by chance.
//
// The graph was keyed by uid. An owner that was in it under any kind, name or namespace counted as alive. For
// one that was not in it, because the graph was new, the collector looked where the reference pointed, and
// found nothing.
//
// In Millrace an owner is identified by kind, namespace, name and uid together, in the graph and at the API
// server alike. So the order of arrival makes no difference.
func TestWrongReferencesHaveOneFate(t *testing.T) {
	for wrong := range 16 {
		r := reference{kind: wrong&1 != 0, name: wrong&2 != 0, namespace: wrong&4 != 0, uid: wrong&8 != 0}
		t.Run(fmt.Sprintf("%+v", r), func(t *testing.T) {
			for _, first := range []kinds.Name{kinds.ReplicaSets.Name, kinds.Pods.Name} {
				if lives, right := r.play(t, garbagecollector.Controller, first), wrong == 0; lives != right {
					t.Errorf("with the %s first the dependent lives: %t, want %t", first, lives, right)
				}
			}
		})
	}
	r := reference{kind: true}
	if r.play(t, byUID(), kinds.ReplicaSets.Name) == r.play(t, byUID(), kinds.Pods.Name) {
		t.Error("the order of arrival does not matter: the story does not show the bug")
	}
}

// reference says which fields of an owner reference are wrong.
type reference struct{ kind, name, namespace, uid bool }

// play reports whether a dependent with the reference lives, if one kind arrives before the other.
func (r reference) play(t *testing.T, controller reconcile.Any, first kinds.Name) bool {
	s := newStage(t)
	s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 0))
	ref := metav1.OwnerReference{
		APIVersion: kinds.ReplicaSets.APIVersion(), Kind: kinds.ReplicaSets.Kind.Kind, Name: "web", UID: s.uid(kinds.ReplicaSets.Kind, "web"),
	}
	dependent := reconciletest.Pod("dependent")
	if r.kind {
		ref.APIVersion, ref.Kind = kinds.Pods.APIVersion(), kinds.Pods.Kind.Kind
	}
	if r.name {
		ref.Name = "db"
	}
	if r.namespace {
		dependent.Namespace = "elsewhere"
	}
	if r.uid {
		ref.UID = "another"
	}
	dependent.OwnerReferences = []metav1.OwnerReference{ref}
	s.create(kinds.Pods.Kind, dependent)

	p := s.ours(controller)
	second := kinds.Pods.Name
	if first == second {
		second = kinds.ReplicaSets.Name
	}
	p.hear(s.since(0, first)...)
	p.work()
	p.hear(s.since(0, second)...)
	p.work()
	return s.api.Get(events.Ref{Kind: kinds.Pods.Name, Namespace: dependent.Namespace, Name: dependent.Name}) != nil
}

// byUID is the garbage collector with a graph that is keyed by uid alone.
func byUID() reconcile.Any {
	c := garbagecollector.Controller
	observe := c.Observe
	c.Observe = func(s reconcile.Snapshot, k events.Key) (garbagecollector.View, bool) {
		v, ok := observe(s, k)
		for i, ref := range v.Object.Meta.OwnerReferences {
			if _, there := s.ByUID(ref.UID); there {
				v.Owners[i].State = garbagecollector.Solid
			}
		}
		return v, ok
	}
	return c
}
