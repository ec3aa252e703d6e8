// Package horizontalpodautoscaler keeps a target's pods as many as it takes for each to
// be as busy as an autoscaler wants.
//
// How busy pods are is not watched, and the target of an autoscaler may be of any kind.
// So each autoscaler's turn comes round in [Config].Period, and a round has three steps,
// each on record:
//
//   - It asks for the scale of its target, and for the metrics. The writer reads both;
//     the answer has the few numbers that count.
//   - It judges: of what each metric proposes the most, not less than was recommended a
//     while ago (so that it does not go up and down), no faster than it may, and within
//     its bounds. If that is another number of replicas the scale is written, on condition
//     that no other client has written it since.
//   - It tells how that went, in its status and in Events.
//
// What was recommended and done before is remembered in the note of the last step,
// which outlives this process. Upstream keeps it in memory: a new leader there
// waits for a window again before it takes pods away, and may add a period's worth too
// many.
//
// The scale is of its target alone; a pod that several autoscalers select counts for
// none of them, and they say so. Of an autoscaler of a kind that is not built in it is
// known only which target it has, and not which pods that selects.
//
// Upstream: pkg/controller/podautoscaler.
package horizontalpodautoscaler

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config is what the controller needs to know. Zero values mean upstream's; less than
// zero means none.
type Config struct {
	// Period is how often an autoscaler looks; 15 s.
	Period time.Duration `json:"period,omitempty"`
	// Stabilization is for how long it does not go below what it recommended, where
	// its behavior does not say; 5 min.
	Stabilization time.Duration `json:"stabilization,omitempty"`
	// Tolerance is by which part a metric may differ from what it should be, where its
	// behavior does not say; 0.1.
	Tolerance float64 `json:"tolerance,omitempty"`
	// Startup is for how long after its start the CPU that a pod uses counts only when
	// it is ready; 5 min. Readiness is how long after its start a pod that was not ready
	// since then counts as never ready; 30 s.
	Startup   time.Duration `json:"startup,omitempty"`
	Readiness time.Duration `json:"readiness,omitempty"`
	// Gates are the feature gates that are not at Kubernetes' defaults.
	Gates gate.Set `json:"-"`
}

// Upstream: pkg/controller/podautoscaler/config/v1alpha1.
func (c Config) filled() Config {
	return Config{
		Period:        cmp.Or(c.Period, 15*time.Second),
		Stabilization: max(0, cmp.Or(c.Stabilization, 5*time.Minute)),
		Tolerance:     max(0, cmp.Or(c.Tolerance, 0.1)),
		Startup:       max(0, cmp.Or(c.Startup, 5*time.Minute)),
		Readiness:     max(0, cmp.Or(c.Readiness, 30*time.Second)),
		Gates:         c.Gates,
	}
}

// Settings are a configuration as turns record it.
type Settings struct {
	Autoscaling Config   `json:"autoscaling"`
	Gates       gate.Set `json:"gates,omitempty"`
}

// New makes the controller. A key is an autoscaler.
func New(config Config) reconcile.Controller[View] {
	config.Gates = config.Gates.Of(gate.HPAScaleToZero, gate.HPAConfigurableTolerance, gate.PodLevelResources)
	filled := config.filled()
	return reconcile.Controller[View]{
		Name:     "horizontal-pod-autoscaler-controller",
		Aliases:  []string{"horizontalpodautoscaling"},
		Identity: "horizontal-pod-autoscaler",
		Source:   "horizontal-pod-autoscaler",
		Queue:    "horizontalpodautoscaler",
		Owns:     &kinds.HorizontalPodAutoscalers.Kind,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.HorizontalPodAutoscalers.Kind),
			{Kind: kinds.Pods.Kind},
			{Kind: kinds.ReplicationControllers.Kind},
			{Kind: kinds.ReplicaSets.Kind},
			{Kind: kinds.Deployments.Kind},
			{Kind: kinds.StatefulSets.Kind},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbAsk, Any: true, Subresource: events.SubReadings, On: reconcile.Beside},
			{Verb: events.VerbUpdate, Any: true, Subresource: scale, On: reconcile.Beside, NamedBy: ".spec.scaleTargetRef.name", Fields: []string{".spec.replicas", ".status"}},
			{Verb: events.VerbUpdate, Kind: kinds.HorizontalPodAutoscalers.Name, Subresource: "status", On: reconcile.Itself},
		},
		Tells: reconcile.Tells{
			{Kind: kinds.HorizontalPodAutoscalers.Kind, On: reconcile.Itself},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(Settings{config, config.Gates}),
		Observe:   observe,
		Decide:    filled.decide,
	}
}

