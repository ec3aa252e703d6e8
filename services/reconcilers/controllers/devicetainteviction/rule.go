package devicetainteviction

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	resourcev1beta2 "k8s.io/api/resource/v1beta2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// often is the minimum interval between two updates of a rule's status.
//
// Upstream: ruleStatusPeriod.
const often = 10 * time.Second

func observeRule(s reconcile.Snapshot, k events.Key) (View, bool) {
	rule, ok := reconcile.Get(s, kinds.DeviceTaintRules, "", k.Name)
	if !ok {
		return View{}, false
	}
	v, c := View{Rule: rule}, look(s)
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, rule); ok {
		for _, r := range last.Results {
			if r.Answer != nil {
				_ = json.Unmarshal(r.Answer.Note, &v.Tally) // an invalid note counts as none
			}
		}
	}
	switch rule.Spec.Taint.Effect {
	case resourcev1beta2.DeviceTaintEffectNoExecute:
	case resourcev1beta2.DeviceTaintEffectNone:
		v.Published, v.Allocated = c.about(rule)
		c.pretend(rule)
	default:
		return v, true
	}
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		if len(p.Spec.ResourceClaims) == 0 {
			continue
		}
		seen := View{Pod: p}
		for _, claim := range c.claimsOf(p) {
			seen.Devices = append(seen.Devices, c.devicesOf(claim)...)
		}
		if seen.drivenBy(rule.UID) {
			v.Driven = append(v.Driven, drivenOf(seen))
		}
	}
	return v, true
}

// drivenOf returns the pod of a view as one that a rule evicts.
func drivenOf(v View) Driven {
	d := Driven{Namespace: v.Pod.Namespace, UID: v.Pod.UID, Leaving: v.Pod.DeletionTimestamp != nil}
	if d.Leaving && v.marked() {
		d.Evicted = &metav1.Time{Time: v.disruption().LastTransitionTime.Time}
	}
	return d
}

// pretend gives a rule the effect NoExecute.
func (c *cluster) pretend(rule *resourcev1beta2.DeviceTaintRule) {
	driving := rule.DeepCopy()
	driving.Spec.Taint.Effect = resourcev1beta2.DeviceTaintEffectNoExecute
	c.rules = slices.Clone(c.rules)
	for i := range c.rules {
		if c.rules[i].UID == rule.UID {
			c.rules[i] = driving
		}
	}
}

// about returns how many devices a rule selects: published ones, and ones that claims have.
//
// Upstream: countTaintedDevices.
func (c *cluster) about(rule *resourcev1beta2.DeviceTaintRule) (published, allocated int) {
	for _, slice := range c.slices {
		of := pool{slice.Spec.Driver, slice.Spec.Pool.Name}
		if slice.Spec.Pool.Generation != c.newest[of] {
			continue
		}
		for i := range slice.Spec.Devices {
			if selects(rule, of.driver, of.name, slice.Spec.Devices[i].Name) {
				published++
			}
		}
	}
	for _, claim := range reconcile.List(c.s, kinds.ResourceClaims, "") {
		if claim.Status.Allocation == nil {
			continue
		}
		for _, r := range claim.Status.Allocation.Devices.Results {
			if selects(rule, r.Driver, r.Pool, r.Device) {
				allocated++
			}
		}
	}
	return published, allocated
}

// drivenBy reports whether a rule is among the reasons for which a pod must leave. All taints count
// that are not tolerated forever.
func (v View) drivenBy(rule types.UID) bool {
	for _, d := range v.Devices {
		for i, t := range d.Taints {
			if _, limited := d.until(t); limited && d.Rules[i] == rule {
				return true
			}
		}
	}
	return false
}

