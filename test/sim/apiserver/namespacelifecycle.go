package apiserver

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"

	"github.com/millrace/millrace/pkg/events"
)

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
	c := a.Of(kinds.Namespaces.Name)
	if namespace == "" || c == nil {
		return nil
	}
	var answer plan.Response
	switch ns := c.Objects[NamespaceRef(namespace)]; {
	case ns == nil:
		answer = Refusal(404, string(metav1.StatusReasonNotFound), "no such namespace: "+namespace)
	case ns.GetDeletionTimestamp() != nil:
		answer = Refusal(403, string(metav1.StatusReasonForbidden), "the namespace "+namespace+" is being terminated")
		answer.Cause = string(corev1.NamespaceTerminatingCause)
	default:
		return nil
	}
	return &answer
}

// NamespaceRef is the place of a namespace.
func NamespaceRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Namespaces.Name, Name: name}
}