// scale is the subresource that says how many pods a target wants.
const scale = "scale"

// View is what one turn can see.
type View struct {
	Autoscaler *autoscalingv2.HorizontalPodAutoscaler `json:"autoscaler"`
	// Memory is what is known of the rounds that are over.
	Memory Memory `json:"memory,omitzero"`
	// Known is when Memory.Asked was, on the clock of who looks, where that lies ahead of it.
	Known time.Time `json:"known,omitzero"`
	// Begun is the round of the last question or write, where none is known to be over that
	// began then or later, whether it counts any more or not.
	Begun time.Time `json:"begun,omitzero"`

	// Asked is when the round began that is not over, zero where there is none: its
	// question was answered At, or without success.
	Asked time.Time `json:"asked,omitzero"`
	At    time.Time `json:"at,omitzero"`
	// Readings is the answer.
	Readings *events.Readings `json:"readings,omitempty"`
	// Pods are those that the scale selects; Unselected is why it cannot select any.
	Pods       []*corev1.Pod `json:"pods,omitempty"`
	Unselected string        `json:"unselected,omitempty"`
	// Rivals are all autoscalers, as namespace/name, that select some of them, if
	// others do.
	Rivals []string `json:"rivals,omitempty"`

	// Verdict is what was judged, where a scale was written because of it, and Tried
	// what came of that.
	Verdict *Verdict `json:"verdict,omitempty"`
	Tried   *Tried   `json:"tried,omitempty"`
}

// Tried is what became of the write of a scale.
type Tried struct {
	OK bool `json:"ok,omitempty"`
	// Version stood in the way, where another client had written it.
	Version string `json:"version,omitempty"`
	Message string `json:"message,omitempty"`
}

// Memory is what must not be forgotten from one round to the next.
type Memory struct {
	// Asked is when the last round began that is over. It tells the rounds of an autoscaler
	// apart, and goes on from one to the next also where the clock goes back.
	Asked time.Time `json:"asked,omitzero"`
	// Recommended is how many replicas there should have been, when, before that was
	// held back: oldest first, as far as it may matter yet.
	Recommended []Count `json:"recommended,omitempty"`
	// Added and Removed is by how many replicas a scale was changed, when.
	Added   []Count `json:"added,omitempty"`
	Removed []Count `json:"removed,omitempty"`
}

// Count is a number of replicas at a time.
type Count struct {
	Replicas int32     `json:"replicas"`
	At       time.Time `json:"at"`
}

