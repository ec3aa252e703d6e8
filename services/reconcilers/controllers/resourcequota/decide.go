package resourcequota

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/period"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// decide writes the usage if it differs, and asks for the next count. The write is
// conditional on the version of the quota, so a charge by the API server in between
// causes a new decision.
//
// Upstream: pkg/controller/resourcequota/resource_quota_controller.go.
func decide(v View, now time.Time) reconcile.Decision {
	used := v.used(now)
	next := v.next(now)
	if len(used) < len(v.Quota.Spec.Hard) {
		next = earlier(next, period.Next(v.Quota.UID, search, now))
	}
	switch status := v.Quota.Status; {
	case !equal(v.Quota.Spec.Hard, status.Hard):
		return v.tell("the limits have changed", used, now, next)
	case !equal(used, status.Used):
		return v.tell("another amount is used than the quota says", used, now, next)
	default:
		return reconcile.Wake(next, "the quota's status is up to date")
	}
}

func (v View) tell(because string, used corev1.ResourceList, now, next time.Time) reconcile.Decision {
	told := *v.Quota // the status is made anew
	told.Status = corev1.ResourceQuotaStatus{Hard: v.Quota.Spec.Hard, Used: used}
	d := reconcile.Do(because, reconcile.UpdateStatus(kinds.ResourceQuotas.Kind, &told))
	d.WakeAt = earlier(next, now.Add(recount))
	return d
}

// used is the usage of everything that the quota limits. Names that cannot be
// measured, such as objects of a kind that the cluster does not have, keep their
// values.
func (v View) used(now time.Time) corev1.ResourceList {
	total, hard := corev1.ResourceList{}, v.Quota.Spec.Hard
	for name := range hard {
		if before, ok := v.Quota.Status.Used[name]; ok {
			total[name] = before.DeepCopy()
		}
	}
	for name, amount := range v.measure(now) {
		total[name] = amount
	}
	return total
}

// measure is the sum of all meters, for the names that the quota limits. Only pods and
// claims can be in scopes, so nothing else counts in a quota with scopes.
func (v View) measure(now time.Time) corev1.ResourceList {
	sum, scopes, m := corev1.ResourceList{}, scopes(v.Quota), v.meters()
	add := func(used corev1.ResourceList) {
		for name, amount := range used {
			if total, limited := sum[name]; limited {
				total.Add(amount)
				sum[name] = total
			}
		}
	}
	for name := range v.Quota.Spec.Hard {
		_, counted := v.Counts[name]
		if counted || m.pods.measures(name) || m.services.measures(name) || m.claims.measures(name) || m.devices.measures(name) {
			sum[name] = resource.Quantity{Format: resource.DecimalSI}
		}
	}
	for _, p := range v.Pods {
		if inAll(p, scopes, v.inScope) {
			add(v.podUsage(p, now))
		}
	}
	for _, c := range v.Claims {
		if inAll(c, scopes, claimInScope) {
			add(claimUsage(c))
		}
	}
	if len(scopes) > 0 {
		return sum
	}
	for _, s := range v.Services {
		add(serviceUsage(s))
	}
	for _, c := range v.Devices {
		add(v.deviceUsage(c, now))
	}
	for name, objects := range v.Counts {
		sum[name] = *resource.NewQuantity(objects, resource.DecimalSI)
	}
	return sum
}

// next is when to count again if nothing happens: once every period, with an offset
// for each quota, and when a terminating pod should have gone. Zero means never.
func (v View) next(now time.Time) (at time.Time) {
	at = period.Next(v.Quota.UID, v.Period, now)
	if freed := v.freed(now); !freed.IsZero() {
		at = earlier(at, freed)
	}
	return at
}

// freed is when the usage will fall because a terminating pod should have gone; zero
// means never.
func (v View) freed(now time.Time) time.Time {
	var moments []time.Time
	for _, p := range v.Pods {
		if at, leaving := due(p); leaving && at.After(now) && !ended(p) && v.charges(p, now) {
			moments = append(moments, at)
		}
	}
	if len(moments) == 0 {
		return time.Time{}
	}
	slices.SortFunc(moments, time.Time.Compare)
	used := v.measure(now)
	for _, at := range moments { // mostly the first: a charge that passes from a pod to its claim is not freed
		if !equal(v.measure(at), used) {
			return at
		}
	}
	return time.Time{}
}

// charges reports whether a pod uses anything limited while it has not ended.
func (v View) charges(p *corev1.Pod, now time.Time) bool {
	if !inAll(p, scopes(v.Quota), v.inScope) {
		return false
	}
	for name := range v.podUsage(p, now) {
		if _, limited := v.Quota.Spec.Hard[name]; limited && name != count(kinds.Pods.Name) {
			return true
		}
	}
	return false
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// equal reports whether two lists have the same names and amounts, in any notation.
func equal(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, amount := range a {
		if other, ok := b[name]; !ok || amount.Cmp(other) != 0 {
			return false
		}
	}
	return true
}
