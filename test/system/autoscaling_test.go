package system

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The metrics APIs are served as custom kinds with the objects that a metrics server would return: under the
// same paths, and listed by the same labels.
var (
	podMetrics = schema.GroupVersionResource{Group: "metrics.k8s.io", Version: "v1beta1", Resource: "pods"}
	queues     = schema.GroupVersionResource{Group: "external.metrics.k8s.io", Version: "v1beta1", Resource: "queue"}
)

// TestPodsFollowTheLoad: the pods of a Deployment share a load. The autoscaler scales up as soon as there are
// metrics, to the number of pods that the load needs, and down when the load has gone.
func TestPodsFollowTheLoad(t *testing.T) {
	s := here(t)
	s.run(t, "--horizontal-pod-autoscaler-sync-period=500ms", "--horizontal-pod-autoscaler-downscale-stabilization=4s")
	const name = "autoscaled"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	a := &autoscaled{site: s, namespace: name}
	a.deploy(t, "web")
	a.autoscale(t, "web", autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(50))},
	}})
	a.says(t, "web", "AbleToScale True SucceededGetScale")
	a.says(t, "web", "ScalingActive False FailedGetResourceMetric the HPA was unable to compute the replica count: failed to get cpu utilization: "+
		"unable to get metrics for resource cpu: unable to fetch metrics from resource metrics API: the server could not find the requested resource (get pods.metrics.k8s.io)")
	a.tells(t, "web", "Warning FailedGetResourceMetric")

	s.defineMetrics(t, podMetrics, "PodMetrics")
	a.load = 200 // thousandths of a CPU, of which each pod requests 100 and should use 50
	a.comesTo(t, "web", 4)
	a.says(t, "web", "ScalingActive True ValidMetricFound")
	a.tells(t, "web", "Normal SuccessfulRescale New size: 4; reason: cpu resource utilization (percentage of request) above target")
	a.load = 40
	a.comesTo(t, "web", 1)
	a.tells(t, "web", "Normal SuccessfulRescale New size: 1; reason: All metrics below target")
	h, err := s.kube.AutoscalingV2().HorizontalPodAutoscalers(name).Get(t.Context(), "web", metav1.GetOptions{})
	must(t, err)
	if h.Status.LastScaleTime == nil {
		t.Errorf("the autoscaler's status has no lastScaleTime after it has scaled: %+v", h.Status)
	}
}

// TestPodsFollowAQueue does the same with an external metric.
func TestPodsFollowAQueue(t *testing.T) {
	s := here(t)
	s.run(t, "--horizontal-pod-autoscaler-sync-period=500ms", "--horizontal-pod-autoscaler-downscale-stabilization=1s")
	const name = "queued"
	must(t, s.arenas.CreateNamespace(t.Context(), name))
	s.abandon(t, name)
	s.defineMetrics(t, queues, "ExternalMetricValue")
	a := &autoscaled{site: s, namespace: name}
	a.deploy(t, "worker")
	ten := resource.MustParse("10")
	a.autoscale(t, "worker", autoscalingv2.MetricSpec{Type: autoscalingv2.ExternalMetricSourceType, External: &autoscalingv2.ExternalMetricSource{
		Metric: autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "worker"}}},
		Target: autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &ten},
	}})
	a.says(t, "worker", "ScalingActive False FailedGetExternalMetric")
	a.put(t, queues, "ExternalMetricValue", "mine", map[string]string{"of": "worker"}, map[string]any{"metricName": "queue", "value": "29"})
	a.put(t, queues, "ExternalMetricValue", "another", map[string]string{"of": "web"}, map[string]any{"metricName": "queue", "value": "500"})
	a.comesTo(t, "worker", 3)
	a.tells(t, "worker", "Normal SuccessfulRescale New size: 3; reason: external metric queue(")
}

// autoscaled is a namespace with pods that share a load.
type autoscaled struct {
	*site
	namespace string
	load      int // thousandths of a CPU that all pods use together; 0: no metrics
}

func (a *autoscaled) deploy(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "none/runs:it", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}},
		}}}},
	}}
	_, err := a.kube.AppsV1().Deployments(a.namespace).Create(t.Context(), d, metav1.CreateOptions{})
	must(t, err)
}

