package apiserver

import (
	"encoding/json"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// scale serves the scale of a Deployment.
func (a *API) scale(c *Collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	d, ok := old.(*appsv1.Deployment)
	if !ok {
		return Refusal(404, plan.ReasonLacking, "it has no scale")
	}
	switch r.Verb {
	case plan.Look:
		return answer(d)
	case plan.Read:
		said := answer(d)
		said.Body, _ = json.Marshal(scaleOf(d)) // it has only fields that encoding/json accepts
		return said
	case plan.Update:
		var asked autoscalingv1.Scale
		if err := json.Unmarshal(r.Body, &asked); err != nil {
			return Refusal(422, "Invalid", err.Error())
		}
		if asked.UID != d.UID || asked.ResourceVersion != "" && asked.ResourceVersion != d.ResourceVersion {
			return Refusal(409, "Conflict", "the object has been modified")
		}
		next := d.DeepCopy()
		next.Spec.Replicas = &asked.Spec.Replicas
		return answer(a.store(c, ref, old, next))
	default:
		return Refusal(405, "MethodNotAllowed", "a scale is read or updated")
	}
}

// Evict takes an eviction from a budget, if the budget allows one more.
//
// Upstream: pkg/registry/core/pod/storage, checkAndDecrement.
func (a *API) Evict(b *policyv1.PodDisruptionBudget, pod *corev1.Pod) bool {
	if b.Status.ObservedGeneration < b.Generation || b.Status.DisruptionsAllowed <= 0 {
		return false
	}
	a.Change(RefOf(kinds.PodDisruptionBudgets.Name, b), func(obj metav1.Object) {
		next := obj.(*policyv1.PodDisruptionBudget)
		next.Status.DisruptionsAllowed--
		if next.Status.DisruptedPods == nil {
			next.Status.DisruptedPods = map[string]metav1.Time{}
		}
		next.Status.DisruptedPods[pod.Name] = metav1.NewTime(a.now().Truncate(time.Second))
	})
	return true
}

// Waits reports whether an owner is being deleted in the foreground.
func Waits(owner metav1.Object) bool {
	for _, f := range owner.GetFinalizers() {
		if f == metav1.FinalizerDeleteDependents && owner.GetDeletionTimestamp() != nil {
			return true
		}
	}
	return false
}

// reranged reports whether a change would change ranges that a node has, which no client can.
//
// Upstream: pkg/apis/core/validation, ValidateNodeUpdate.
func reranged(old, next metav1.Object) bool {
	was, ok := old.(*corev1.Node)
	return ok && len(was.Spec.PodCIDRs) > 0 && !slices.Equal(was.Spec.PodCIDRs, next.(*corev1.Node).Spec.PodCIDRs)
}

func scaleOf(d *appsv1.Deployment) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion},
		Spec:       autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas},
		Status:     autoscalingv1.ScaleStatus{Replicas: d.Status.Replicas, Selector: metav1.FormatLabelSelector(d.Spec.Selector)},
	}
}
