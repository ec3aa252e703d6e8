package horizontalpodautoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
)

// proposal is how many replicas one metric wants.
type proposal struct {
	replicas int32
	metric   string // what it is called
	status   autoscalingv2.MetricStatus

	// failure is the full error of a metric without a result, cause the error without
	// context, and reason its code.
	failure, cause, reason string
	trouble                string
}

// band is the tolerance below and above the target.
type band struct{ less, more float64 }

func (b band) holds(ratio float64) bool { return 1-b.less <= ratio && ratio <= 1+b.more }

func (c Config) band(h *autoscalingv2.HorizontalPodAutoscaler) band {
	b := band{c.Tolerance, c.Tolerance}
	if behavior := h.Spec.Behavior; behavior != nil && c.Gates.On(gate.HPAConfigurableTolerance) {
		if rules := behavior.ScaleDown; rules != nil && rules.Tolerance != nil {
			b.less = rules.Tolerance.AsApproximateFloat64()
		}
		if rules := behavior.ScaleUp; rules != nil && rules.Tolerance != nil {
			b.more = rules.Tolerance.AsApproximateFloat64()
		}
	}
	return b
}

// errNoTarget reports that a metric has no target value.
func errNoTarget(source, targets string) error {
	return fmt.Errorf("invalid %s metric source: neither %s was set", source, targets)
}

// proposal evaluates one metric.
//
// Upstream: computeReplicasForMetric, with the same words around each error.
func (c Config) proposal(v View, spec autoscalingv2.MetricSpec, r query.Reading, now time.Time) proposal {
	judged := judged{view: v, reading: r, band: c.band(v.Autoscaler), config: c, now: now}
	var p proposal
	var err error
	around := func(e error) error { return e }
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		m := spec.Resource
		p, err = judged.resource(m.Name, "", m.Target)
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, Resource: &autoscalingv2.ResourceMetricStatus{Name: m.Name, Current: current(p)}}
		p.reason, around = "FailedGetResourceMetric", wrap("failed to get %s resource metric value: %w", m.Name)
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		m := spec.ContainerResource
		p, err = judged.resource(m.Name, m.Container, m.Target)
		p.status = autoscalingv2.MetricStatus{Type: spec.Type, ContainerResource: &autoscalingv2.ContainerResourceMetricStatus{Name: m.Name, Container: m.Container, Current: current(p)}}
		p.reason, around = "FailedGetContainerResourceMetric", wrap("failed to get %s container metric value: %w", m.Container)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		p, err = judged.ofPods(spec.Pods)
		p.reason, around = "FailedGetPodsMetric", wrap("failed to get %s metric value: %w", "pods")
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		p, around, err = judged.ofObject(spec.Object)
		p.reason = "FailedGetObjectMetric"
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		p, around, err = judged.external(spec.External)
		p.reason = "FailedGetExternalMetric"
	default:
		err = fmt.Errorf("unknown metric source type %q", string(spec.Type))
		return proposal{reason: "InvalidMetricSourceType", cause: err.Error(), failure: err.Error(), trouble: specError}
	}
	if err != nil {
		return proposal{reason: p.reason, cause: err.Error(), failure: around(err).Error(), trouble: internalError}
	}
	p.reason = ""
	return p
}

// said returns an error in upstream's words, which users read in conditions and Events.
func said(format string, args ...any) error { return fmt.Errorf(format, args...) }

// wrap returns a function that adds context to an error.
func wrap[T any](format string, of T) func(error) error {
	return func(err error) error { return fmt.Errorf(format, of, err) }
}

// judged is a metric under evaluation.
type judged struct {
	view    View
	reading query.Reading
	band    band
	config  Config
	now     time.Time
}

// The desired and the current replicas of the scale.
func (j judged) wanted() int32 { return j.view.Readings.Scale.Replicas }
func (j judged) there() int32  { return j.view.Readings.Scale.Current }

// value returns the sum of all samples, at most MaxInt64.
func (j judged) value() (sum int64) {
	for _, s := range j.reading.Samples {
		if s.Milli > 0 && sum > math.MaxInt64-s.Milli {
			return math.MaxInt64
		}
		sum += s.Milli
	}
	return sum
}

