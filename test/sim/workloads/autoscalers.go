package workloads

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/cluster"
)

// Autoscalers is what users do with autoscalers and their Deployments, while the load goes up
// and down.
var Autoscalers = slices.Concat(slices.Repeat([]cluster.Operation{busySome}, 10), []cluster.Operation{
	autoscaleSome, autoscaleSome, autoscaleSome, boundSome, boundSome, dropAutoscaler, blindMetrics, crossSome, crossSome, crossSome,
	ScaleSome, ImageSome, cluster.DeletePod, cluster.FailPod, tamperSome, recreateSome,
})

// Each is the target load of one pod, in thousandths; tolerated is the fraction by which it may
// differ.
const (
	Each      = 100
	tolerated = 0.1
)

func autoscalerRef(name string) events.Ref {
	return events.Ref{Kind: kinds.HorizontalPodAutoscalers.Name, Namespace: cluster.Namespace, Name: name}
}

// busySome changes the load of a Deployment's pods, for a while at least.
func busySome(w *cluster.Cluster) {
	ref, _ := Some(w)
	if w.Metrics.Loads == nil {
		w.Metrics.Loads = map[string]int64{}
	}
	w.Metrics.Loads[ref.Name] = int64(w.Roll(14)) * 55
	w.Note("load: %s has %d to do", ref.Name, w.Metrics.Loads[ref.Name])
	cluster.Pass(w)
}

// blindMetrics hides the metrics for a while.
func blindMetrics(w *cluster.Cluster) {
	w.Metrics.Blind = w.Now.Add(time.Duration(1+w.Roll(60)) * time.Second)
	w.Note("metrics: nothing is known until %s", w.Metrics.Blind.Format(time.TimeOnly))
}

// crossSome has another client write between the next reads and writes of autoscalers.
func crossSome(w *cluster.Cluster) { w.Metrics.Crosses = 1 + w.Roll(4) }

// crossed makes that write of the other client.
func crossed(w *cluster.Cluster, d *appsv1.Deployment) {
	if w.Metrics.Crosses == 0 {
		return
	}
	if w.Metrics.Crosses--; w.Roll(4) == 0 {
		Scale(w, d.Name, int32(w.Roll(6)))
		return
	}
	w.Annotate(DeploymentRef(d.Name), fmt.Sprint(w.Counts.Steps))
}

// autoscaleSome creates an autoscaler for a Deployment.
func autoscaleSome(w *cluster.Cluster) {
	target, _ := Some(w)
	ref := autoscalerRef(target.Name)
	if w.API.Get(ref) != nil {
		boundSome(w)
		return
	}
	h := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: ref.Name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target.Name},
			MinReplicas:    new(int32(1 + w.Roll(2))), MaxReplicas: int32(4 + w.Roll(5)),
			Metrics: []autoscalingv2.MetricSpec{AnyMetric(w)}, Behavior: anyBehavior(w),
		},
	}
	w.Note("user: autoscale %s from %d to %d", ref.Name, *h.Spec.MinReplicas, h.Spec.MaxReplicas)
	w.Create(ref, h)
}

// AnyMetric is the load of the pods, as one of two metrics.
func AnyMetric(w *cluster.Cluster) autoscalingv2.MetricSpec {
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewMilliQuantity(Each, resource.DecimalSI)}
	if w.Roll(2) == 0 {
		return autoscalingv2.MetricSpec{
			Type:     autoscalingv2.ResourceMetricSourceType,
			Resource: &autoscalingv2.ResourceMetricSource{Name: corev1.ResourceMemory, Target: target},
		}
	}
	return autoscalingv2.MetricSpec{
		Type: autoscalingv2.PodsMetricSourceType,
		Pods: &autoscalingv2.PodsMetricSource{Metric: autoscalingv2.MetricIdentifier{Name: "queue"}, Target: target},
	}
}

