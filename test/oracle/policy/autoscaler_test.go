package policy_test

import (
	"fmt"
	"testing"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/objects"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/oracle/policy"
)

func TestAutoscalersLiveAsUpstreams(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		life := autoscalerLife(r)
		diff, err := life.Compare(t)
		if err != nil {
			r.Fatal(err)
		}
		if diff != "" {
			r.Fatalf("upstream (-) and we (+) differ:\n%s\nfrom %d replicas under %v, rounds %+v\n%s", diff, life.Replicas, life.Gates, life.Rounds, oracletest.Page(r, []runtime.Object{life.Autoscaler}))
		}
	})
}

func autoscalerLife(t *rapid.T) policy.Autoscaling {
	exemption.Uses("several-autoscalers")
	gates := oracletest.AnyGates(t, gate.HPAScaleToZero, gate.HPAConfigurableTolerance, gate.PodLevelResources)
	least := int32(rapid.IntRange(0, 4).Draw(t, "least"))
	h := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-h", ResourceVersion: "1"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: rapid.SampledFrom([]string{"apps/v1", "apps/v1", "apps/v1", "apps/v1", "apps/v1", "apps/v1", "apps/v1", "a/b/c"}).Draw(t, "version"), Kind: "Deployment", Name: "web"},
			MinReplicas:    &least, MaxReplicas: max(1, least) + int32(rapid.IntRange(0, 20).Draw(t, "more")),
		},
	}
	if rapid.IntRange(0, 3).Draw(t, "least is said") == 0 {
		h.Spec.MinReplicas = nil
	}
	h.Spec.Metrics = rapid.SliceOfNDistinct(rapid.Custom(autoscalerMetric), 1, 3, func(m autoscalingv2.MetricSpec) string {
		if m.Resource != nil {
			return "resource " + string(m.Resource.Name)
		}
		return string(m.Type)
	}).Draw(t, "metrics")
	if rapid.Bool().Draw(t, "behaves") {
		exemption.Uses("windows-of-policies") // both directions have the same
		periods := rapid.SampledFrom([][]int32{{60}, {15, 60}, {30, 45}}).Draw(t, "periods")
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: autoscalerRules(t, periods), ScaleDown: autoscalerRules(t, periods)}
		if h.Spec.Behavior.ScaleUp.StabilizationWindowSeconds == nil {
			h.Spec.Behavior.ScaleUp.StabilizationWindowSeconds = new(int32(0))
		}
	}
	life := policy.Autoscaling{Gates: gates, Autoscaler: h, Replicas: int32(rapid.IntRange(0, 12).Draw(t, "replicas"))}
	calm := rapid.Bool().Draw(t, "few surprises")
	// Upstream's recorder emits at most 25 Events about an object at once.
	exemption.Uses("many-events")
	for range rapid.IntRange(1, 25/(len(h.Spec.Metrics)+2)).Draw(t, "rounds") {
		life.Rounds = append(life.Rounds, autoscalerLook(t, h, calm))
	}
	return life
}

func autoscalerRules(t *rapid.T, periods []int32) *autoscalingv2.HPAScalingRules {
	rules := &autoscalingv2.HPAScalingRules{
		SelectPolicy:               new(rapid.SampledFrom([]autoscalingv2.ScalingPolicySelect{"Max", "Max", "Min", "Disabled"}).Draw(t, "select")),
		StabilizationWindowSeconds: rapid.SampledFrom([]*int32{nil, new(int32(0)), new(int32(15)), new(int32(30)), new(int32(50)), new(int32(300))}).Draw(t, "window"),
		Tolerance:                  rapid.SampledFrom([]*resource.Quantity{nil, nil, new(resource.MustParse("0")), new(resource.MustParse("0.3"))}).Draw(t, "tolerance"),
	}
	for _, p := range periods {
		rules.Policies = append(rules.Policies, autoscalingv2.HPAScalingPolicy{
			Type:  rapid.SampledFrom([]autoscalingv2.HPAScalingPolicyType{"Pods", "Percent"}).Draw(t, "policy"),
			Value: int32(rapid.SampledFrom([]int{1, 2, 4, 10, 33, 50, 100}).Draw(t, "value")), PeriodSeconds: p,
		})
	}
	return rules
}

