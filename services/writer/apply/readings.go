package apply

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// readings finds out how many pods an object has and how busy they are ([events.Readings]). The
// answer also says what could not be read: the controller judges that and may ask again.
func (d *Client) readings(ctx context.Context, a Actor, client rest.Interface, r plan.Request) plan.Response {
	var question events.ReadingsQuestion
	if err := json.Unmarshal(r.Body, &question); err != nil {
		return plan.Response{Code: http.StatusBadRequest, Reason: "Malformed", Message: err.Error()}
	}
	var found events.Readings
	scale, failed := d.scaleOf(ctx, a, client, r)
	if failed != nil && (failed.Code == 0 && failed.Reason == "NoAnswer" || failed.Code == http.StatusTooManyRequests) {
		return *failed // the plan tries again
	}
	if failed != nil {
		found.Failure = failed.Message
	} else {
		found.Scale = scale
		if question.Counts(scale.Replicas) && scale.Selector != "" {
			meter := meter{api: d, client: client, request: r, selector: scale.Selector}
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
func (d *Client) scaleOf(ctx context.Context, a Actor, client rest.Interface, r plan.Request) (*events.Scale, *plan.Response) {
	mappings, err := d.mapping.all(schema.FromAPIVersionAndKind(r.Owner.APIVersion, r.Owner.Kind).GroupKind())
	if err != nil {
		said := refusal(err, http.StatusNotFound)
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
		response := d.readObject(ctx, a, client, look)
		var scale autoscalingv1.Scale
		if response.Code == http.StatusOK {
			if err := json.Unmarshal(response.Body, &scale); err == nil {
				return &events.Scale{
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
	api      *Client
	client   rest.Interface
	request  plan.Request
	selector string

	listed  bool // the resource metrics API has been queried: pods and podsErr are its answer
	pods    []podMetrics
	podsErr error
}

// read reads one metric and measures how long that took. Failures have the words of upstream's
// clients.
func (m *meter) read(ctx context.Context, spec autoscalingv2.MetricSpec) (reading events.Reading) {
	began := time.Now()
	samples, err := m.samples(ctx, spec)
	reading.Samples, reading.Took = samples, time.Since(began).Seconds()
	if err != nil {
		reading.Samples, reading.Failure = nil, err.Error()
	}
	return reading
}

func (m *meter) samples(ctx context.Context, spec autoscalingv2.MetricSpec) ([]events.Sample, error) {
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

// get makes one request to a metrics API and decodes the answer. about is the kind of the measured
// objects; of is the resource for error messages, with the API version; path is the path below
// that version.
func (m *meter) get(ctx context.Context, about kinds.Name, of schema.GroupVersionResource, path []string, params map[string]string, into any) error {
	template := func(plan.Request) []string {
		if of.Version == "" {
			return []string{"/apis", of.Group}
		}
		return append([]string{"/apis", of.Group, of.Version}, path...)
	}
	asked := m.request
	asked.Kind = about
	request := to(m.client, http.MethodGet, template(plan.Request{})).SetHeader("Accept", wholeObject)
	for name, value := range params {
		if value != "" {
			request.Param(name, value)
		}
	}
	span := m.api.trace(ctx, m.request, template, "")
	carry(span, request)
	began := time.Now()
	result := request.MaxRetries(0).Do(ctx)
	var response plan.Response
	err := result.StatusCode(&response.Code).Error()
	if err != nil {
		err = addResource(err, of)
		response = m.api.refusal(ctx, asked, err, response.Code)
	}
	m.api.config.Metrics.requestedIn(span.Trace(), m.request.Verb, response, time.Since(began))
	traced(span, response)
	switch {
	case err != nil && m.api.confidential(ctx, asked):
		return errors.New(response.Message)
	case err != nil:
		return err
	}
	body, err := result.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// all returns the resources that are served for a kind, in any version. It repeats discovery as
// find does.
func (m *mapping) all(kind schema.GroupKind) ([]*meta.RESTMapping, error) {
	mapped, err := m.mapper.RESTMappings(kind)
	if err == nil || !meta.IsNoMatchError(err) || !m.renew() {
		return mapped, err
	}
	return m.mapper.RESTMappings(kind)
}