// anyBehavior bounds how many pods come or go in a period, or is nil.
func anyBehavior(w *cluster.Cluster) *autoscalingv2.HorizontalPodAutoscalerBehavior {
	if w.Roll(3) == 0 {
		return nil
	}
	rules := func() *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: new(int32(30 * w.Roll(2))),
			Policies: []autoscalingv2.HPAScalingPolicy{{
				Type: autoscalingv2.PodsScalingPolicy, Value: int32(1 + w.Roll(2)), PeriodSeconds: int32(30 + 30*w.Roll(2)),
			}},
		}
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(), ScaleDown: rules()}
}

func someAutoscaler(w *cluster.Cluster) *autoscalingv2.HorizontalPodAutoscaler {
	all := w.API.List(kinds.HorizontalPodAutoscalers.Name)
	if len(all) == 0 {
		return nil
	}
	return all[w.Roll(len(all))].(*autoscalingv2.HorizontalPodAutoscaler)
}

// boundSome changes the bounds of an autoscaler.
func boundSome(w *cluster.Cluster) {
	if h := someAutoscaler(w); h != nil {
		least, most := int32(1+w.Roll(3)), int32(3+w.Roll(6))
		w.Note("user: the bounds of %s are %d and %d", h.Name, least, most)
		w.API.Change(autoscalerRef(h.Name), func(obj metav1.Object) {
			spec := &obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec
			spec.MinReplicas, spec.MaxReplicas = &least, most
		})
		cluster.Pass(w)
	}
}

func dropAutoscaler(w *cluster.Cluster) {
	if h := someAutoscaler(w); h != nil {
		w.Delete(autoscalerRef(h.Name), metav1.DeletePropagationBackground)
	}
}

// Meter is the metrics API: the ready pods share the load.
func Meter(w *cluster.Cluster, d *appsv1.Deployment, selector string) query.Reading {
	crossed(w, d)
	if w.Now.Before(w.Metrics.Blind) {
		return query.Reading{Failure: "the metrics API is away"}
	}
	chosen, err := labels.Parse(selector)
	if err != nil {
		return query.Reading{Failure: err.Error()}
	}
	var serving []*corev1.Pod
	for _, obj := range w.API.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if chosen.Matches(labels.Set(pod.Labels)) && cluster.Active(pod) && len(pod.Status.Conditions) > 0 {
			serving = append(serving, pod)
		}
	}
	var r query.Reading
	for _, pod := range serving {
		r.Samples = append(r.Samples, query.Sample{Pod: pod.Name, Milli: w.Metrics.Loads[pod.Labels["app"]] / int64(len(serving))})
	}
	return r
}

// rescale is the note of a turn that writes a scale.
type rescale struct {
	Asked   time.Time
	Verdict struct {
		Scale query.Scale
		To    int32
	}
}

// rescaleOf parses the note of a command that asks for a round, or writes its result.
func rescaleOf(t events.Turn, c events.Command) (rescale, cluster.Round, bool) {
	var said rescale
	ok := (c.Subresource == "scale" || c.Subresource == query.SubReadings) && json.Unmarshal(c.Note, &said) == nil
	return said, cluster.Round{Of: cluster.Asker{Controller: t.Controller, Object: t.UID}, Asked: said.Asked}, ok
}

// autoscaler is the autoscaler of a turn, in the version that the turn was decided on.
func autoscaler(g *cluster.Guard, t events.Turn) *autoscalingv2.HorizontalPodAutoscaler {
	for _, change := range slices.Backward(g.World.API.Of(kinds.HorizontalPodAutoscalers.Name).Log) {
		if change.Object.GetResourceVersion() == t.ResourceVersion {
			return change.Object.(*autoscalingv2.HorizontalPodAutoscaler)
		}
	}
	return nil
}

