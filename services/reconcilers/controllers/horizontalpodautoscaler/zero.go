package horizontalpodautoscaler

import (
	"slices"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// wakes reports whether an autoscaler evaluates metrics while its target has 0 replicas:
// the autoscaler itself removed the last one, and either a metric needs no pods or the
// target may no longer stay at zero. A target that another manager has scaled to zero
// stays switched off.
//
// Upstream: shouldComputeMetricsForZeroReplicas.
func (c Config) wakes(h *autoscalingv2.HorizontalPodAutoscaler) bool {
	asleep := slices.ContainsFunc(h.Status.Conditions, func(s autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return s.Type == autoscalingv2.ScaledToZero && s.Status == "True"
	})
	return c.Gates.On(gate.HPAScaleToZero) && asleep && (ptr.Deref(h.Spec.MinReplicas, 1) != 0 || podless(h))
}

// podless reports whether a metric measures something other than the target's pods.
func podless(h *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(h.Spec.Metrics, func(m autoscalingv2.MetricSpec) bool {
		return m.Type == autoscalingv2.ObjectMetricSourceType || m.Type == autoscalingv2.ExternalMetricSourceType
	})
}

// zero sets the condition ScaledToZero after the scale was written: whether this
// autoscaler scaled its target to zero.
func (c Config) zero(d *Verdict, h *autoscalingv2.HorizontalPodAutoscaler, now time.Time) {
	switch {
	case !c.Gates.On(gate.HPAScaleToZero):
		d.unset(autoscalingv2.ScaledToZero)
	case d.Scale.Replicas > 0 && d.To == 0 && ptr.Deref(h.Spec.MinReplicas, 1) == 0 && podless(h):
		d.set(autoscalingv2.ScaledToZero, true, "ScaledToZero", "the HPA controller scaled the workload to zero", now)
	default:
		d.set(autoscalingv2.ScaledToZero, false, "NotScaledToZero", "the HPA controller did not scale the workload to zero", now)
	}
}
