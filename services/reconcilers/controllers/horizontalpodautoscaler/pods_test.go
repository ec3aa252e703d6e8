package horizontalpodautoscaler

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// measured returns a view of a target that asks for wanted replicas, with pods that
// request one CPU each. A text is a pod: "ready", "pending", "failed", "leaving" or
// "starting", and its usage in thousandths of a CPU, "-" if it has no sample; "gone" is a
// sample of a pod that does not exist.
func measured(wanted int32, texts ...string) View {
	v := View{Autoscaler: &autoscalingv2.HorizontalPodAutoscaler{}, Readings: &query.Readings{Scale: &query.Scale{
		Replicas: wanted, Current: wanted, Selector: "app=web",
	}}}
	v.Autoscaler.Namespace = reconciletest.Namespace
	at := metav1.NewTime(now.Add(-10 * time.Second))
	var r query.Reading
	for i, text := range texts {
		state, usage, _ := strings.Cut(text, " ")
		name := fmt.Sprintf("p%d", i)
		if n, err := strconv.ParseInt(usage, 10, 64); err == nil {
			r.Samples = append(r.Samples, query.Sample{Pod: name, Milli: n, At: &at, Window: 30})
		}
		if state != "gone" {
			v.Pods = append(v.Pods, measuredPod(name, state))
		}
	}
	v.Readings.Metrics = []query.Reading{r}
	return v
}

func measuredPod(name, state string) *corev1.Pod {
	p := reconciletest.Pod(name, reconciletest.InPhase(corev1.PodRunning))
	p.Spec.Containers = []corev1.Container{{Name: "c"}}
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	start := metav1.NewTime(now.Add(-time.Hour))
	p.Status.StartTime = &start
	switch state {
	case "pending":
		p.Status.Phase = corev1.PodPending
	case "failed":
		p.Status.Phase = corev1.PodFailed
	case "leaving":
		reconciletest.Deleted[*corev1.Pod](now)(p)
	}
	if state != "starting" {
		reconciletest.ReadySince(now.Add(-time.Hour))(p)
	}
	return p
}

// use returns a CPU metric with a target utilization.
func use(percent int32) autoscalingv2.MetricSpec {
	return autoscalingv2.MetricSpec{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
		Name: corev1.ResourceCPU, Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: &percent},
	}}
}

// Pods without usable samples oppose the change that the others want.
//
// Upstream: GetResourceReplicas and groupPods.
func TestHowManyReplicasPodsWant(t *testing.T) {
	for what, c := range map[string]struct {
		target, wanted int32
		pods           []string
		want           int32
		failure        string
	}{
		"all are busy":                                        {50, 2, []string{"ready 1000", "ready 1000"}, 4, ""},
		"all are as busy as they should be":                   {50, 2, []string{"ready 500", "ready 500"}, 2, ""},
		"none is busy":                                        {50, 2, []string{"ready 100", "ready 100"}, 1, ""},
		"one that has failed is none":                         {50, 1, []string{"ready 1000", "failed 9000"}, 2, ""},
		"one that leaves is none":                             {50, 1, []string{"ready 1000", "leaving 9000"}, 2, ""},
		"one that is pending may take half":                   {50, 2, []string{"ready 1000", "pending"}, 2, ""},
		"or not enough":                                       {50, 2, []string{"ready 2000", "pending"}, 4, ""},
		"what it used before does not count":                  {50, 2, []string{"ready 2000", "pending 9000"}, 4, ""},
		"nor does it keep others from going":                  {50, 2, []string{"ready 100", "pending"}, 1, ""},
		"a little too busy beside a pending one":              {50, 3, []string{"ready 750", "pending"}, 3, ""},
		"one that starts may take half":                       {50, 2, []string{"ready 2000", "starting 5000"}, 4, ""},
		"one that is unknown may be idle":                     {50, 2, []string{"ready 1000", "ready -"}, 2, ""},
		"also where others are a little too busy":             {50, 1, []string{"ready 750", "ready -"}, 1, ""},
		"one that is unknown may be busy":                     {50, 2, []string{"ready 100", "ready -"}, 2, ""},
		"so may two, and more are not wanted for that":        {50, 3, []string{"ready 100", "ready -", "ready -"}, 3, ""},
		"as busy as it requests":                              {90, 3, []string{"ready 610", "ready -"}, 2, ""},
		"or as busy as it may be":                             {200, 2, []string{"ready 100", "ready -"}, 2, ""},
		"fewer do not become more":                            {50, 2, []string{"ready 100", "ready 100", "ready -"}, 2, ""},
		"more do not become fewer":                            {50, 5, []string{"ready 1500", "ready -"}, 5, ""},
		"there is none":                                       {50, 2, nil, 0, "failed to get cpu resource metric value: failed to get cpu utilization: no pods returned by selector while calculating replica count"},
		"none is ready":                                       {50, 2, []string{"pending 100"}, 0, "failed to get cpu resource metric value: failed to get cpu utilization: did not receive metrics for targeted pods (pods might be unready)"},
		"all that is known is of pods that have been deleted": {50, 2, []string{"ready -", "gone 100"}, 0, "failed to get cpu resource metric value: failed to get cpu utilization: no metrics returned matched known pods"},
	} {
		v := measured(c.wanted, c.pods...)
		p := Config{}.filled().proposal(v, use(c.target), v.Readings.Metrics[0], now)
		if p.replicas != c.want || p.failure != c.failure {
			t.Errorf("%s: %d replicas, %q; want %d, %q", what, p.replicas, p.failure, c.want, c.failure)
		}
	}
}