// Rescales checks a turn that would write a scale: it is within the bounds, and one answer
// never gives two different numbers.
func Rescales(g *cluster.Guard, t events.Turn, sequence uint64) {
	for _, c := range t.Commands {
		said, round, ok := rescaleOf(t, c)
		if !ok {
			continue
		}
		if c.Verb == events.VerbAsk { // perhaps at the same time as one without a result
			if _, judged := g.Autoscalers.Rounds[round]; judged {
				g.Spare(cluster.AskedAgain)
			}
			delete(g.Autoscalers.Rounds, round)
			continue
		}
		to := said.Verdict.To
		if before, again := g.Autoscalers.Rounds[round]; again {
			if before != to {
				g.Breaks("A3", "turn %d of %v writes %d, and %d was judged on that answer before", sequence, t.Key, to, before)
			}
			continue
		}
		g.Autoscalers.Rounds[round] = to
		if h := autoscaler(g, t); h == nil || to < *h.Spec.MinReplicas || to > h.Spec.MaxReplicas {
			g.Breaks("A1", "turn %d wants %d replicas for %v, whose bounds are others: %+v", sequence, to, t.Key, h)
		}
	}
}

// slack is how much later than its write a change of a scale may be remembered.
const slack = 5 * time.Minute

// Rescaled checks a written scale: in no period do more pods come or go than the policy allows,
// counted from the writes, whatever a process has forgotten. A change in the other direction
// may be remembered a little too long.
func Rescaled(g *cluster.Guard, c *cluster.Taken, r plan.Request) {
	said, round, ok := rescaleOf(c.Turn, c.Turn.Commands[r.Command])
	h := autoscaler(g, c.Turn)
	if !ok || h == nil || g.Autoscalers.Written[round] {
		return
	}
	g.Autoscalers.Written[round] = true
	from, to, now := said.Verdict.Scale.Replicas, said.Verdict.To, g.World.Now
	inside := from >= *h.Spec.MinReplicas && from <= h.Spec.MaxReplicas
	if inside && h.Spec.Behavior == nil && to < from {
		falls(g, h, round, from, to, c.Sequence)
	}
	switch b := h.Spec.Behavior; {
	case inside && b == nil && to > max(2*from, 4):
		g.Breaks("A2", "turn %d has %s go from %d to %d at once", c.Sequence, h.Name, from, to)
	case inside && b != nil:
		rules, sign := b.ScaleUp, int32(1)
		if to < from {
			rules, sign = b.ScaleDown, -1
		}
		p := rules.Policies[0]
		since := now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		same, back := sign*(to-from), int32(0)
		for _, m := range g.Autoscalers.Moves[round.Of] {
			if by := sign * m.By; by > 0 && !m.Found && m.At.After(since) {
				same += by
			} else if by < 0 && m.At.After(since.Add(-slack)) {
				back -= by
			}
		}
		switch {
		case same <= p.Value:
		case same <= p.Value+back:
			g.Spare(cluster.WentBack)
		case g.Passed(c.Turn, now.Sub(since)):
			g.Spare(cluster.ClockAhead)
		default:
			g.Breaks("A2", "turn %d has %s go from %d to %d, %d in %d s, where %d may, and %d went back", c.Sequence, h.Name, from, to, same, p.PeriodSeconds, p.Value, back)
		}
	}
	g.Autoscalers.Moves[round.Of] = append(g.Autoscalers.Moves[round.Of], cluster.Move{At: now, By: to - from})
}

// steady is for how long an autoscaler without a behavior keeps the highest recommendation: a
// minute in these worlds, less a little, since reports arrive late.
const steady = 55 * time.Second

// ReadsScale records the number that an autoscaler's readings ask for, if that is obvious: every pod
// is ready and reports its load.
func ReadsScale(g *cluster.Guard, c *cluster.Taken, r plan.Request, given plan.Response) {
	var found query.Readings
	_, round, ok := rescaleOf(c.Turn, c.Turn.Commands[r.Command])
	if !ok || r.Subresource != query.SubReadings || json.Unmarshal(given.Body, &found) != nil || found.Scale == nil || len(found.Metrics) == 0 {
		return
	}
	n, samples, sum := found.Scale.Replicas, found.Metrics[0].Samples, int64(0)
	if found.Metrics[0].Failure != "" || len(samples) != int(n) || found.Scale.Current != n || n == 0 {
		return
	}
	for _, s := range samples {
		sum += s.Milli
	}
	wants, ratio := n, float64(sum/int64(n))/Each
	if ratio < 1-tolerated || ratio > 1+tolerated {
		wants = int32(math.Ceil(ratio * float64(n)))
	}
	g.Autoscalers.Advised[round.Of] = append(g.Autoscalers.Advised[round.Of], cluster.Advice{Asked: round.Asked, Wants: wants})
}

