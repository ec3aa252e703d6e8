package sim

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
)

// Autoscalers is what users do with autoscalers and their Deployments, while the load goes up
// and down.
var Autoscalers = slices.Concat(slices.Repeat([]Operation{busySome}, 10), []Operation{
	autoscaleSome, autoscaleSome, autoscaleSome, boundSome, boundSome, dropAutoscaler, blindMetrics, crossSome, crossSome, crossSome,
	scaleSome, imageSome, deletePod, failPod, tamperSome, recreateSome,
})

// each is the target load of one pod, in thousandths; tolerated is the fraction by which it may
// differ.
const (
	each      = 100
	tolerated = 0.1
)

func autoscalerRef(name string) events.Ref {
	return events.Ref{Kind: kinds.HorizontalPodAutoscalers.Name, Namespace: namespace, Name: name}
}

// busySome changes the load of a Deployment's pods, for a while at least.
func busySome(w *World) {
	ref, _ := w.some()
	if w.loads == nil {
		w.loads = map[string]int64{}
	}
	w.loads[ref.Name] = int64(w.roll(14)) * 55
	w.note("load: %s has %d to do", ref.Name, w.loads[ref.Name])
	w.pass()
}

// pass has users pause for a few rounds of autoscalers.
func (w *World) pass() { w.lull = w.now.Add(time.Duration(1+w.roll(60)) * time.Second) }

// blindMetrics hides the metrics for a while.
func blindMetrics(w *World) {
	w.blind = w.now.Add(time.Duration(1+w.roll(60)) * time.Second)
	w.note("metrics: nothing is known until %s", w.blind.Format(time.TimeOnly))
}

// crossSome has another client write between the next reads and writes of autoscalers.
func crossSome(w *World) { w.crosses = 1 + w.roll(4) }

// crossed makes that write of the other client.
func (w *World) crossed(d *appsv1.Deployment) {
	if w.crosses == 0 {
		return
	}
	if w.crosses--; w.roll(4) == 0 {
		w.Scale(d.Name, int32(w.roll(6)))
		return
	}
	w.Annotate(deploymentRef(d.Name), fmt.Sprint(w.tally.Steps))
}

// autoscaleSome creates an autoscaler for a Deployment.
func autoscaleSome(w *World) {
	target, _ := w.some()
	ref := autoscalerRef(target.Name)
	if w.api.Get(ref) != nil {
		boundSome(w)
		return
	}
	h := &autoscalingv2.HorizontalPodAutoscaler{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: target.Name},
			MinReplicas:    new(int32(1 + w.roll(2))), MaxReplicas: int32(4 + w.roll(5)),
			Metrics: []autoscalingv2.MetricSpec{w.anyMetric()}, Behavior: w.anyBehavior(),
		},
	}
	w.note("user: autoscale %s from %d to %d", ref.Name, *h.Spec.MinReplicas, h.Spec.MaxReplicas)
	w.create(ref, h)
}

