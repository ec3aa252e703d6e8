package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// readings finds out how many pods an object has and how busy they are ([query.Readings]). The
// answer also says what could not be read: the controller judges that and may ask again.
func (a Answerer) readings(ctx context.Context, c *apiclient.Client, r plan.Request) plan.Response {
	var question query.ReadingsQuestion
	if err := json.Unmarshal(r.Body, &question); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	var found query.Readings
	scale, failed := a.scaleOf(ctx, c, r)
	if failed != nil && (failed.Code == 0 && failed.Reason == "NoAnswer" || failed.Code == http.StatusTooManyRequests) {
		return *failed // the plan tries again
	}
	if failed != nil {
		found.Failure = failed.Message
	} else {
		found.Scale = scale
		if question.Counts(scale.Replicas) && scale.Selector != "" {
			meter := meter{client: c, discovery: a.Discovery, request: r, selector: scale.Selector}
			for _, m := range question.Metrics {
				found.Metrics = append(found.Metrics, meter.read(ctx, m))
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return plan.Response{Reason: "Interrupted", Message: context.Cause(ctx).Error()}
	}
	body, err := json.Marshal(found)
	if err != nil {
		return plan.Response{Code: http.StatusInternalServerError, Reason: "Malformed", Message: err.Error()}
	}
	return plan.Response{Code: http.StatusOK, Body: body}
}

// scaleOf reads the scale of an object, under the first resource served for the kind that has it.
//
// Upstream: pkg/controller/podautoscaler, scaleForResourceMappings.
func (a Answerer) scaleOf(ctx context.Context, c *apiclient.Client, r plan.Request) (*query.Scale, *plan.Response) {
	mappings, err := a.Discovery.All(schema.FromAPIVersionAndKind(r.Owner.APIVersion, r.Owner.Kind).GroupKind())
	if err != nil {
		said := apiclient.Refusal(err, http.StatusNotFound)
		if meta.IsNoMatchError(err) {
			said.Code = http.StatusNotFound
		}
		return nil, &said
	}
	first := plan.Response{Code: http.StatusNotFound, Message: "unrecognized resource"}
	for i, mapped := range mappings {
		look := plan.Request{
			Command: r.Command, Verb: plan.Read, Namespace: r.Namespace, Name: r.Owner.Name, Subresource: "scale",
			Kind: kinds.NameOf(mapped.Resource.Group, mapped.Resource.Resource), Version: mapped.Resource.Version,
		}
		response := c.Read(ctx, look)
		var scale autoscalingv1.Scale
		if response.Code == http.StatusOK {
			if err := json.Unmarshal(response.Body, &scale); err == nil {
				return &query.Scale{
					Kind: look.Kind, Version: look.Version, UID: scale.UID, ResourceVersion: scale.ResourceVersion,
					Replicas: scale.Spec.Replicas, Current: scale.Status.Replicas, Selector: scale.Status.Selector,
				}, nil
			}
			response = plan.Response{Code: http.StatusUnprocessableEntity, Message: "the answer is no scale"}
		}
		if i == 0 {
			first = response
		}
	}
	return nil, &first
}

// meter reads metrics for one question.
type meter struct {
	client    *apiclient.Client
	discovery *apiclient.Discovery
	request   plan.Request
	selector  string

	listed  bool // the resource metrics API has been queried: pods and podsErr are its answer
	pods    []podMetrics
	podsErr error
}

// read reads one metric and measures how long that took. Failures have the words of upstream's
// clients.
func (m *meter) read(ctx context.Context, spec autoscalingv2.MetricSpec) (reading query.Reading) {
	began := time.Now()
	samples, err := m.samples(ctx, spec)
	reading.Samples, reading.Took = samples, time.Since(began).Seconds()
	if err != nil {
		reading.Samples, reading.Failure = nil, err.Error()
	}
	return reading
}

func (m *meter) samples(ctx context.Context, spec autoscalingv2.MetricSpec) ([]query.Sample, error) {
	switch {
	case spec.Type == autoscalingv2.ResourceMetricSourceType && spec.Resource != nil:
		return m.usage(ctx, spec.Resource.Name, "")
	case spec.Type == autoscalingv2.ContainerResourceMetricSourceType && spec.ContainerResource != nil:
		return m.usage(ctx, spec.ContainerResource.Name, spec.ContainerResource.Container)
	case spec.Type == autoscalingv2.PodsMetricSourceType && spec.Pods != nil:
		return m.ofPods(ctx, spec.Pods.Metric)
	case spec.Type == autoscalingv2.ObjectMetricSourceType && spec.Object != nil:
		return m.ofObject(ctx, spec.Object.Metric, spec.Object.DescribedObject)
	case spec.Type == autoscalingv2.ExternalMetricSourceType && spec.External != nil:
		return m.external(ctx, spec.External.Metric)
	default:
		return nil, fmt.Errorf("unknown metric source type %q", spec.Type)
	}
}