// falls checks a scale that an autoscaler without a behavior has lowered: no readings of the
// last minute ask for more. It checks worlds without faults only: the recommendation of a lost
// answer is unknown, here as upstream, whose memory is that of a process.
func falls(g *cluster.Guard, h *autoscalingv2.HorizontalPodAutoscaler, round cluster.Round, from, to int32, sequence uint64) {
	if g.World.Settings.Faults > 0 {
		g.Spare(cluster.FaultyAutoscalers)
		return
	}
	for _, a := range g.Autoscalers.Advised[round.Of] {
		if least := min(a.Wants, from, h.Spec.MaxReplicas); to < least && !a.Asked.After(round.Asked) && a.Asked.After(g.World.Now.Add(-steady)) {
			g.Breaks("A6", "turn %d has %s go from %d to %d, and %d were asked for %v ago", sequence, h.Name, from, to, a.Wants, g.World.Now.Sub(a.Asked))
		}
	}
}

// RescaledAlready records a scale that a turn found to be as wanted when it came to write it,
// although no turn of the round had written it: a user has. Its controller may take the change
// for its own, as upstream's does, so that as many more pods may go in the other direction.
func RescaledAlready(g *cluster.Guard, c *cluster.Taken, r plan.Request, found plan.Response) {
	said, round, ok := rescaleOf(c.Turn, c.Turn.Commands[r.Command])
	var scale autoscalingv1.Scale
	if !ok || g.Autoscalers.Written[round] || json.Unmarshal(found.Body, &scale) != nil || scale.Spec.Replicas != said.Verdict.To {
		return
	}
	g.Spare(cluster.FoundWritten)
	g.Autoscalers.Written[round] = true
	g.Autoscalers.Moves[round.Of] = append(g.Autoscalers.Moves[round.Of], cluster.Move{At: g.World.Now, By: said.Verdict.To - said.Verdict.Scale.Replicas, Found: true})
}

// Autoscaled reports whether every Deployment with an autoscaler has the number of pods that its
// load needs.
func Autoscaled(w *cluster.Cluster) error {
	for _, obj := range w.API.List(kinds.HorizontalPodAutoscalers.Name) {
		h := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		d, ok := w.API.Get(DeploymentRef(h.Spec.ScaleTargetRef.Name)).(*appsv1.Deployment)
		if !ok || *d.Spec.Replicas == 0 {
			continue
		}
		n := *d.Spec.Replicas
		want, ratio := n, float64(w.Metrics.Loads[d.Name]/int64(n))/Each
		if ratio < 1-tolerated || ratio > 1+tolerated {
			want = int32(math.Ceil(ratio * float64(n)))
		}
		if want = min(max(want, *h.Spec.MinReplicas), h.Spec.MaxReplicas); n != want {
			return fmt.Errorf("%s has %d replicas for %d, and should have %d", d.Name, n, w.Metrics.Loads[d.Name], want)
		}
		if s := h.Status; s.DesiredReplicas != n || s.CurrentReplicas != n {
			return fmt.Errorf("the autoscaler of %s says %d of %d, and there are %d", d.Name, s.CurrentReplicas, s.DesiredReplicas, n)
		}
	}
	return nil
}

// Stir records when an object was last written, except for leases.
func Stir(w *cluster.Cluster) {
	if n := w.API.Writes - w.Nodes.Renewals; n != w.Rest.Wrote || w.Changes+w.Faults > 0 {
		w.Rest.Wrote, w.Rest.Stirred = n, w.Now
	}
}

// Still reports whether no client has written for a while in a world that never sleeps: a
// controller asks again and again, or kubelets renew their leases.
func Still(w *cluster.Cluster) bool {
	return w.Settings.Quiet > 0 && w.Now.Sub(w.Rest.Stirred) >= w.Settings.Quiet
}