// anyMetric is the load of the pods, as one of two metrics.
func (w *World) anyMetric() autoscalingv2.MetricSpec {
	target := autoscalingv2.MetricTarget{Type: autoscalingv2.AverageValueMetricType, AverageValue: resource.NewMilliQuantity(each, resource.DecimalSI)}
	if w.roll(2) == 0 {
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
func (w *World) anyBehavior() *autoscalingv2.HorizontalPodAutoscalerBehavior {
	if w.roll(3) == 0 {
		return nil
	}
	rules := func() *autoscalingv2.HPAScalingRules {
		return &autoscalingv2.HPAScalingRules{
			StabilizationWindowSeconds: new(int32(30 * w.roll(2))),
			Policies: []autoscalingv2.HPAScalingPolicy{{
				Type: autoscalingv2.PodsScalingPolicy, Value: int32(1 + w.roll(2)), PeriodSeconds: int32(30 + 30*w.roll(2)),
			}},
		}
	}
	return &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleUp: rules(), ScaleDown: rules()}
}

func (w *World) someAutoscaler() *autoscalingv2.HorizontalPodAutoscaler {
	all := w.api.List(kinds.HorizontalPodAutoscalers.Name)
	if len(all) == 0 {
		return nil
	}
	return all[w.roll(len(all))].(*autoscalingv2.HorizontalPodAutoscaler)
}

// boundSome changes the bounds of an autoscaler.
func boundSome(w *World) {
	if h := w.someAutoscaler(); h != nil {
		least, most := int32(1+w.roll(3)), int32(3+w.roll(6))
		w.note("user: the bounds of %s are %d and %d", h.Name, least, most)
		w.api.Change(autoscalerRef(h.Name), func(obj metav1.Object) {
			spec := &obj.(*autoscalingv2.HorizontalPodAutoscaler).Spec
			spec.MinReplicas, spec.MaxReplicas = &least, most
		})
		w.pass()
	}
}

func dropAutoscaler(w *World) {
	if h := w.someAutoscaler(); h != nil {
		w.Delete(autoscalerRef(h.Name), metav1.DeletePropagationBackground)
	}
}

// meter is the metrics API: the ready pods share the load.
func (w *World) meter(d *appsv1.Deployment, selector string) query.Reading {
	w.crossed(d)
	if w.now.Before(w.blind) {
		return query.Reading{Failure: "the metrics API is away"}
	}
	chosen, err := labels.Parse(selector)
	if err != nil {
		return query.Reading{Failure: err.Error()}
	}
	var serving []*corev1.Pod
	for _, obj := range w.api.List(kinds.Pods.Name) {
		pod := obj.(*corev1.Pod)
		if chosen.Matches(labels.Set(pod.Labels)) && active(pod) && len(pod.Status.Conditions) > 0 {
			serving = append(serving, pod)
		}
	}
	var r query.Reading
	for _, pod := range serving {
		r.Samples = append(r.Samples, query.Sample{Pod: pod.Name, Milli: w.loads[pod.Labels["app"]] / int64(len(serving))})
	}
	return r
}

// readings is the answer of the writer's door to an autoscaler's question.
func (a *API) readings(r plan.Request) plan.Response {
	var question query.ReadingsQuestion
	if err := json.Unmarshal(r.Body, &question); err != nil {
		return refusal(400, "BadRequest", err.Error())
	}
	var found query.Readings
	ref, known := a.ownerRef(r.Owner, r.Namespace)
	d, there := a.Get(ref).(*appsv1.Deployment)
	if !known || !there {
		found.Failure = fmt.Sprintf("%s %q not found", r.Owner.Kind, r.Owner.Name)
	} else {
		s := scaleOf(d)
		found.Scale = &query.Scale{
			Kind: ref.Kind, Version: "v1", UID: d.UID, ResourceVersion: d.ResourceVersion,
			Replicas: s.Spec.Replicas, Current: s.Status.Replicas, Selector: s.Status.Selector,
		}
		if n := s.Spec.Replicas; n != 0 && n >= question.Least && n <= question.Most {
			for range question.Metrics {
				found.Metrics = append(found.Metrics, a.Meter(d, s.Status.Selector))
			}
		}
	}
	body, _ := json.Marshal(found) // it has only fields that encoding/json accepts
	return plan.Response{Code: 200, Body: body}
}

func scaleOf(d *appsv1.Deployment) *autoscalingv1.Scale {
	return &autoscalingv1.Scale{
		TypeMeta:   metav1.TypeMeta{APIVersion: "autoscaling/v1", Kind: "Scale"},
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion},
		Spec:       autoscalingv1.ScaleSpec{Replicas: *d.Spec.Replicas},
		Status:     autoscalingv1.ScaleStatus{Replicas: d.Status.Replicas, Selector: metav1.FormatLabelSelector(d.Spec.Selector)},
	}
}

// scale serves the scale of a Deployment.
func (a *API) scale(c *collection, ref events.Ref, old metav1.Object, r plan.Request) plan.Response {
	d, ok := old.(*appsv1.Deployment)
	if !ok {
		return refusal(404, plan.ReasonLacking, "it has no scale")
	}
	switch r.Verb {
	case plan.Look:
		return answer(d)
	case plan.Read:
		said := answer(d)
		said.Body, _ = json.Marshal(scaleOf(d)) // it has only fields that encoding/json accepts
		return said
	case plan.Update:
		var asked autoscalingv1.Scale
		if err := json.Unmarshal(r.Body, &asked); err != nil {
			return refusal(422, "Invalid", err.Error())
		}
		if asked.UID != d.UID || asked.ResourceVersion != "" && asked.ResourceVersion != d.ResourceVersion {
			return refusal(409, "Conflict", "the object has been modified")
		}
		next := d.DeepCopy()
		next.Spec.Replicas = &asked.Spec.Replicas
		return answer(a.store(c, ref, old, next))
	default:
		return refusal(405, "MethodNotAllowed", "a scale is read or updated")
	}
}

