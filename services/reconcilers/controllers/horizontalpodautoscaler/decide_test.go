package horizontalpodautoscaler

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	now        = reconciletest.Now
	controller = New(Config{})
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now,
		reconciletest.Content(5, carriedOut),
		reconciletest.Indifferent(func(t *rapid.T, v View) View {
			v.Pods = rapid.Permutation(v.Pods).Draw(t, "pods")
			return v
		}),
		reconciletest.Law[View]{Name: "bounded", Holds: bounded},
		reconciletest.Law[View]{Name: "mindful", Holds: mindful},
	)
}

// bounded checks that a scale is written within the bounds, with the version that was
// read, and never for a target that is switched off.
func bounded(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	h := v.Autoscaler
	for _, command := range c.Decide(v, now).Commands {
		if command.Subresource != scale {
			continue
		}
		var to autoscalingv1.Scale
		if err := json.Unmarshal(command.Body, &to); err != nil {
			return err
		}
		from := v.scale()
		switch n := to.Spec.Replicas; {
		case from.Replicas == 0:
			return fmt.Errorf("it switches on what was switched off")
		case n > max(h.Spec.MaxReplicas, *h.Spec.MinReplicas) || n < min(*h.Spec.MinReplicas, h.Spec.MaxReplicas):
			return fmt.Errorf("%d replicas are not from %d to %d", n, *h.Spec.MinReplicas, h.Spec.MaxReplicas)
		case to.ResourceVersion == "" || command.If.ResourceVersion != to.ResourceVersion || to.UID != from.UID:
			return fmt.Errorf("it writes whatever is there")
		}
	}
	return nil
}

func (v View) scale() query.Scale {
	if v.Verdict != nil {
		return v.Verdict.Scale
	}
	return *v.Readings.Scale
}

// mindful checks that a report that ends a round records it, with the recommendations.
func mindful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	d := c.Decide(v, now)
	for i, command := range d.Commands {
		if !command.Reports() || i > 0 {
			continue
		}
		var n note
		if err := json.Unmarshal(command.Note, &n); err != nil || n.Memory == nil || !d.Sure {
			return fmt.Errorf("it tells, and does not remember: %s", command.Note)
		}
		if v.Readings != nil && v.Readings.Scale != nil && now.Sub(v.At) <= lasting && len(n.Memory.Recommended) == 0 {
			return fmt.Errorf("it does not remember what it recommended")
		}
		if !n.Memory.Asked.After(v.Memory.Asked) {
			return fmt.Errorf("the round is not over")
		}
	}
	return nil
}

// carriedOut returns the view after the commands are applied and answered.
func carriedOut(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		var n note
		if len(c.Note) > 0 {
			if err := json.Unmarshal(c.Note, &n); err != nil {
				panic(err)
			}
		}
		switch {
		case c.Verb == events.VerbAsk:
			v.Asked, v.At, v.Verdict, v.Tried = n.Asked, now, nil, nil
			v.Readings = &query.Readings{Failure: "not known"}
		case c.Subresource == scale:
			v.Asked, v.Verdict, v.Tried = n.Asked, n.Verdict, &Tried{OK: true}
		case n.Memory != nil:
			v.Memory, v.Readings, v.Verdict, v.Tried, v.Asked = *n.Memory, nil, nil, nil, time.Time{}
		case c.Verb == events.VerbUpdate:
			v.Autoscaler = &autoscalingv2.HorizontalPodAutoscaler{}
			if err := json.Unmarshal(c.Body, v.Autoscaler); err != nil {
				panic(err)
			}
		}
	}
	return v
}

