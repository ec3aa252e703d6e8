package statefulset

import (
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const (
	maxUnavailable      = "statefulset_controller_statefulset_max_unavailable"
	unavailableReplicas = "statefulset_controller_statefulset_unavailable_replicas"
)

var labels = []string{"statefulset_namespace", "statefulset_name", "pod_management_policy"}

// metrics are upstream's metrics under the feature gate MaxUnavailableStatefulSet.
//
// Upstream: pkg/controller/statefulset/metrics.
var metrics = []reconcile.Metric{
	{Name: maxUnavailable, Sort: reconcile.Gauge, Labels: labels, Help: "Pods of a StatefulSet that may be unavailable during a rolling update. Only where the feature gate MaxUnavailableStatefulSet is on."},
	{Name: unavailableReplicas, Sort: reconcile.Gauge, Labels: labels, Help: "Pods of a StatefulSet that are missing or unavailable. Only where the feature gate MaxUnavailableStatefulSet is on."},
}

// measured adds the gauges to the decision.
func measured(v View, now time.Time) reconcile.Decision {
	d := decide(v, now)
	d.Figures = append(d.Figures, v.figures(now)...)
	return d
}

// figures are the gauges of a set; none where the gate is off.
//
// Upstream: the unavailable pods are counted only when a rolling update could go on, so the
// number of before stays while a pod is missing.
func (v View) figures(now time.Time) []reconcile.Figure {
	if !v.Gates.On(gate.MaxUnavailableStatefulSet) {
		return nil
	}
	limit, valid := v.maxUnavailable()
	if !valid {
		return nil
	}
	of := []string{v.Set.Namespace, v.Set.Name, string(v.Set.Spec.PodManagementPolicy)}
	all := []reconcile.Figure{{Metric: maxUnavailable, Value: float64(limit), Labels: of}}
	if v.Set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
		down := v.stage(v.members(), history{}, now).countUnavailable()
		all = append(all, reconcile.Figure{Metric: unavailableReplicas, Value: float64(down), Labels: of})
	}
	return all
}

// maxUnavailable is how many pods may be unavailable in a rolling update: at least 1, which
// is the default. valid is false for a text that is no percentage, which the API refuses.
//
// Upstream: getStatefulSetMaxUnavailable.
func (v View) maxUnavailable() (limit int, valid bool) {
	r := v.Set.Spec.UpdateStrategy.RollingUpdate
	if r == nil {
		return 1, true
	}
	limit, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(r.MaxUnavailable, intstr.FromInt32(1)), v.wanted(), false)
	return max(limit, 1), err == nil
}

// countUnavailable counts the wanted pods that are missing or unavailable.
func (s stage) countUnavailable() (count int) {
	for _, p := range s.replicas {
		if p == nil || s.unavailable(p) {
			count++
		}
	}
	return count
}

// rollSeveral deletes pods of another revision, the highest ordinal first, until
// maxUnavailable pods are unavailable. It deletes no pods below the partition, but counts
// them.
//
// Upstream: updateStatefulSetAfterInvariantEstablished. A pod of another revision that is
// unavailable already counts twice, and is not replaced where it alone is as many as may be.
func (s stage) rollSeveral() (reconcile.Decision, bool) {
	limit, valid := s.maxUnavailable()
	if !valid {
		return reconcile.Nothing("maxUnavailable is neither a number nor a percentage"), true
	}
	var deletes []events.Command
	for at := len(s.replicas) - 1; at >= s.partition(); at-- {
		if p := s.replicas[at]; p != nil && p.DeletionTimestamp == nil && revisionOf(p) != s.update.Name {
			deletes = append(deletes, s.deletion(p))
		}
	}
	left := limit - s.countUnavailable()
	switch {
	case len(deletes) == 0:
		return reconcile.Decision{}, false
	case left <= 0:
		return reconcile.Nothing("as many pods are unavailable as allowed"), true
	}
	return reconcile.Do("pods have another revision", deletes[:min(len(deletes), left, Burst)]...), true
}