// A pod that has been ready for a whole window of its metric no longer counts as starting.
func TestWhichPodsStart(t *testing.T) {
	for what, c := range map[string]struct {
		started, since, measured time.Duration // ago
		ready                    corev1.ConditionStatus
		want                     bool
	}{
		"long ago":                         {time.Hour, time.Hour, 10 * time.Second, "True", false},
		"lately, and measured since":       {time.Minute, 50 * time.Second, 20 * time.Second, "True", false},
		"lately, and measured before":      {time.Minute, 50 * time.Second, 21 * time.Second, "True", true},
		"lately, and not ready":            {time.Minute, 50 * time.Second, 10 * time.Second, "False", true},
		"lately, and never measured":       {time.Minute, 50 * time.Second, 0, "True", true},
		"as long ago as a start may take":  {5 * time.Minute, 10 * time.Second, 10 * time.Second, "True", false},
		"long ago, and never ready":        {time.Hour, time.Hour - 29*time.Second, 10 * time.Second, "False", true},
		"long ago, and not ready any more": {time.Hour, time.Hour - 30*time.Second, 10 * time.Second, "False", false},
		"nothing is said of it":            {time.Hour, time.Hour, 10 * time.Second, "", true},
	} {
		start := metav1.NewTime(now.Add(-c.started))
		p := &corev1.Pod{Status: corev1.PodStatus{StartTime: &start}}
		if c.ready != "" {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: c.ready, LastTransitionTime: metav1.NewTime(now.Add(-c.since))}}
		}
		s := query.Sample{Window: 30}
		if c.measured > 0 {
			s.At = ptr.To(metav1.NewTime(now.Add(-c.measured)))
		}
		if got := (Config{}).filled().starting(p, s, now); got != c.want {
			t.Errorf("started %s: %v, want %v", what, got, c.want)
		}
	}
	if !(Config{}).filled().starting(&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: "True"}}}}, query.Sample{}, now) {
		t.Error("a pod that has not started counts as started")
	}
}