// note is what comes back of a command: when the round began, the verdict of a scale
// that is written, and the memory when the round is over.
type note struct {
	Asked   time.Time `json:"asked"`
	Verdict *Verdict  `json:"verdict,omitempty"`
	Memory  *Memory   `json:"memory,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	h, ok := reconcile.Get(s, kinds.HorizontalPodAutoscalers, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Autoscaler: h}
	if told, ok := reconcile.LastOf(s, k, events.Tell, h); ok {
		for _, r := range told.Results {
			if n := noteOf(r); n != nil && n.Memory != nil {
				v.Memory = n.Memory.noted(told)
				if known := told.Noted(v.Memory.Asked); known.Before(v.Memory.Asked) {
					v.Known = known
				}
			}
		}
	}
	if acted, ok := reconcile.LastOf(s, k, events.Act, h); ok && len(acted.Results) > 0 {
		_, current := reconcile.Answers(s, k, h)
		v.hear(acted.Results[0], acted.At, current)
	}
	if v.Readings != nil && v.Readings.Scale != nil {
		v.pick(s)
	}
	return v, true
}

func noteOf(r events.Result) *note {
	var n note
	if r.Answer == nil || len(r.Answer.Note) == 0 || json.Unmarshal(r.Answer.Note, &n) != nil {
		return nil
	}
	return &n
}

// hear takes in what came of the last question or write, of a round that is not over. An
// answer counts only if the autoscaler is current: as it was when it was asked for. Its
// readings are told apart by the positions of the metrics in the spec, and its scale is that
// of the target then.
func (v *View) hear(r events.Result, at time.Time, current bool) {
	n := noteOf(r)
	if n != nil && n.Asked.After(v.Memory.Asked) {
		v.Begun = n.Asked
	}
	unasked := r.Status == events.Skipped || r.Status == events.Refused && r.Code == 0
	if n == nil || unasked || !n.Asked.After(v.Memory.Asked) {
		return
	}
	if n.Verdict == nil && !current {
		return
	}
	v.Asked, v.At = n.Asked, at
	if n.Verdict != nil {
		v.Verdict, v.Tried = n.Verdict, &Tried{OK: r.OK(), Message: cmp.Or(r.Message, r.Reason)}
		if r.Status == events.Conflict {
			v.Tried.Version = r.Version
		}
		return
	}
	v.Readings = new(events.Readings)
	if r.Status != events.Answered {
		v.Readings.Failure = cmp.Or(r.Message, r.Reason)
	} else if err := reconcile.Read(r, v.Readings); err != nil {
		v.Readings = &events.Readings{Failure: err.Error()}
	}
}

// pick finds the pods that the scale selects, and who else selects some of them.
func (v *View) pick(s reconcile.Snapshot) {
	said := v.Readings.Scale.Selector
	selector, err := labels.Parse(said)
	if said == "" || err != nil {
		if err != nil {
			v.Unselected = err.Error()
		}
		return
	}
	namespace := v.Autoscaler.Namespace
	v.Pods = slices.DeleteFunc(reconcile.List(s, kinds.Pods, namespace), func(p *corev1.Pod) bool { return !selector.Matches(labels.Set(p.Labels)) })
	for _, other := range reconcile.List(s, kinds.HorizontalPodAutoscalers, namespace) {
		theirs := selector
		if other.Name != v.Autoscaler.Name && !selecting(other) {
			continue
		}
		if other.Name != v.Autoscaler.Name && !sameTarget(other, v.Autoscaler) {
			theirs = selectorOf(s, namespace, other.Spec.ScaleTargetRef)
		}
		if slices.ContainsFunc(v.Pods, func(p *corev1.Pod) bool { return theirs.Matches(labels.Set(p.Labels)) }) {
			v.Rivals = append(v.Rivals, namespace+"/"+other.Name)
		}
	}
	if len(v.Rivals) < 2 {
		v.Rivals = nil
	}
}

// selecting tells whether an autoscaler selects pods: its last round went as far as their
// metrics. Until then, and while its target is switched off, it stands in the way of no other.
//
// Upstream: a selector that is remembered from the first computeReplicasForMetrics on, until
// the process ends. Here the status tells, which outlives it.
func selecting(h *autoscalingv2.HorizontalPodAutoscaler) bool {
	return slices.ContainsFunc(h.Status.Conditions, func(c autoscalingv2.HorizontalPodAutoscalerCondition) bool {
		return c.Type == autoscalingv2.ScalingActive && c.Reason != switchedOff
	})
}

// switchedOff is the reason of ScalingActive where the target has 0 replicas.
const switchedOff = "ScalingDisabled"

func sameTarget(a, b *autoscalingv2.HorizontalPodAutoscaler) bool {
	x, y := a.Spec.ScaleTargetRef, b.Spec.ScaleTargetRef
	return x.Name == y.Name && kindOf(x) == kindOf(y)
}

func kindOf(ref autoscalingv2.CrossVersionObjectReference) schema.GroupKind {
	return schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind()
}

// selectorOf is what a target selects that is of a kind that is read; nothing where that
// is not known.
func selectorOf(s reconcile.Snapshot, namespace string, ref autoscalingv2.CrossVersionObjectReference) labels.Selector {
	kind, ok := s.KindOf(kindOf(ref).Group, ref.Kind)
	if !ok {
		return labels.Nothing()
	}
	obj, _ := s.Get(kind.Name, namespace, ref.Name)
	var of *metav1.LabelSelector
	switch o := obj.(type) {
	case *corev1.ReplicationController:
		return labels.SelectorFromSet(o.Spec.Selector)
	case *appsv1.ReplicaSet:
		of = o.Spec.Selector
	case *appsv1.Deployment:
		of = o.Spec.Selector
	case *appsv1.StatefulSet:
		of = o.Spec.Selector
	}
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil {
		return labels.Nothing()
	}
	return selector
}
