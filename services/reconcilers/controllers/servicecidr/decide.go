package servicecidr

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/finalizer"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	// grace is the longest time until the allocators of all API servers know that a
	// ServiceCIDR is deleted.
	//
	// Upstream: pkg/controller/servicecidrs, deletionGracePeriod.
	grace = 10 * time.Second
	// notReady is the reason of the Event if the condition cannot be written.
	notReady = "KubernetesServiceCIDRError"
)

// decide adds the finalizer, sets the condition, and removes the finalizer when no address
// needs the range.
//
// Upstream: pkg/controller/servicecidrs, sync.
func decide(v View, now time.Time) reconcile.Decision {
	own := v.ServiceCIDR
	guarded := finalizer.Has(own, query.RangeFinalizer)
	switch {
	case own.DeletionTimestamp == nil:
		return reconcile.Join(v.protect(guarded), v.say(ready, now))
	case v.Address != "":
		return v.say(terminating, now)
	case !guarded:
		return reconcile.Nothing("the ServiceCIDR is deleted, and has no finalizer of this controller")
	case now.Before(own.DeletionTimestamp.Add(grace)):
		return reconcile.Wake(own.DeletionTimestamp.Add(grace), "the ServiceCIDR is deleted, and API servers may not have seen it yet")
	default:
		return reconcile.Do("the ServiceCIDR is deleted, and no address needs it",
			v.patch(map[string]any{"$deleteFromPrimitiveList/finalizers": []string{query.RangeFinalizer}}, reconcile.IfUnused()))
	}
}

// protect adds the finalizer.
func (v View) protect(guarded bool) reconcile.Decision {
	if guarded {
		return reconcile.Nothing("the ServiceCIDR is protected, and ready")
	}
	return reconcile.Do("the ServiceCIDR is not protected yet", v.patch(map[string]any{"finalizers": []string{query.RangeFinalizer}}))
}

// patch changes finalizers by a strategic merge, which leaves other finalizers alone.
func (v View) patch(metadata map[string]any, with ...reconcile.Option) events.Command {
	body := reconcile.Body(map[string]any{"metadata": metadata})
	return reconcile.Patch(kinds.ServiceCIDRs.Kind, v.ServiceCIDR, types.StrategicMergePatchType, body, with...)
}

// The conditions.
var (
	ready = metav1.Condition{Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"}

	terminating = metav1.Condition{
		Status: metav1.ConditionFalse, Reason: networkingv1.ServiceCIDRReasonTerminating,
		Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR",
	}
)

// say writes a condition if it differs.
func (v View) say(want metav1.Condition, now time.Time) reconcile.Decision {
	own := v.ServiceCIDR
	because := "the ServiceCIDR is ready"
	if want.Status != metav1.ConditionTrue {
		because = "the ServiceCIDR is deleted, but " + v.Address + " needs it"
	}
	has := apimeta.FindStatusCondition(own.Status.Conditions, networkingv1.ServiceCIDRConditionReady)
	if has != nil && has.Status == want.Status && has.Reason == want.Reason && has.Message == want.Message {
		return reconcile.Nothing(because)
	}
	want.Type, want.LastTransitionTime = networkingv1.ServiceCIDRConditionReady, metav1.NewTime(now.Truncate(time.Second))
	var with []reconcile.Option
	if want.Status == metav1.ConditionTrue {
		with = append(with, reconcile.WithEvents(nil, &events.Notice{
			About: reconcile.About(kinds.ServiceCIDRs.Kind, own), Type: corev1.EventTypeWarning,
			Reason: notReady, Message: "The ServiceCIDR Status can not be set to Ready=True",
		}))
	}
	body := map[string]any{
		"apiVersion": kinds.ServiceCIDRs.APIVersion(), "kind": kinds.ServiceCIDRs.Kind.Kind,
		"metadata": map[string]any{"name": own.Name, "uid": own.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{want}},
	}
	c := reconcile.Patch(kinds.ServiceCIDRs.Kind, own, types.ApplyPatchType, reconcile.Body(body), with...)
	c.Subresource = "status"
	return reconcile.Do(because, c)
}