// decideRule reports how many pods a rule evicts, at most every ten seconds.
//
// Upstream: pkg/controller/devicetainteviction, maybeUpdateRuleStatus.
func (v View) decideRule(now time.Time) reconcile.Decision {
	is := v.condition()
	tally, pending, namespaces := v.count(now)
	next := v.report(tally.Evicted, pending, namespaces)
	same := is.Type == next.Type && is.Status == next.Status && is.Reason == next.Reason && is.Message == next.Message && is.ObservedGeneration == next.ObservedGeneration
	current := is.Type != "" && is.ObservedGeneration == v.Rule.Generation
	switch {
	case v.Rule.DeletionTimestamp != nil:
		return reconcile.Nothing("the rule is being deleted")
	case same:
		return reconcile.Nothing("the rule's status is up to date")
	case current && v.Rule.Spec.Taint.Effect == resourcev1beta2.DeviceTaintEffectNone && is.Reason == next.Reason:
		return reconcile.Nothing("the rule's status shows its effect at its creation")
	case current && now.Before(is.LastTransitionTime.Add(often)) && !now.Before(is.LastTransitionTime.Time):
		return reconcile.Wake(is.LastTransitionTime.Add(often), "the rule's status was updated a moment ago")
	}
	next.LastTransitionTime = metav1.NewTime(now.Truncate(time.Second))
	c := reconcile.Patch(kinds.DeviceTaintRules.Kind, v.Rule, types.ApplyPatchType, reconcile.Body(map[string]any{
		"apiVersion": kinds.DeviceTaintRules.APIVersion(), "kind": kinds.DeviceTaintRules.Kind.Kind,
		"metadata": map[string]any{"name": v.Rule.Name, "uid": v.Rule.UID},
		"status":   map[string]any{"conditions": []metav1.Condition{next}},
	}))
	c.Subresource, c.Note = "status", reconcile.Body(tally)
	return reconcile.Do("the rule's status is not up to date", c)
}

// condition returns the rule's condition EvictionInProgress.
func (v View) condition() metav1.Condition {
	for _, c := range v.Rule.Status.Conditions {
		if c.Type == resourcev1beta2.DeviceTaintConditionEvictionInProgress {
			return c
		}
	}
	return metav1.Condition{}
}

// most is the maximum number of terminating pods in a note.
const most = 1000

// count returns how many pods the rule has evicted, and how many it has yet to evict, in how many
// namespaces.
func (v View) count(now time.Time) (tally Tally, pending, namespaces int) {
	tally.Evicted = v.Tally.Evicted
	in := map[string]bool{}
	for _, d := range v.Driven {
		switch {
		case d.Evicted != nil && v.Rule.Spec.Taint.Effect == resourcev1beta2.DeviceTaintEffectNoExecute:
			if v.since(d, now) && !slices.Contains(v.Tally.Leaving, d.UID) {
				tally.Evicted++
			}
			if len(tally.Leaving) < most {
				tally.Leaving = append(tally.Leaving, d.UID)
			}
		case !d.Leaving:
			pending, in[d.Namespace] = pending+1, true
		}
	}
	return tally, pending, len(in)
}

// since reports whether a pod was evicted after the rule was created and, if the rule's present spec
// has not been reported yet, only recently: an eviction for that spec follows at once.
func (v View) since(d Driven, now time.Time) bool {
	another := v.condition().ObservedGeneration != v.Rule.Generation
	return !d.Evicted.Before(&v.Rule.CreationTimestamp) && (!another || !d.Evicted.Time.Before(now.Add(-often)))
}

// report returns the condition, without a time. Once pods were pending and none is any more, the
// rule is complete.
func (v View) report(evicted, pending, namespaces int) metav1.Condition {
	c := metav1.Condition{Type: resourcev1beta2.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionFalse, ObservedGeneration: v.Rule.Generation}
	switch v.Rule.Spec.Taint.Effect {
	case resourcev1beta2.DeviceTaintEffectNoExecute:
		switch {
		case pending > 0:
			c.Status, c.Reason = metav1.ConditionTrue, "PodsPendingEviction"
			c.Message = count(pending, "1 pod needs to be evicted in ", "%d pods need to be evicted in ") + count(namespaces, "1 namespace.", "%d different namespaces.")
		case evicted > 0:
			c.Reason = "Completed"
		default:
			c.Reason = "NotStarted"
		}
	case resourcev1beta2.DeviceTaintEffectNone:
		c.Reason = "NoEffect"
		c.Message = count(v.Published, "1 published device selected. ", "%d published devices selected. ") +
			count(v.Allocated, "1 allocated device selected. ", "%d allocated devices selected. ") +
			count(pending, "1 pod would be evicted in ", "%d pods would be evicted in ") +
			count(namespaces, "1 namespace ", "%d different namespaces ") +
			"if the effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	default:
		c.Reason, c.Message = "OtherEffect", "Eviction only happens for the NoExecute effect."
	}
	if evicted > 0 {
		if c.Message != "" {
			c.Message += " "
		}
		c.Message += count(evicted, "1 pod ", "%d pods ") + "evicted since starting the controller."
	}
	return c
}

// count formats a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return fmt.Sprintf(many, n)
}