func autoscalerMetric(t *rapid.T) autoscalingv2.MetricSpec {
	value := resource.MustParse(rapid.SampledFrom([]string{"300m", "500m", "1", "2"}).Draw(t, "value"))
	share := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32(rapid.SampledFrom([]int{30, 50, 80, 120}).Draw(t, "share")))}
	each := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &value}
	all := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &value}
	of := rapid.SampledFrom([]autoscalingv2.MetricTarget{share, share, each}).Draw(t, "of a resource")
	one := rapid.SampledFrom([]autoscalingv2.MetricTarget{each, all}).Draw(t, "of one")
	named := autoscalingv2.MetricIdentifier{Name: "queue", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"of": "web"}}}
	return rapid.SampledFrom([]autoscalingv2.MetricSpec{
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: of}},
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: of}},
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "memory", Target: of}},
		{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "c", Target: of}},
		{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: named, Target: each}},
		{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{Metric: named, Target: one, DescribedObject: autoscalingv2.CrossVersionObjectReference{APIVersion: "v1", Kind: "Service", Name: "s"}}},
		{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: named, Target: one}},
		{Type: "Unknown"},
	}).Draw(t, "metric")
}

func autoscalerLook(t *rapid.T, h *autoscalingv2.HorizontalPodAutoscaler, calm bool) policy.Look {
	rare := func(what string) bool { return rapid.IntRange(0, 11).Draw(t, what) == 0 && !calm }
	l := policy.Look{Current: int32(rapid.IntRange(1, 12).Draw(t, "current")), Selector: "app=web", To: -1}
	exemption.Uses("scaled-meanwhile") // before the round, and never during it
	if rare("a user scales") {
		l.To = int32(rapid.SampledFrom([]int{0, 0, 1, 2, 5, 12, 30}).Draw(t, "to"))
	}
	if rare("no selector") {
		l.Selector = rapid.SampledFrom([]string{"", "a b c"}).Draw(t, "selector")
	}
	if rare("absent") {
		l.Absent = `deployments.apps "web" not found`
	}
	if rare("refused") {
		l.Refused = "it is forbidden"
	}
	// If several pods do not state their requests, upstream names any of them.
	exemption.Uses("which-pod-says-nothing")
	vague := rapid.IntRange(0, 30).Draw(t, "vague")
	for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
		l.Pods = append(l.Pods, autoscaledPod(t, fmt.Sprint("pod-", i), !calm && vague == i))
	}
	busy := rapid.SampledFrom([]int{0, 0, 100, 400, 700, 1000, 1500}).Draw(t, "busy")
	for _, spec := range h.Spec.Metrics {
		r := query.Reading{}
		if rare("fails") {
			r.Failure = "no answer"
		}
		samples := 1
		exemption.Uses("average-of-none") // at least one sample
		if spec.Object == nil {
			samples = rapid.IntRange(1, 7).Draw(t, "samples")
		}
		for i := range samples {
			at := metav1.NewTime(objects.Now.Truncate(time.Second).Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "measured")) * time.Second))
			r.Samples = append(r.Samples, query.Sample{
				Pod: fmt.Sprint("pod-", i), Milli: int64(busy + rapid.SampledFrom([]int{0, 0, 50, 300}).Draw(t, "uses")), At: &at, Window: 30,
			})
		}
		l.Metrics = append(l.Metrics, r)
	}
	return l
}

func autoscaledPod(t *rapid.T, name string, vague bool) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}}}
	request := func(what string) corev1.ResourceRequirements {
		if vague && rapid.Bool().Draw(t, what) {
			return corev1.ResourceRequirements{}
		}
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceMemory: resource.MustParse("700m")}}
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: request("requests")}}
	if rapid.IntRange(0, 5).Draw(t, "sidecar") == 0 {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: new(corev1.ContainerRestartPolicyAlways), Resources: request("sidecar requests")}}
	}
	if rapid.IntRange(0, 7).Draw(t, "as a whole") == 0 {
		p.Spec.Resources = new(request("whole"))
	}
	p.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Running", "Running", "Running", "Running", "Pending", "Failed", "Succeeded"}).Draw(t, "phase")
	ago := func(what string) metav1.Time {
		return metav1.NewTime(objects.Now.Add(-time.Duration(rapid.SampledFrom([]int{0, 10, 29, 40, 100, 250, 400}).Draw(t, what)) * time.Second))
	}
	if rapid.IntRange(0, 9).Draw(t, "started") > 0 {
		p.Status.StartTime = new(ago("start"))
	}
	if rapid.IntRange(0, 9).Draw(t, "known") > 0 {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, LastTransitionTime: ago("since"), Status: rapid.SampledFrom([]corev1.ConditionStatus{"True", "True", "True", "False"}).Draw(t, "ready")}}
	}
	if rapid.IntRange(0, 11).Draw(t, "leaves") == 0 {
		p.DeletionTimestamp, p.Finalizers = new(ago("left")), []string{"a/b"}
	}
	return p
}
