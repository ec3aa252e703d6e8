// Package horizontalpodautoscaler scales the target of each autoscaler so that its pods
// use as much of a metric as the autoscaler wants.
//
// No watch reports metrics, and the target may be of any kind. So each autoscaler has a
// round every [Config].Period, and a round has three steps, each on record:
//
//   - Ask: the controller asks for the scale of the target, and for the metrics. The
//     writer reads both and answers with the few numbers that count.
//   - Judge: the controller takes the highest proposal of all metrics, not below recent
//     recommendations (so that the number does not oscillate), within the rate limits and
//     the bounds. If that is another number of replicas, it writes the scale, on
//     condition that no other client has written it since.
//   - Report: the controller writes the result to the status and to Events.
//
// The note of the last step has the earlier recommendations and changes, so they survive
// a restart of the process. Upstream keeps them in memory: a new leader there waits for a
// whole window before it scales down, and may scale up by a whole period's worth too much.
//
// An autoscaler scales only its own target. A pod that several autoscalers select counts
// for none of them, and their status says so. For a target of a kind that is not built
// in, the controller knows its name but not which pods it selects.
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
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Config configures the controller. Zero values mean upstream's defaults; negative values mean 0.
type Config struct {
	// Period is the interval between two rounds of an autoscaler; default 15 s.
	Period time.Duration `json:"period,omitempty"`
	// Stabilization is the window of the recommendations below which an autoscaler does
	// not scale down, unless its behavior sets one; default 5 min.
	Stabilization time.Duration `json:"stabilization,omitempty"`
	// Tolerance is the relative deviation of a metric from its target that causes no
	// scaling, unless the autoscaler's behavior sets one; default 0.1.
	Tolerance float64 `json:"tolerance,omitempty"`
	// Startup is how long after the start of a pod its CPU usage counts only while it is
	// ready; default 5 min. A pod that became unready within Readiness of its start
	// counts as never ready; default 30 s.
	Startup   time.Duration `json:"startup,omitempty"`
	Readiness time.Duration `json:"readiness,omitempty"`
	// Gates are the feature gates that differ from Kubernetes' defaults.
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

// Settings is the configuration in the form that turns record.
type Settings struct {
	Autoscaling Config   `json:"autoscaling"`
	Gates       gate.Set `json:"gates,omitempty"`
}

// New returns the controller. A key is an autoscaler.
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
			{Verb: events.VerbAsk, Any: true, Subresource: query.SubReadings, On: reconcile.Beside},
			{Verb: events.VerbUpdate, Any: true, Subresource: scale, On: reconcile.Beside, NamedBy: ".spec.scaleTargetRef.name", Fields: []string{".spec.replicas", ".status"}},
			{Verb: events.VerbUpdate, Kind: kinds.HorizontalPodAutoscalers.Name, Subresource: "status", On: reconcile.Itself},
		},
		Events: reconcile.EventPromises{
			{Kind: kinds.HorizontalPodAutoscalers.Kind, On: reconcile.Itself},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  reconcile.Body(Settings{config, config.Gates}),
		Observe:   observe,
		Decide:    filled.decide,
	}
}

// scale is the subresource with the desired and the current number of replicas of a target.
const scale = "scale"

// View is the input of one turn.
type View struct {
	Autoscaler *autoscalingv2.HorizontalPodAutoscaler `json:"autoscaler"`
	// Memory is the memory of the finished rounds.
	Memory Memory `json:"memory,omitzero"`
	// Known is Memory.Asked by this process's clock, if a clock that was ahead dated
	// Memory.Asked later than that; otherwise zero.
	Known time.Time `json:"known,omitzero"`
	// Begun is the start of the round of the last question or write, if that is after
	// Memory.Asked, even if its answer no longer counts.
	Begun time.Time `json:"begun,omitzero"`

	// Asked is the start of the round in progress, zero if there is none. Its question
	// was answered, or failed, at At.
	Asked time.Time `json:"asked,omitzero"`
	At    time.Time `json:"at,omitzero"`
	// Readings is the answer to the question.
	Readings *query.Readings `json:"readings,omitempty"`
	// Pods are the pods that the scale's selector matches. Unselected is the error of an
	// invalid selector.
	Pods       []*corev1.Pod `json:"pods,omitempty"`
	Unselected string        `json:"unselected,omitempty"`
	// Rivals are all autoscalers, as namespace/name, that select some of these pods, if
	// more than one does.
	Rivals []string `json:"rivals,omitempty"`

	// Verdict is the judgement for which the scale was written, Tried the result of that write.
	Verdict *Verdict `json:"verdict,omitempty"`
	Tried   *Tried   `json:"tried,omitempty"`
}

// Tried is the result of the write of a scale.
type Tried struct {
	OK bool `json:"ok,omitempty"`
	// Version is the conflicting version, if another client has written the scale.
	Version string `json:"version,omitempty"`
	Message string `json:"message,omitempty"`
}

// Memory is the state that each round hands on to the next.
type Memory struct {
	// Asked is the start of the last finished round. It identifies a round of an
	// autoscaler, and increases from one round to the next even if the clock goes back.
	Asked time.Time `json:"asked,omitzero"`
	// Recommended has the recommended numbers of replicas before stabilization and
	// limits, oldest first, as far as they may still matter.
	Recommended []Count `json:"recommended,omitempty"`
	// Added and Removed have the numbers of replicas by which a scale was changed.
	Added   []Count `json:"added,omitempty"`
	Removed []Count `json:"removed,omitempty"`
}

// Count is a number of replicas at a time.
type Count struct {
	Replicas int32     `json:"replicas"`
	At       time.Time `json:"at"`
}

// note is what a command carries and its outcome returns: the start of the round, the
// verdict for which a scale is written, and the memory at the end of the round.
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
	if told, ok := reconcile.LastOf(s, k, events.LaneStatus, h); ok {
		for _, r := range told.Results {
			if n := noteOf(r); n != nil && n.Memory != nil {
				v.Memory = n.Memory.noted(told)
				if known := told.Noted(v.Memory.Asked); known.Before(v.Memory.Asked) {
					v.Known = known
				}
			}
		}
	}
	if acted, ok := reconcile.LastOf(s, k, events.LaneWrite, h); ok && len(acted.Results) > 0 {
		v.hear(acted.Results[0], acted.At, reconcile.IsCurrent(acted, h))
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

// hear reads the result of the last question or write of a round in progress. An answer
// counts only if current is true: the autoscaler has not changed since the question. The
// positions of the metrics in the spec identify the readings, and the scale is that of
// the target at that time.
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
	v.Readings = new(query.Readings)
	if r.Status != events.Answered {
		v.Readings.Failure = cmp.Or(r.Message, r.Reason)
	} else if err := reconcile.Read(r, v.Readings); err != nil {
		v.Readings = &query.Readings{Failure: err.Error()}
	}
}

// pick finds the pods that the scale selects, and the other autoscalers that select some of them.
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

// selecting reports whether an autoscaler selects pods: its last round reached their
// metrics. Until then, and while its target has 0 replicas, it conflicts with no other autoscaler.
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

// selectorOf returns the selector of a target of a built-in kind; it matches nothing if
// the selector is not known.
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
