package ask

import (
	"context"
	"errors"
	"fmt"
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
)

// The groups of the metrics APIs.
const (
	resourceMetrics = "metrics.k8s.io"
	customMetrics   = "custom.metrics.k8s.io"
	externalMetrics = "external.metrics.k8s.io"
)

// The messages that users read on an autoscaler, in upstream's words.
const (
	unfetched = "unable to fetch metrics from %s metrics API: %w"
	unmapped  = "unable to map kind %s to resource: %w"
)

// podMetrics is the part of the resource metrics API's answer about a pod that the door reads.
type podMetrics struct {
	Metadata   metav1.ObjectMeta `json:"metadata"`
	Timestamp  metav1.Time       `json:"timestamp"`
	Window     metav1.Duration   `json:"window"`
	Containers []struct {
		Name  string              `json:"name"`
		Usage corev1.ResourceList `json:"usage"`
	} `json:"containers"`
}

// values is the answer of the other two APIs, in all of their versions.
type values struct {
	Items []struct {
		DescribedObject corev1.ObjectReference `json:"describedObject"`
		Value           quantity.Quantity      `json:"value"`
	} `json:"items"`
}

// usage returns how much of a resource each pod uses, or one container of it. It lists the pods
// once for all resources.
//
// Upstream: pkg/controller/podautoscaler/metrics, GetResourceMetric.
func (m *meter) usage(ctx context.Context, of corev1.ResourceName, container string) ([]query.Sample, error) {
	if !m.listed {
		var list struct {
			Items []podMetrics `json:"items"`
		}
		pods := schema.GroupVersionResource{Group: resourceMetrics, Version: "v1beta1", Resource: "pods"}
		m.podsErr = m.client.QueryMetrics(ctx, m.request, apiclient.MetricsQuery{
			About: kinds.Pods.Name, Of: pods, Path: []string{"namespaces", m.request.Namespace, "pods"}, Params: map[string]string{"labelSelector": m.selector},
		}, &list)
		m.listed, m.pods = true, list.Items
	}
	switch {
	case m.podsErr != nil:
		return nil, fmt.Errorf(unfetched, "resource", m.podsErr)
	case len(m.pods) == 0:
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	var samples []query.Sample
	for _, p := range m.pods {
		milli, ok := p.uses(of, container)
		if !ok {
			continue
		}
		s := query.Sample{Pod: p.Metadata.Name, Milli: milli}
		if of == corev1.ResourceCPU {
			s.At, s.Window = &p.Timestamp, p.Window.Seconds()
		}
		samples = append(samples, s)
	}
	return samples, nil
}

// uses returns how much of a resource a pod uses. ok is false if that is unknown for one of its
// containers, or for the named one.
func (p podMetrics) uses(of corev1.ResourceName, container string) (milli int64, ok bool) {
	for _, c := range p.Containers {
		if container != "" && c.Name != container {
			continue
		}
		used, known := c.Usage[of]
		if !known {
			return 0, false
		}
		milli, ok = milli+used.MilliValue(), true
	}
	return milli, ok
}

// ofPods returns the value of a metric of each pod.
func (m *meter) ofPods(ctx context.Context, metric autoscalingv2.MetricIdentifier) ([]query.Sample, error) {
	var found values
	err := m.custom(ctx, kinds.Pods.Name, []string{"pods", "*", metric.Name}, "pods", metric.Selector, m.selector, &found)
	switch {
	case err != nil:
		return nil, fmt.Errorf(unfetched, "custom", err)
	case len(found.Items) == 0:
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	samples := make([]query.Sample, 0, len(found.Items))
	for _, v := range found.Items {
		samples = append(samples, query.Sample{Pod: v.DescribedObject.Name, Milli: v.Value.MilliValue()})
	}
	return samples, nil
}

// ofObject returns the value of a metric of one object. A namespaced object is in the namespace of
// the pods.
func (m *meter) ofObject(ctx context.Context, metric autoscalingv2.MetricIdentifier, of autoscalingv2.CrossVersionObjectReference) ([]query.Sample, error) {
	kind, path, name := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind).GroupKind(), []string{"metrics", metric.Name}, "metrics"
	var err error
	if kind != (schema.GroupKind{Kind: "Namespace"}) {
		if name, err = m.resource(kind); err != nil {
			return nil, fmt.Errorf(unfetched, "custom", err)
		}
		path = []string{name, of.Name, metric.Name}
	}
	var found values
	if err = m.custom(ctx, kinds.Name(name), path, name, metric.Selector, "", &found); err == nil && len(found.Items) != 1 {
		err = fmt.Errorf("the custom metrics API server returned %v results when we asked for exactly one", len(found.Items))
	}
	if err != nil {
		return nil, fmt.Errorf(unfetched, "custom", err)
	}
	return []query.Sample{{Milli: found.Items[0].Value.MilliValue()}}, nil
}

// custom queries the custom metrics API, in the known version that the API prefers.
func (m *meter) custom(ctx context.Context, about kinds.Name, path []string, of string, metric *metav1.LabelSelector, pods string, into *values) error {
	selector, err := metav1.LabelSelectorAsSelector(metric)
	if err != nil {
		return err
	}
	version, err := m.customVersion(ctx)
	if err != nil {
		return err
	}
	at := schema.GroupVersionResource{Group: customMetrics, Version: version, Resource: of}
	params := map[string]string{"labelSelector": pods, "metricLabelSelector": selector.String()}
	return m.client.QueryMetrics(ctx, m.request, apiclient.MetricsQuery{About: about, Of: at, Path: append([]string{"namespaces", m.request.Namespace}, path...), Params: params}, into)
}

// customVersion returns the version in which to query the custom metrics API.
//
// Upstream: k8s.io/metrics/pkg/client/custom_metrics, PreferredVersion.
func (m *meter) customVersion(ctx context.Context) (string, error) {
	var group metav1.APIGroup
	err := m.client.QueryMetrics(ctx, m.request, apiclient.MetricsQuery{Of: schema.GroupVersionResource{Group: customMetrics}}, &group)
	switch {
	case apierrors.IsNotFound(err):
		return "", fmt.Errorf("no custom metrics API (%s) registered", customMetrics)
	case err != nil:
		return "", err
	}
	for _, v := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
		if slices.Contains([]string{"v1beta2", "v1beta1"}, v.Version) {
			return v.Version, nil
		}
	}
	return "", errors.New("no known available metric versions found")
}