func anyView(t *rapid.T) View {
	ago := func(what string, most int) time.Time {
		return now.Add(-time.Duration(rapid.IntRange(0, most).Draw(t, what)) * time.Second)
	}
	v := View{Autoscaler: anyAutoscaler(t)}
	v.Autoscaler.CreationTimestamp = metav1.NewTime(now.Add(-time.Hour))
	if rapid.Bool().Draw(t, "looked before") {
		v.Memory.Asked = ago("asked", 60).Add(-time.Minute)
		for i := range rapid.IntRange(0, 3).Draw(t, "recommended") {
			v.Memory.Recommended = append(v.Memory.Recommended, Count{int32(rapid.IntRange(1, 12).Draw(t, "replicas")), v.Memory.Asked.Add(time.Duration(i-300) * time.Second)})
		}
		v.Memory.Added = []Count{{2, ago("added", 90)}}
	}
	if rapid.IntRange(0, 3).Draw(t, "under way") == 0 {
		return v
	}
	v.Asked, v.At = now.Add(-time.Second), ago("answered", 40)
	v.Readings = anyReadings(t, v)
	if v.Readings.Scale == nil {
		return v
	}
	v.Pods = anyPods(t)
	if rapid.IntRange(0, 9).Draw(t, "rivals") == 0 {
		v.Rivals = []string{"default/a", "default/h"}
	}
	if rapid.IntRange(0, 3).Draw(t, "written") == 0 {
		verdict := Config{}.filled().judge(v, now)
		if verdict.rescales() {
			verdict.Attempt = rapid.IntRange(1, attempts).Draw(t, "attempt")
			v.Readings, v.Pods, v.Rivals = nil, nil, nil
			v.Verdict, v.Tried = &verdict, rapid.SampledFrom([]*Tried{{OK: true}, {Message: "no"}, {Version: "9", Message: "the object has changed"}}).Draw(t, "tried")
		}
	}
	return v
}

func anyReadings(t *rapid.T, v View) *query.Readings {
	if rapid.IntRange(0, 9).Draw(t, "unreadable") == 0 {
		return &query.Readings{Failure: "not found"}
	}
	all := &query.Readings{Scale: &query.Scale{
		Kind: kinds.Deployments.Name, Version: "v1", UID: "d", ResourceVersion: "5", Selector: "app=web",
		Replicas: int32(rapid.IntRange(0, 12).Draw(t, "wanted")), Current: int32(rapid.IntRange(0, 12).Draw(t, "there")),
	}}
	for range v.Autoscaler.Spec.Metrics {
		r := query.Reading{Took: 0.01}
		if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
			r.Failure = "unable to fetch"
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "samples") {
			at := metav1.NewTime(now.Add(-10 * time.Second))
			r.Samples = append(r.Samples, query.Sample{Pod: fmt.Sprint("p", i), Milli: int64(rapid.IntRange(0, 2000).Draw(t, "uses")), At: &at, Window: 30})
		}
		all.Metrics = append(all.Metrics, r)
	}
	return all
}

func anyPods(t *rapid.T) (pods []*corev1.Pod) {
	for i := range rapid.IntRange(0, 5).Draw(t, "pods") {
		p := reconciletest.Pod(fmt.Sprint("p", i), reconciletest.InPhase(rapid.SampledFrom([]corev1.PodPhase{"Running", "Running", "Pending", "Failed"}).Draw(t, "phase")))
		if rapid.IntRange(0, 3).Draw(t, "ready") > 0 {
			reconciletest.ReadySince(now.Add(-time.Minute))(p)
		}
		start := metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "started")) * time.Second))
		p.Status.StartTime = &start
		p.Spec.Containers = []corev1.Container{{Name: "c"}}
		if rapid.IntRange(0, 9).Draw(t, "requests") > 0 {
			p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}
		pods = append(pods, p)
	}
	return pods
}

func anyAutoscaler(t *rapid.T) *autoscalingv2.HorizontalPodAutoscaler {
	least := int32(rapid.IntRange(1, 4).Draw(t, "least"))
	h := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "h", UID: "h", ResourceVersion: "1"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: rapid.SampledFrom([]string{"apps/v1", "apps/v1", "a/b/c"}).Draw(t, "version"), Kind: "Deployment", Name: "web"},
			MinReplicas:    &least, MaxReplicas: least + int32(rapid.IntRange(0, 8).Draw(t, "more")),
		},
	}
	for range rapid.IntRange(1, 3).Draw(t, "metrics") {
		h.Spec.Metrics = append(h.Spec.Metrics, anyMetric(t))
	}
	if rapid.Bool().Draw(t, "behaves") {
		h.Spec.Behavior = &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp: &autoscalingv2.HPAScalingRules{
				StabilizationWindowSeconds: ptr.To(int32(rapid.IntRange(0, 300).Draw(t, "window"))), SelectPolicy: ptr.To(anyChoice(t)),
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: 2, PeriodSeconds: 60}},
			},
			ScaleDown: &autoscalingv2.HPAScalingRules{
				SelectPolicy: ptr.To(anyChoice(t)), Tolerance: ptr.To(resource.MustParse("0.3")),
				Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PercentScalingPolicy, Value: 50, PeriodSeconds: 60}},
			},
		}
	}
	return h
}

