package horizontalpodautoscaler

import (
	"encoding/json"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// An autoscaler that scaled its target to zero evaluates metrics that need no pods, and
// scales it up again. It does not if another manager scaled the target to zero, or if the gate is off.
func TestScaleFromZero(t *testing.T) {
	metric := func(kind autoscalingv2.MetricSourceType) []autoscalingv2.MetricSpec {
		if kind == autoscalingv2.ResourceMetricSourceType {
			return []autoscalingv2.MetricSpec{{Type: kind, Resource: &autoscalingv2.ResourceMetricSource{
				Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)},
			}}}
		}
		return []autoscalingv2.MetricSpec{{Type: kind, External: &autoscalingv2.ExternalMetricSource{
			Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: ptr.To(resource.MustParse("10"))},
		}}}
	}
	on := gate.Set{gate.HPAScaleToZero: true}
	for what, c := range map[string]struct {
		gates  gate.Set
		asleep corev1.ConditionStatus
		metric autoscalingv2.MetricSourceType
		least  int32
		to     int32
	}{
		"it scaled it to zero itself":       {on, "True", autoscalingv2.ExternalMetricSourceType, 0, 3},
		"the gate is off":                   {nil, "True", autoscalingv2.ExternalMetricSourceType, 0, 0},
		"another client scaled it to zero":  {on, "False", autoscalingv2.ExternalMetricSourceType, 0, 0},
		"nothing is known of its sleep":     {on, "", autoscalingv2.ExternalMetricSourceType, 1, 0},
		"its metric is of pods":             {on, "True", autoscalingv2.ResourceMetricSourceType, 0, 0},
		"it must not stay at zero any more": {on, "True", autoscalingv2.ExternalMetricSourceType, 4, 4},
	} {
		controller := New(Config{Gates: c.gates})
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		h.Name, h.UID = "h", "h"
		h.Spec = autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: &c.least, MaxReplicas: 9, Metrics: metric(c.metric)}
		if c.asleep != "" {
			h.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScaledToZero, Status: c.asleep}}
		}
		var question query.ReadingsQuestion
		if d := controller.Decide(View{Autoscaler: h}, now); json.Unmarshal(d.Commands[0].Body, &question) != nil || question.Counts(0) != (c.to > 0) {
			t.Errorf("%s: metrics are asked for at zero: %v", what, question.Counts(0))
		}
		v := View{Autoscaler: h, Asked: now.Add(-time.Second), At: now, Readings: &query.Readings{
			Scale: &query.Scale{Selector: "app=web"}, Metrics: []query.Reading{{Samples: []query.Sample{{Milli: 25000}}}},
		}}
		d := controller.Decide(v, now)
		var to struct{ Spec struct{ Replicas int32 } }
		if len(d.Commands) > 0 && d.Commands[0].Subresource == scale {
			_ = json.Unmarshal(d.Commands[0].Body, &to)
		}
		if to.Spec.Replicas != c.to {
			t.Errorf("%s: the target is scaled to %d, want %d: %s", what, to.Spec.Replicas, c.to, d.Because)
		}
	}
}

// With the gate a condition reports that the autoscaler scaled its target to zero.
func TestWhatIsSaidOfZero(t *testing.T) {
	queue := []autoscalingv2.MetricSpec{{Type: autoscalingv2.ObjectMetricSourceType}}
	for what, c := range map[string]struct {
		off      bool
		least    *int32
		from, to int32
		metrics  []autoscalingv2.MetricSpec
		want     string
	}{
		"it goes to zero":              {false, new(int32), 3, 0, queue, "ScaledToZero"},
		"it stays there":               {false, new(int32), 0, 0, queue, "NotScaledToZero"},
		"it comes back":                {false, new(int32), 0, 3, queue, "NotScaledToZero"},
		"it goes to one":               {false, new(int32), 3, 1, queue, "NotScaledToZero"},
		"one is the least":             {false, ptr.To[int32](1), 3, 0, queue, "NotScaledToZero"},
		"nothing is said of the least": {false, nil, 3, 0, queue, "NotScaledToZero"},
		"its metric is of pods":        {false, new(int32), 3, 0, nil, "NotScaledToZero"},
		"the gate is off":              {true, new(int32), 3, 0, queue, ""},
	} {
		h := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{MinReplicas: c.least, Metrics: c.metrics}}
		d := Verdict{Scale: query.Scale{Replicas: c.from}, To: c.to}
		d.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScaledToZero, Status: "True", Reason: "Before"}}
		config := Config{Gates: gate.Set{gate.HPAScaleToZero: !c.off}}.filled()
		told := config.tried(d, h, Tried{OK: true}, now)
		if got := reasonOf(told.Status, autoscalingv2.ScaledToZero); got != c.want {
			t.Errorf("%s: %q is said, want %q", what, got, c.want)
		}
		did := none
		if c.to > c.from {
			did = up
		} else {
			did = down
		}
		if figure := told.figures(now)[0]; figure.Labels[0] != did || figure.Value != 1 {
			t.Errorf("%s: %v is counted %v times", what, figure.Labels, figure.Value)
		}
	}
}
