package sim

import (
	"encoding/json"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
)

// Demolition is what users do with namespaces that come and go, and with their content.
var Demolition = []Operation{useNamespace, useNamespace, useNamespace, useNamespace, tamperCertificate, deleteFurniture}

func namespaceRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Namespaces.Name, Name: name}
}

// useNamespace creates a namespace, adds a pod to it, or deletes it.
func useNamespace(w *World) {
	ref := namespaceRef(fmt.Sprintf("ns%d", w.roll(2)))
	switch ns := w.api.Get(ref); {
	case ns == nil:
		w.note("user: create namespace %s", ref.Name)
		w.Namespace(ref.Name)
	case w.roll(3) > 0:
		pod := events.Ref{Kind: kinds.Pods.Name, Namespace: ref.Name, Name: fmt.Sprintf("p%d", w.roll(3))}
		w.note("user: create pod %v", pod)
		w.create(pod, &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}})
	default:
		w.Delete(ref, metav1.DeletePropagationBackground)
	}
}

// kept reports whether a namespace has spec finalizers, which only its finalize subresource
// removes.
func kept(obj metav1.Object) bool {
	ns, ok := obj.(*corev1.Namespace)
	return ok && len(ns.Spec.Finalizers) > 0
}

// finalize changes the finalizers of a namespace and nothing else.
func finalize(next, old metav1.Object) metav1.Object {
	ns := old.(*corev1.Namespace).DeepCopy()
	ns.Spec.Finalizers = next.(*corev1.Namespace).Spec.Finalizers
	return ns
}

// closed is the refusal of a create in a namespace that does not exist or is being deleted;
// nil: it may happen. Upstream: the admission plugin NamespaceLifecycle.
func (a *API) closed(namespace string) *plan.Response {
	c := a.of(kinds.Namespaces.Name)
	if namespace == "" || c == nil {
		return nil
	}
	var answer plan.Response
	switch ns := c.objects[namespaceRef(namespace)]; {
	case ns == nil:
		answer = refusal(404, string(metav1.StatusReasonNotFound), "no such namespace: "+namespace)
	case ns.GetDeletionTimestamp() != nil:
		answer = refusal(403, string(metav1.StatusReasonForbidden), "the namespace "+namespace+" is being terminated")
		answer.Cause = string(corev1.NamespaceTerminatingCause)
	default:
		return nil
	}
	return &answer
}

// search is what a namespace holds.
func (a *API) search(ns metav1.Object, body []byte) plan.Response {
	var question query.ContentsQuestion
	if err := json.Unmarshal(body, &question); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	var found query.Contents
	for _, first := range []bool{true, false} {
		for _, c := range a.kinds {
			if !c.kind.Namespaced || slices.Contains(question.First, c.kind.Name) != first {
				continue
			}
			if h := c.holding(ns.GetName()); h.Count > 0 {
				found.Kinds = append(found.Kinds, h)
			}
		}
		if found.Partial = first && len(found.Kinds) > 0; found.Partial {
			break
		}
	}
	found.Limit(question.After)
	r := answer(ns)
	r.Body, _ = json.Marshal(found) // it has only fields that encoding/json accepts
	return r
}

func (c *collection) holding(namespace string) query.Holding {
	h := query.Holding{Kind: c.kind.Name, Version: c.kind.Version}
	for _, obj := range c.sorted {
		if obj.GetNamespace() != namespace {
			continue
		}
		if h.Count++; obj.GetDeletionTimestamp() == nil {
			h.Standing = append(h.Standing, query.Standing{Name: obj.GetName(), UID: obj.GetUID()})
		} else if grace := obj.GetDeletionGracePeriodSeconds(); grace != nil {
			h.Grace = max(h.Grace, *grace)
		}
	}
	return h
}

// emptied checks a deleted namespace: nothing may be left in it.
func (g *guard) emptied(ns metav1.Object) {
	if g.restoring {
		return
	}
	for _, c := range g.world.api.kinds {
		if h := c.holding(ns.GetName()); c.kind.Namespaced && h.Count > 0 {
			g.breaks("I12", "namespace %s has gone, and %d %s are left in it", ns.GetName(), h.Count, h.Kind)
		}
	}
}

// clears checks a delete that happens because of the namespace: the namespace is being deleted,
// and its pods go first.
func (g *guard) clears(obj metav1.Object, kind kinds.Name) {
	ns := g.world.api.Get(namespaceRef(obj.GetNamespace()))
	switch {
	case ns == nil || ns.GetDeletionTimestamp() == nil:
		g.breaks("I4", "%s %s is deleted although its namespace lives", kind, obj.GetName())
	case kind != kinds.Pods.Name && g.world.api.of(kinds.Pods.Name).holding(obj.GetNamespace()).Count > 0:
		g.breaks("I12", "%s %s goes before the pods of its namespace", kind, obj.GetName())
	}
}