func (a *autoscaled) autoscale(t *testing.T, name string, metric autoscalingv2.MetricSpec) {
	t.Helper()
	_, err := a.kube.AutoscalingV2().HorizontalPodAutoscalers(a.namespace).Create(t.Context(), &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			MaxReplicas:    5, Metrics: []autoscalingv2.MetricSpec{metric},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

// comesTo waits until the Deployment has a number of replicas, and its status reports it. It keeps the
// metrics up to date meanwhile.
func (a *autoscaled) comesTo(t *testing.T, name string, want int32) {
	t.Helper()
	within(t, patience, fmt.Sprintf("%s has %d replicas", name, want), func() string {
		if missing := a.measure(t, name); missing != "" {
			return missing
		}
		d, err := a.kube.AppsV1().Deployments(a.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		h, err := a.kube.AutoscalingV2().HorizontalPodAutoscalers(a.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err == nil && (*d.Spec.Replicas != want || d.Status.ReadyReplicas != want || h.Status.DesiredReplicas != want || h.Status.CurrentReplicas != want) {
			return fmt.Sprintf("it asks for %d and has %d, its autoscaler says %+v", *d.Spec.Replicas, d.Status.ReadyReplicas, h.Status)
		}
		return ask(err)
	})
}

// measure writes metrics in which every pod has its share of the load.
func (a *autoscaled) measure(t *testing.T, app string) (missing string) {
	t.Helper()
	if a.load == 0 {
		return ""
	}
	pods, err := a.kube.CoreV1().Pods(a.namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "status.phase=Running"})
	if err != nil {
		return err.Error()
	}
	for i := range pods.Items {
		used := fmt.Sprintf("%dm", a.load/len(pods.Items))
		a.put(t, podMetrics, "PodMetrics", pods.Items[i].Name, map[string]string{"app": app}, map[string]any{
			// The controller must regard the sample of a pod that has just become ready as old enough.
			"timestamp": time.Now().Add(time.Minute).UTC().Format(time.RFC3339), "window": "1s",
			"containers": []any{map[string]any{"name": "c", "usage": map[string]any{"cpu": used}}},
		})
	}
	return ""
}

// put stores an object in a metrics API.
func (a *autoscaled) put(t *testing.T, of schema.GroupVersionResource, kind, name string, labels map[string]string, said map[string]any) {
	t.Helper()
	o := &unstructured.Unstructured{Object: said}
	o.SetAPIVersion(of.GroupVersion().String())
	o.SetKind(kind)
	o.SetName(name)
	o.SetLabels(labels)
	within(t, patience, "the metric of "+name+" can be written", func() string {
		_, err := a.dynamic.Resource(of).Namespace(a.namespace).Apply(t.Context(), name, o, metav1.ApplyOptions{FieldManager: "meter", Force: true})
		return ask(err)
	})
}

// says waits until a condition of an autoscaler has a text.
func (a *autoscaled) says(t *testing.T, name, want string) {
	t.Helper()
	within(t, patience, name+" says "+want, func() string {
		h, err := a.kube.AutoscalingV2().HorizontalPodAutoscalers(a.namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		all := ""
		for _, c := range h.Status.Conditions {
			said := fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason, " ", c.Message)
			if strings.HasPrefix(said, want) {
				return ""
			}
			all += said + "; "
		}
		return "it says " + all
	})
}

// tells waits for an Event.
func (a *autoscaled) tells(t *testing.T, name, want string) {
	t.Helper()
	within(t, patience, name+" tells "+want, func() string {
		all, err := a.kube.CoreV1().Events(a.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=HorizontalPodAutoscaler,involvedObject.name=" + name})
		told := ""
		if err == nil {
			for _, e := range all.Items {
				said := e.Type + " " + e.Reason + " " + e.Message
				if strings.HasPrefix(said, want) && e.Source.Component == "horizontal-pod-autoscaler" {
					return ""
				}
				told += said + "; "
			}
		}
		return ask(err) + "it tells " + told
	})
}

// defineMetrics serves a metrics API.
func (s *site) defineMetrics(t *testing.T, of schema.GroupVersionResource, kind string) {
	t.Helper()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{
			"name": of.Resource + "." + of.Group, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, it stands for a metrics server"},
		},
		"spec": map[string]any{
			"group": of.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": of.Resource, "singular": strings.ToLower(kind), "kind": kind, "listKind": kind + "List"},
			"versions": []any{map[string]any{
				"name": of.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}
	definitions := s.dynamic.Resource(definitionsResource)
	_, err := definitions.Create(t.Context(), definition, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		must(t, definitions.Delete(context.WithoutCancel(t.Context()), definition.GetName(), metav1.DeleteOptions{}))
	})
}