// external returns every value of a metric of nothing in the cluster.
func (m *meter) external(ctx context.Context, metric autoscalingv2.MetricIdentifier) ([]query.Sample, error) {
	selector, err := metav1.LabelSelectorAsSelector(metric.Selector)
	if err != nil {
		return nil, err
	}
	var found values
	at := schema.GroupVersionResource{Group: externalMetrics, Version: "v1beta1", Resource: metric.Name}
	err = m.client.QueryMetrics(ctx, m.request, apiclient.MetricsQuery{
		Of: at, Path: []string{"namespaces", m.request.Namespace, metric.Name}, Params: map[string]string{"labelSelector": selector.String()},
	}, &found)
	switch {
	case err != nil:
		return nil, fmt.Errorf(unfetched, "external", err)
	case len(found.Items) == 0:
		return nil, errors.New("no metrics returned from external metrics API")
	}
	samples := make([]query.Sample, 0, len(found.Items))
	for _, v := range found.Items {
		samples = append(samples, query.Sample{Milli: v.Value.MilliValue()})
	}
	return samples, nil
}

// resource returns the resource of a kind, with its group.
func (m *meter) resource(kind schema.GroupKind) (string, error) {
	mapped, err := m.discovery.All(kind)
	if err != nil || len(mapped) == 0 {
		return "", fmt.Errorf(unmapped, kind, err)
	}
	return mapped[0].Resource.GroupResource().String(), nil
}