// current returns the value that a proposal reports about a resource, until the caller
// moves it to its final field.
func current(p proposal) autoscalingv2.MetricValueStatus {
	if p.status.Resource == nil {
		return autoscalingv2.MetricValueStatus{}
	}
	return p.status.Resource.Current
}

func milli(value int64, format resource.Format) *resource.Quantity {
	return resource.NewMilliQuantity(value, format)
}

// resource returns the number of replicas at which each pod uses the target amount of a
// resource, absolute or relative to its request.
func (j judged) resource(of corev1.ResourceName, container string, target autoscalingv2.MetricTarget) (proposal, error) {
	format := resource.DecimalSI
	if of == corev1.ResourceMemory {
		format = resource.BinarySI // the format of the metrics server
	}
	says := func(replicas int32, metric string, status autoscalingv2.MetricValueStatus) proposal {
		return proposal{replicas: replicas, metric: metric, status: autoscalingv2.MetricStatus{Resource: &autoscalingv2.ResourceMetricStatus{Current: status}}}
	}
	failure := j.reading.Failure
	switch {
	case target.AverageValue != nil:
		if failure != "" {
			return proposal{}, said("failed to get %s usage: unable to get metrics for resource %s: %s", of, of, failure)
		}
		replicas, usage, err := j.average(target.AverageValue.MilliValue(), of)
		if err != nil {
			return proposal{}, said("failed to get %s usage: %w", of, err)
		}
		return says(replicas, fmt.Sprintf("%s resource", of), autoscalingv2.MetricValueStatus{AverageValue: milli(usage, format)}), nil
	case target.AverageUtilization != nil:
		if failure != "" {
			return proposal{}, said("failed to get %s utilization: unable to get metrics for resource %s: %s", of, of, failure)
		}
		replicas, share, usage, err := j.utilization(*target.AverageUtilization, of, container)
		if err != nil {
			return proposal{}, said("failed to get %s utilization: %w", of, err)
		}
		name := "resource utilization (percentage of request)"
		if container != "" {
			name = "container " + name
		}
		return says(replicas, fmt.Sprintf("%s %s", of, name), autoscalingv2.MetricValueStatus{AverageUtilization: &share, AverageValue: milli(usage, format)}), nil
	default:
		return proposal{}, errNoTarget("resource", "an average utilization target nor an average value (usage) target")
	}
}

// ofPods returns the number of replicas at which the average of a pod metric meets its target.
func (j judged) ofPods(m *autoscalingv2.PodsMetricSource) (proposal, error) {
	switch {
	case j.reading.Failure != "":
		return proposal{}, said("unable to get metric %s: %s", m.Metric.Name, j.reading.Failure)
	case m.Target.AverageValue == nil:
		return proposal{}, errNoTarget("pods", "an average value target")
	}
	replicas, usage, err := j.average(m.Target.AverageValue.MilliValue(), "")
	return proposal{replicas: replicas, metric: "pods metric " + m.Metric.Name, status: autoscalingv2.MetricStatus{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricStatus{Metric: m.Metric, Current: autoscalingv2.MetricValueStatus{AverageValue: milli(usage, resource.DecimalSI)}},
	}}, err
}

// ofObject returns the number of replicas at which a metric of one object meets its
// target, in total or per replica.
func (j judged) ofObject(m *autoscalingv2.ObjectMetricSource) (p proposal, around func(error) error, err error) {
	outer := wrap("failed to get %s metric value: %w", "object")
	p.status = autoscalingv2.MetricStatus{
		Type:   autoscalingv2.ObjectMetricSourceType,
		Object: &autoscalingv2.ObjectMetricStatus{DescribedObject: m.DescribedObject, Metric: m.Metric},
	}
	shown := &p.status.Object.Current
	if j.reading.Failure != "" {
		// Upstream: the words are in this order, and dashboards look for them.
		of := m.DescribedObject
		err = said("unable to get metric %s: %s on %s %s/%s", m.Metric.Name, of.Kind, j.view.Autoscaler.Namespace, of.Name, j.reading.Failure)
	}
	switch {
	case m.Target.Type == autoscalingv2.ValueMetricType && m.Target.Value != nil:
		if err == nil {
			p.replicas, err = j.shared(m.Target.Value.MilliValue())
		}
		p.metric, shown.Value = fmt.Sprintf("%s metric %s", m.DescribedObject.Kind, m.Metric.Name), milli(j.value(), resource.DecimalSI)
	case m.Target.Type == autoscalingv2.AverageValueMetricType && m.Target.AverageValue != nil:
		inner, whole := wrap("failed to get %s object metric: %w", m.Metric.Name), outer
		outer = func(err error) error { return whole(inner(err)) }
		var usage int64
		p.replicas, usage = j.each(m.Target.AverageValue.MilliValue())
		p.metric, shown.AverageValue = fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector), milli(usage, resource.DecimalSI)
	default:
		err = errNoTarget("object", "a value target nor an average value target")
	}
	return p, outer, err
}