// A pod's request is the sum of its containers', or its pod-level request.
func TestWhatAPodRequests(t *testing.T) {
	list := func(cpu string) corev1.ResourceList {
		if cpu == "" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	always := corev1.ContainerRestartPolicyAlways
	for what, c := range map[string]struct {
		whole, one, two string
		container       string
		off             bool
		want            int64
		err             string
	}{
		"all containers":            {"", "1", "2", "", false, 3500, ""},
		"one of them":               {"", "1", "2", "two", false, 2000, ""},
		"a sidecar":                 {"", "1", "2", "side", false, 500, ""},
		"one that begins and ends":  {"", "1", "2", "init", false, 0, "container init not found in Pod p"},
		"one that says nothing":     {"", "1", "", "", false, 0, "missing request for cpu in container two of Pod p"},
		"another says nothing":      {"", "1", "", "one", false, 1000, ""},
		"the pod":                   {"5", "1", "2", "", false, 5000, ""},
		"the pod, and one is asked": {"5", "1", "2", "two", false, 2000, ""},
		"the pod, without the gate": {"5", "1", "2", "", true, 3500, ""},
		"the pod, of another sort":  {"memory", "", "", "", false, 0, "missing pod-level request for cpu in Pod p"},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}
		for name, cpu := range map[string]string{"one": c.one, "two": c.two} {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Requests: list(cpu)}})
		}
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: list("9")}}}
		if c.whole != "memory" {
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "side", RestartPolicy: &always, Resources: corev1.ResourceRequirements{Requests: list("500m")}})
		} else {
			p.Spec.InitContainers = nil
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}}
		}
		if c.whole == "5" {
			p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("5")}
		}
		config := Config{}
		if c.off {
			config.Gates = gate.Set{gate.PodLevelResources: false}
		}
		got, err := config.requestOf(p, corev1.ResourceCPU, c.container)
		if said := fmt.Sprint(err); got != c.want || err != nil && said != c.err || err == nil && c.err != "" {
			t.Errorf("%s: the pod requests %d (%v), want %d (%s)", what, got, err, c.want, c.err)
		}
	}
}

// Invalid numbers become 0 or the maximum.
func TestNumbersAreBounded(t *testing.T) {
	for n, want := range map[float64]int32{1.2: 2, 3: 3, math.Inf(1): math.MaxInt32, 1e12: math.MaxInt32} {
		if got := ceil(n); got != want {
			t.Errorf("%v replicas are %d, want %d", n, got, want)
		}
	}
	if ceil(math.NaN()) != 0 || whole(math.NaN()) != 0 || whole(math.Inf(1)) != 0 || whole(7) != 7 {
		t.Error("a value that is no number is converted to one")
	}
	most := judged{reading: query.Reading{Samples: []query.Sample{{Milli: math.MaxInt64 - 5}, {Milli: 7}}}}
	if got := most.value(); got != math.MaxInt64 {
		t.Errorf("very much and a little more is %d", got)
	}
}

