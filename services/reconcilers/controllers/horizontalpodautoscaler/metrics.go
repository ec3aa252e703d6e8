package horizontalpodautoscaler

import (
	"time"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// The metrics, with upstream's names. The duration of a reconciliation is the time from
// the question to the verdict. The duration of a computation is the time from the request
// to the metrics API to its answer, because the evaluation itself takes negligible time.
//
// Upstream: pkg/controller/podautoscaler/monitor.
const (
	reconciliations = "horizontal_pod_autoscaler_controller_reconciliations_total"
	reconciling     = "horizontal_pod_autoscaler_controller_reconciliation_duration_seconds"
	computations    = "horizontal_pod_autoscaler_controller_metric_computation_total"
	computing       = "horizontal_pod_autoscaler_controller_metric_computation_duration_seconds"
	autoscalers     = "horizontal_pod_autoscaler_controller_num_horizontal_pod_autoscalers"
	desired         = "horizontal_pod_autoscaler_controller_desired_replicas"
)

// The values of their labels.
const (
	up, down, none           = "scale_up", "scale_down", "none"
	internalError, specError = "internal", "spec"
)

var buckets = []float64{
	0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
}

var metrics = []reconcile.Metric{
	{
		Name: reconciliations, Sort: reconcile.Counter, Labels: []string{"action", "error"},
		Help: "Reconciliations of autoscalers. action: scale_up, scale_down or none; error: spec, internal or none.",
	},
	{
		Name: reconciling, Buckets: buckets, Labels: []string{"action", "error"},
		Help: "Seconds that one reconciliation of an autoscaler took. The labels are those of reconciliations_total.",
	},
	{
		Name: computations, Sort: reconcile.Counter, Labels: []string{"action", "error", "metric_type"},
		Help: "Metric computations of autoscalers. action is what the metric alone asks for; metric_type is its type in the autoscaler's spec.",
	},
	{
		Name: computing, Buckets: buckets, Labels: []string{"action", "error", "metric_type"},
		Help: "Seconds that the computation of a metric took. The labels are those of metric_computation_total.",
	},
	{Name: autoscalers, Sort: reconcile.Gauge, Help: "HorizontalPodAutoscalers."},
	{
		Name: desired, Sort: reconcile.Gauge, Labels: []string{"namespace", "hpa_name"},
		Help: "Replicas that an autoscaler wants.",
	},
}

// computed is the counted part of the result of one metric.
type computed struct {
	Type    string  `json:"type"`
	Action  string  `json:"action"`
	Trouble string  `json:"trouble,omitempty"`
	Took    float64 `json:"took,omitempty"`
}

// action returns the change that a proposal alone would make, compared with the status.
func action(p proposal, current int32) string {
	switch {
	case p.failure != "" || p.replicas == current:
		return none
	case p.replicas > current:
		return up
	default:
		return down
	}
}

// figures returns the metric values of a finished round.
func (d Verdict) figures(now time.Time) (all []reconcile.Figure) {
	did, trouble := none, orNone(d.Trouble)
	switch {
	case d.Moved && d.To > d.Scale.Replicas:
		did = up
	case d.Moved:
		did = down
	}
	all = append(all, reconcile.Count(reconciliations, 1, did, trouble),
		reconcile.Figure{Metric: reconciling, Value: max(now.Sub(d.Asked), 0).Seconds(), Labels: []string{did, trouble}})
	for _, m := range d.Computed {
		labels := []string{m.Action, orNone(m.Trouble), m.Type}
		all = append(all, reconcile.Count(computations, 1, labels...), reconcile.Figure{Metric: computing, Value: m.Took, Labels: labels})
	}
	return all
}

func orNone(trouble string) string {
	if trouble == "" {
		return none
	}
	return trouble
}

// figures returns the gauges of an autoscaler.
func (v View) figures() []reconcile.Figure {
	h := v.Autoscaler
	all := []reconcile.Figure{{Metric: autoscalers, Value: 1}}
	if len(h.Status.Conditions) > 0 {
		all = append(all, reconcile.Figure{Metric: desired, Value: float64(h.Status.DesiredReplicas), Labels: []string{h.Namespace, h.Name}})
	}
	return all
}