// rescale is the note of a turn that writes a scale.
type rescale struct {
	Asked   time.Time
	Verdict struct {
		Scale query.Scale
		To    int32
	}
}

// round is one round of an autoscaler.
type round struct {
	of    asker
	asked time.Time
}

// move is the difference by which an autoscaler has changed a scale.
type move struct {
	at time.Time
	by int32
	// found: a user wrote the scale, and a turn found it as it should be.
	found bool
}

// rescaleOf parses the note of a command that asks for a round, or writes its result.
func rescaleOf(t events.Turn, c events.Command) (rescale, round, bool) {
	var said rescale
	ok := (c.Subresource == "scale" || c.Subresource == query.SubReadings) && json.Unmarshal(c.Note, &said) == nil
	return said, round{asker{t.Controller, t.UID}, said.Asked}, ok
}

// autoscaler is the autoscaler of a turn, in the version that the turn was decided on.
func (g *guard) autoscaler(t events.Turn) *autoscalingv2.HorizontalPodAutoscaler {
	for _, change := range slices.Backward(g.world.api.of(kinds.HorizontalPodAutoscalers.Name).log) {
		if change.Object.GetResourceVersion() == t.ResourceVersion {
			return change.Object.(*autoscalingv2.HorizontalPodAutoscaler)
		}
	}
	return nil
}

// rescales checks a turn that would write a scale: it is within the bounds, and one answer
// never gives two different numbers.
func (g *guard) rescales(t events.Turn, sequence uint64) {
	for _, c := range t.Commands {
		said, round, ok := rescaleOf(t, c)
		if !ok {
			continue
		}
		if c.Verb == events.VerbAsk { // perhaps at the same time as one without a result
			if _, judged := g.rounds[round]; judged {
				g.spare(askedAgain)
			}
			delete(g.rounds, round)
			continue
		}
		to := said.Verdict.To
		if before, again := g.rounds[round]; again {
			if before != to {
				g.breaks("A3", "turn %d of %v writes %d, and %d was judged on that answer before", sequence, t.Key, to, before)
			}
			continue
		}
		g.rounds[round] = to
		if h := g.autoscaler(t); h == nil || to < *h.Spec.MinReplicas || to > h.Spec.MaxReplicas {
			g.breaks("A1", "turn %d wants %d replicas for %v, whose bounds are others: %+v", sequence, to, t.Key, h)
		}
	}
}

// slack is how much later than its write a change of a scale may be remembered.
const slack = 5 * time.Minute

// rescaled checks a written scale: in no period do more pods come or go than the policy allows,
// counted from the writes, whatever a process has forgotten. A change in the other direction
// may be remembered a little too long.
func (g *guard) rescaled(c *carrying, r plan.Request) {
	said, round, ok := rescaleOf(c.turn, c.turn.Commands[r.Command])
	h := g.autoscaler(c.turn)
	if !ok || h == nil || g.written[round] {
		return
	}
	g.written[round] = true
	from, to, now := said.Verdict.Scale.Replicas, said.Verdict.To, g.world.now
	inside := from >= *h.Spec.MinReplicas && from <= h.Spec.MaxReplicas
	if inside && h.Spec.Behavior == nil && to < from {
		g.falls(h, round, from, to, c.sequence)
	}
	switch b := h.Spec.Behavior; {
	case inside && b == nil && to > max(2*from, 4):
		g.breaks("A2", "turn %d has %s go from %d to %d at once", c.sequence, h.Name, from, to)
	case inside && b != nil:
		rules, sign := b.ScaleUp, int32(1)
		if to < from {
			rules, sign = b.ScaleDown, -1
		}
		p := rules.Policies[0]
		since := now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		same, back := sign*(to-from), int32(0)
		for _, m := range g.moves[round.of] {
			if by := sign * m.by; by > 0 && !m.found && m.at.After(since) {
				same += by
			} else if by < 0 && m.at.After(since.Add(-slack)) {
				back -= by
			}
		}
		switch {
		case same <= p.Value:
		case same <= p.Value+back:
			g.spare(wentBack)
		case g.passed(c.turn, now.Sub(since)):
			g.spare(clockAhead)
		default:
			g.breaks("A2", "turn %d has %s go from %d to %d, %d in %d s, where %d may, and %d went back", c.sequence, h.Name, from, to, same, p.PeriodSeconds, p.Value, back)
		}
	}
	g.moves[round.of] = append(g.moves[round.of], move{at: now, by: to - from})
}