// external does the same for the sum of the values of a metric outside the cluster.
func (j judged) external(m *autoscalingv2.ExternalMetricSource) (p proposal, around func(error) error, err error) {
	outer := wrap("failed to get %s external metric value: %w", m.Metric.Name)
	within := outer
	p.status = autoscalingv2.MetricStatus{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricStatus{Metric: m.Metric}}
	p.metric = fmt.Sprintf("external metric %s(%+v)", m.Metric.Name, m.Metric.Selector)
	shown := &p.status.External.Current
	if j.reading.Failure != "" {
		err = said("unable to get external metric %s/%s/%+v: %s", j.view.Autoscaler.Namespace, m.Metric.Name, m.Metric.Selector, j.reading.Failure)
	}
	switch {
	case m.Target.AverageValue != nil:
		inner := wrap("failed to get %s external metric: %w", m.Metric.Name)
		within = func(err error) error { return outer(inner(err)) }
		var usage int64
		p.replicas, usage = j.each(m.Target.AverageValue.MilliValue())
		shown.AverageValue = milli(usage, resource.DecimalSI)
	case m.Target.Value != nil:
		inner := wrap("failed to get external metric %s: %w", m.Metric.Name)
		within = func(err error) error { return outer(inner(err)) }
		if err == nil {
			p.replicas, err = j.shared(m.Target.Value.MilliValue())
		}
		shown.Value = milli(j.value(), resource.DecimalSI)
	default:
		err = errNoTarget("external", "a value target nor an average value target")
	}
	return p, within, err
}

// shared returns the number of replicas at which a value that the ready pods share meets its target.
//
// Upstream: getUsageRatioReplicaCount.
func (j judged) shared(target int64) (int32, error) {
	ratio := float64(j.value()) / float64(target)
	switch {
	case j.wanted() == 0:
		return ceil(ratio), nil
	case j.band.holds(ratio):
		return j.wanted(), nil
	case len(j.view.Pods) == 0:
		return 0, said("unable to calculate ready pods: %w", errNoPods)
	}
	serving := 0
	for _, p := range j.view.Pods {
		if p.Status.Phase == corev1.PodRunning && pod.Ready(p) {
			serving++
		}
	}
	return ceil(ratio * float64(serving)), nil
}

var errNoPods = errors.New("no pods returned by selector while calculating replica count")

// each returns the number of replicas at which each has at most the target share of a
// value, and the present share.
//
// Upstream: GetObjectPerPodMetricReplicas, GetExternalPerPodMetricReplicas.
func (j judged) each(target int64) (replicas int32, usage int64) {
	sum, there := j.value(), j.there()
	replicas = there
	if ratio := float64(sum) / (float64(target) * float64(there)); !j.band.holds(ratio) {
		replicas = ceil(float64(sum) / float64(target))
	}
	if sum == math.MaxInt64 {
		return replicas, sum
	}
	return replicas, whole(math.Ceil(float64(sum) / float64(there)))
}

// ceil rounds up to a number of replicas, at most MaxInt32; 0 for NaN.
func ceil(replicas float64) int32 {
	switch {
	case math.IsNaN(replicas):
		return 0
	case replicas > math.MaxInt32:
		return math.MaxInt32
	default:
		return int32(math.Ceil(replicas))
	}
}

// whole returns a number as an integer. A share among no pods is 0; upstream's result
// depends on the processor.
func whole(n float64) int64 {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return 0
	}
	return int64(n)
}