// Metrics of other sources, and their failures.
func TestMetricsOfOtherThings(t *testing.T) {
	value := resource.MustParse("10")
	all := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &value}
	each := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &value}
	named := autoscalingv2.MetricIdentifier{Name: "queue"}
	object := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{
			Metric: named, Target: target, DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "s"},
		}}
	}
	external := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: named, Target: target}}
	}
	cpu := func(target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: target}}
	}
	const neither = "neither a value target nor an average value target was set"
	for what, c := range map[string]struct {
		spec    autoscalingv2.MetricSpec
		sum     int64 // -1: the reading failed
		pods    []string
		want    int32
		failure string
	}{
		"an object":                      {object(all), 25000, []string{"ready -", "ready -"}, 5, ""},
		"an object, two pods serve":      {object(all), 25000, []string{"ready -", "pending", "ready -"}, 5, ""},
		"an object, as it should be":     {object(all), 10500, []string{"ready -"}, 2, ""},
		"an object without pods":         {object(all), 25000, nil, 0, "failed to get object metric value: unable to calculate ready pods: no pods returned by selector while calculating replica count"},
		"an object that cannot be read":  {object(all), -1, []string{"ready -"}, 0, "failed to get object metric value: unable to get metric queue: Service on default s/no"},
		"an object, for each":            {object(each), 25000, nil, 3, ""},
		"an object, for each, unread":    {object(each), -1, nil, 0, "failed to get object metric value: failed to get queue object metric: unable to get metric queue: Service on default s/no"},
		"an object without a target":     {object(autoscalingv2.MetricTarget{}), 1, nil, 0, "failed to get object metric value: invalid object metric source: " + neither},
		"a queue":                        {external(all), 25000, []string{"ready -", "ready -"}, 5, ""},
		"a queue without pods":           {external(all), 25000, nil, 0, "failed to get queue external metric value: failed to get external metric queue: unable to calculate ready pods: no pods returned by selector while calculating replica count"},
		"a queue, for each":              {external(each), 25000, nil, 3, ""},
		"a queue, for each as it should": {external(each), 21000, nil, 2, ""},
		"a queue that cannot be read":    {external(each), -1, nil, 0, "failed to get queue external metric value: failed to get queue external metric: unable to get external metric default/queue/nil: no"},
		"a queue without a target":       {external(autoscalingv2.MetricTarget{}), 1, nil, 0, "failed to get queue external metric value: invalid external metric source: " + neither},
		"pods without a target":          {autoscalingv2.MetricSpec{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: named, Target: all}}, 1, nil, 0, "failed to get pods metric value: invalid pods metric source: neither an average value target was set"},
		"a resource without a target":    {cpu(all), 1, nil, 0, "failed to get cpu resource metric value: invalid resource metric source: neither an average utilization target nor an average value (usage) target was set"},
		"a resource, unread":             {cpu(each), -1, nil, 0, "failed to get cpu resource metric value: failed to get cpu usage: unable to get metrics for resource cpu: no"},
		"a share, unread":                {use(50), -1, nil, 0, "failed to get cpu resource metric value: failed to get cpu utilization: unable to get metrics for resource cpu: no"},
		"a resource without pods":        {cpu(each), 1, nil, 0, "failed to get cpu resource metric value: failed to get cpu usage: no pods returned by selector while calculating replica count"},
		"what is not known":              {autoscalingv2.MetricSpec{Type: "Mood"}, 1, nil, 0, `unknown metric source type "Mood"`},
	} {
		v := measured(2, c.pods...)
		r := query.Reading{Samples: []query.Sample{{Milli: c.sum}}}
		if c.sum < 0 {
			r = query.Reading{Failure: "no"}
		}
		p := Config{}.filled().proposal(v, c.spec, r, now)
		failure := strings.ReplaceAll(p.failure, "<nil>", "nil")
		failure = strings.ReplaceAll(failure, "&LabelSelector{}", "nil")
		if p.replicas != c.want || failure != c.failure || (p.reason != "") != (c.failure != "") {
			t.Errorf("%s: %d replicas, %q (%s); want %d, %q", what, p.replicas, failure, p.reason, c.want, c.failure)
		}
	}
}

// With the gate an autoscaler may set its tolerance in each direction.
func TestTolerance(t *testing.T) {
	h := &autoscalingv2.HorizontalPodAutoscaler{}
	h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
		ScaleUp:   &autoscalingv2.HPAScalingRules{Tolerance: ptr.To(resource.MustParse("0.5"))},
		ScaleDown: &autoscalingv2.HPAScalingRules{Tolerance: ptr.To(resource.MustParse("0.25"))},
	}
	for _, c := range []struct {
		gates gate.Set
		want  band
	}{{gate.Set{gate.HPAConfigurableTolerance: true}, band{0.25, 0.5}}, {gate.Set{gate.HPAConfigurableTolerance: false}, band{0.1, 0.1}}} {
		if got := (Config{Gates: c.gates}).filled().band(h); got != c.want {
			t.Errorf("under %v it is %v, want %v", c.gates, got, c.want)
		}
	}
}

// A target whose selector is not known has no pods that another autoscaler could share.
func TestSelectorsOfTargets(t *testing.T) {
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "odd"}}
	set.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}
	rs := reconciletest.ReplicaSet("set", 1)
	rc := &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "old"}, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "web"}}}
	world := reconciletest.NewWorld().Put(kinds.StatefulSets.Kind, set).Put(kinds.ReplicaSets.Kind, rs).Put(kinds.ReplicationControllers.Kind, rc)
	for ref, want := range map[autoscalingv2.CrossVersionObjectReference]bool{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "set"}:       true,
		{APIVersion: "v1", Kind: "ReplicationController", Name: "old"}: true,
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "odd"}:      false,
		{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "gone"}:     false,
		{APIVersion: "example.com/v1", Kind: "Rollout", Name: "x"}:     false,
	} {
		if got := selectorOf(world, reconciletest.Namespace, ref).Matches(labels.Set{"app": "web"}); got != want {
			t.Errorf("the selector of %v matches: %v, want %v", ref, got, want)
		}
	}
}