// steady is for how long an autoscaler without a behavior keeps the highest recommendation: a
// minute in these worlds, less a little, since reports arrive late.
const steady = 55 * time.Second

// advice is the number of replicas that the readings of a round ask for.
type advice struct {
	asked time.Time
	wants int32
}

// reads records the number that an autoscaler's readings ask for, if that is obvious: every pod
// is ready and reports its load.
func (g *guard) reads(c *carrying, r plan.Request, given plan.Response) {
	var found query.Readings
	_, round, ok := rescaleOf(c.turn, c.turn.Commands[r.Command])
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
	wants, ratio := n, float64(sum/int64(n))/each
	if ratio < 1-tolerated || ratio > 1+tolerated {
		wants = int32(math.Ceil(ratio * float64(n)))
	}
	g.advised[round.of] = append(g.advised[round.of], advice{round.asked, wants})
}

// falls checks a scale that an autoscaler without a behavior has lowered: no readings of the
// last minute ask for more. It checks worlds without faults only: the recommendation of a lost
// answer is unknown, here as upstream, whose memory is that of a process.
func (g *guard) falls(h *autoscalingv2.HorizontalPodAutoscaler, round round, from, to int32, sequence uint64) {
	if g.world.options.Faults > 0 {
		g.spare(faultyAutoscalers)
		return
	}
	for _, a := range g.advised[round.of] {
		if least := min(a.wants, from, h.Spec.MaxReplicas); to < least && !a.asked.After(round.asked) && a.asked.After(g.world.now.Add(-steady)) {
			g.breaks("A6", "turn %d has %s go from %d to %d, and %d were asked for %v ago", sequence, h.Name, from, to, a.wants, g.world.now.Sub(a.asked))
		}
	}
}

// rescaledAlready records a scale that a turn found to be as wanted when it came to write it,
// although no turn of the round had written it: a user has. Its controller may take the change
// for its own, as upstream's does, so that as many more pods may go in the other direction.
func (g *guard) rescaledAlready(c *carrying, r plan.Request, found plan.Response) {
	said, round, ok := rescaleOf(c.turn, c.turn.Commands[r.Command])
	var scale autoscalingv1.Scale
	if !ok || g.written[round] || json.Unmarshal(found.Body, &scale) != nil || scale.Spec.Replicas != said.Verdict.To {
		return
	}
	g.spare(foundWritten)
	g.written[round] = true
	g.moves[round.of] = append(g.moves[round.of], move{at: g.world.now, by: said.Verdict.To - said.Verdict.Scale.Replicas, found: true})
}

// autoscaled reports whether every Deployment with an autoscaler has the number of pods that its
// load needs.
func (w *World) autoscaled() error {
	for _, obj := range w.api.List(kinds.HorizontalPodAutoscalers.Name) {
		h := obj.(*autoscalingv2.HorizontalPodAutoscaler)
		d, ok := w.api.Get(deploymentRef(h.Spec.ScaleTargetRef.Name)).(*appsv1.Deployment)
		if !ok || *d.Spec.Replicas == 0 {
			continue
		}
		n := *d.Spec.Replicas
		want, ratio := n, float64(w.loads[d.Name]/int64(n))/each
		if ratio < 1-tolerated || ratio > 1+tolerated {
			want = int32(math.Ceil(ratio * float64(n)))
		}
		if want = min(max(want, *h.Spec.MinReplicas), h.Spec.MaxReplicas); n != want {
			return fmt.Errorf("%s has %d replicas for %d, and should have %d", d.Name, n, w.loads[d.Name], want)
		}
		if s := h.Status; s.DesiredReplicas != n || s.CurrentReplicas != n {
			return fmt.Errorf("the autoscaler of %s says %d of %d, and there are %d", d.Name, s.CurrentReplicas, s.DesiredReplicas, n)
		}
	}
	return nil
}

// stir records when an object was last written, except for leases.
func (w *World) stir() {
	if n := w.api.Writes - w.renewals; n != w.wrote || w.changes+w.faults > 0 {
		w.wrote, w.stirred = n, w.now
	}
}

// still reports whether no client has written for a while in a world that never sleeps: a
// controller asks again and again, or kubelets renew their leases.
func (w *World) still() bool {
	return w.options.Quiet > 0 && w.now.Sub(w.stirred) >= w.options.Quiet
}