func anyChoice(t *rapid.T) autoscalingv2.ScalingPolicySelect {
	return rapid.SampledFrom([]autoscalingv2.ScalingPolicySelect{"Max", "Min", "Disabled"}).Draw(t, "policy")
}

func anyMetric(t *rapid.T) autoscalingv2.MetricSpec {
	value := resource.MustParse("500m")
	share := autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}
	each := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: &value}
	all := autoscalingv2.MetricTarget{Type: autoscalingv2.ValueMetricType, Value: &value}
	named := autoscalingv2.MetricIdentifier{Name: "queue"}
	target := rapid.SampledFrom([]autoscalingv2.MetricTarget{share, each, all}).Draw(t, "target")
	return rapid.SampledFrom([]autoscalingv2.MetricSpec{
		{Type: "Resource", Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu", Target: target}},
		{Type: "ContainerResource", ContainerResource: &autoscalingv2.ContainerResourceMetricSource{Name: "cpu", Container: "c", Target: target}},
		{Type: "Pods", Pods: &autoscalingv2.PodsMetricSource{Metric: named, Target: target}},
		{Type: "Object", Object: &autoscalingv2.ObjectMetricSource{Metric: named, Target: target, DescribedObject: autoscalingv2.CrossVersionObjectReference{Kind: "Service", Name: "s"}}},
		{Type: "External", External: &autoscalingv2.ExternalMetricSource{Metric: named, Target: target}},
		{Type: "Unknown"},
	}).Draw(t, "metric")
}

// A round continues with the results of the last turns, but not with those of an earlier
// autoscaler of that name, or of a finished round.
func TestObserve(t *testing.T) {
	asked := now.Add(-2 * time.Second)
	key := events.Key{Namespace: reconciletest.Namespace, Name: "h"}
	h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: "h", UID: "h", ResourceVersion: "1"}}
	h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}
	answer := events.Result{Status: events.Answered, Answer: &events.Answer{
		Note: reconcile.Body(note{Asked: asked}),
		Body: reconcile.Body(query.Readings{Scale: &query.Scale{Replicas: 3, Selector: "app=web"}}),
	}}
	memory := events.Result{Status: events.Applied, Answer: &events.Answer{Note: reconcile.Body(note{Memory: &Memory{Asked: asked.Add(-15 * time.Second)}})}}
	over := events.Result{Status: events.Applied, Answer: &events.Answer{Note: reconcile.Body(note{Memory: &Memory{Asked: asked}})}}
	stale := answer
	stale.Status, stale.Reason = events.Refused, "Stale"
	for _, story := range []struct {
		what       string
		act, tell  events.Result
		of         string
		underWay   bool
		remembered bool
	}{
		{"an answer", answer, memory, "h", true, true},
		{"an answer to another", answer, memory, "other", false, false},
		{"an answer that has been judged", answer, over, "h", false, true},
		{"no server was asked", stale, memory, "h", false, true},
		{"an answer about metrics that have been edited since", answer, memory, "edited", false, true},
	} {
		world := reconciletest.NewWorld().Put(kinds.HorizontalPodAutoscalers.Kind, h)
		world.Put(kinds.Pods.Kind, reconciletest.Pod("a"), reconciletest.Pod("b", reconciletest.Labelled[*corev1.Pod](map[string]string{"app": "db"})))
		for lane, r := range map[events.Lane]events.Result{events.LaneWrite: story.act, events.LaneStatus: story.tell} {
			world.Remember(events.Outcome{Key: key, Lane: lane, At: now, UID: "h", ResourceVersion: "1", Results: []events.Result{r}})
		}
		if story.of != "h" {
			h = h.DeepCopy()
			if h.ResourceVersion = "2"; story.of == "other" {
				h.UID = "another"
			}
			world.Put(kinds.HorizontalPodAutoscalers.Kind, h)
		}
		v, ok := observe(world, key)
		if !ok || (v.Readings != nil) != story.underWay || v.Memory.Asked.IsZero() == story.remembered {
			t.Errorf("%s: the view has %+v", story.what, v)
		}
		if story.underWay && (len(v.Pods) != 1 || v.Pods[0].Name != "a" || v.Rivals != nil) {
			t.Errorf("%s: the view has the pods %v of %v", story.what, v.Pods, v.Rivals)
		}
		h.UID, h.ResourceVersion = "h", "1"
	}
}

// Two autoscalers of one target, or of targets that select the same pods, are rivals. An
// inactive one is no rival: its target is switched off, or it has not evaluated metrics
// yet.
func TestRivals(t *testing.T) {
	key := events.Key{Namespace: reconciletest.Namespace, Name: "a"}
	answer := events.Result{Status: events.Answered, Answer: &events.Answer{
		Note: reconcile.Body(note{Asked: now}), Body: reconcile.Body(query.Readings{Scale: &query.Scale{Replicas: 1, Selector: "app=web"}}),
	}}
	autoscaler := func(name, kind, target string) *autoscalingv2.HorizontalPodAutoscaler {
		h := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: "h", ResourceVersion: "1"}}
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: kind, Name: target}
		h.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: autoscalingv2.ScalingActive, Status: "True", Reason: "ValidMetricFound"}}
		return h
	}
	said := func(h *autoscalingv2.HorizontalPodAutoscaler, of autoscalingv2.HorizontalPodAutoscalerConditionType, reason string) *autoscalingv2.HorizontalPodAutoscaler {
		h.Status.Conditions = []autoscalingv2.HorizontalPodAutoscalerCondition{{Type: of, Status: "False", Reason: reason}}
		return h
	}
	for _, story := range []struct {
		other *autoscalingv2.HorizontalPodAutoscaler
		rival bool
	}{
		{autoscaler("b", "Deployment", "web"), true},
		{autoscaler("b", "StatefulSet", "also"), true},
		{autoscaler("b", "StatefulSet", "else"), false},
		{autoscaler("b", "StatefulSet", "gone"), false},
		{autoscaler("b", "Rollout", "web"), false},
		{said(autoscaler("b", "StatefulSet", "also"), autoscalingv2.ScalingActive, "ScalingDisabled"), false},
		{said(autoscaler("b", "StatefulSet", "also"), autoscalingv2.AbleToScale, "FailedGetScale"), false},
		{said(autoscaler("b", "StatefulSet", "also"), autoscalingv2.ScalingActive, "FailedGetResourceMetric"), true},
		{said(autoscaler("b", "StatefulSet", "also"), autoscalingv2.ScalingActive, "AmbiguousSelector"), true},
	} {
		world := reconciletest.NewWorld(kinds.StatefulSets.Kind, kinds.Deployments.Kind).Put(kinds.HorizontalPodAutoscalers.Kind, autoscaler("a", "Deployment", "web"), story.other)
		world.Put(kinds.Pods.Kind, reconciletest.Pod("p"))
		for name, app := range map[string]string{"also": "web", "else": "db"} {
			set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: reconciletest.Namespace, Name: name, UID: types.UID(name)}}
			set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
			world.Put(kinds.StatefulSets.Kind, set)
		}
		world.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, At: now, UID: "h", ResourceVersion: "1", Results: []events.Result{answer}})
		v, _ := observe(world, key)
		if want := []string{"default/a", "default/b"}; story.rival != slices.Equal(v.Rivals, want) || !story.rival && v.Rivals != nil {
			t.Errorf("%v: the rivals are %v", story.other.Spec.ScaleTargetRef, v.Rivals)
		}
	}
}

// The memory keeps only recommendations that may still be the highest or the lowest of a window.
func TestMemoryIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Verdict
		var all []Count
		window := time.Duration(rapid.IntRange(1, 600).Draw(t, "window")) * time.Second
		at := now
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			at = at.Add(15 * time.Second)
			c := Count{int32(rapid.IntRange(0, 9).Draw(t, "replicas")), at}
			all = append(all, c)
			d.recommend(c.Replicas, window, at)
		}
		back := time.Duration(rapid.IntRange(1, int(window/time.Second)).Draw(t, "back")) * time.Second
		extremes := func(counts []Count) (low, high int32) {
			low, high = 99, -1
			for _, c := range counts {
				if c.At.After(at.Add(-back)) {
					low, high = min(low, c.Replicas), max(high, c.Replicas)
				}
			}
			return low, high
		}
		low, high := extremes(d.Memory.Recommended)
		if wantLow, wantHigh := extremes(all); low != wantLow || high != wantHigh {
			t.Fatalf("in %v it was from %d to %d; remembered is %d to %d", back, wantLow, wantHigh, low, high)
		}
		if len(d.Memory.Recommended) > 20 {
			t.Fatalf("the view remembers %d counts of ten numbers", len(d.Memory.Recommended))
		}
	})
}
