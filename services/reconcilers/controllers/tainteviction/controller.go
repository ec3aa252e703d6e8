// Package tainteviction deletes pods from nodes that drive them away: from those with a
// taint of the effect NoExecute that a pod does not tolerate at once, and from those
// with one that it tolerates for a while, when that is over.
//
// For how long a pod stays is decided when it is first seen on such a node, and noted;
// the note survives the process that made it, and so the time is not begun anew by a restart, as
// it is upstream. Other taints that come meanwhile do not change it. When no taint is
// left that the pod does not tolerate for good, its time is called off.
//
//	not all taints tolerated     say why, then delete
//	all tolerated, some a while  note when, wake then, say why, delete
//	all tolerated for good       call off what was noted
//
// Upstream deletes by name whatever has it by then. Here the pod is meant.
package tainteviction

import (
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller is the taint eviction controller under the default feature gates. A key is a
// pod.
var Controller = New(nil)

// New makes the controller, under feature gates that are not at their defaults.
func New(gates gate.Set) reconcile.Controller[View] {
	gates = gates.Of(gate.TaintTolerationComparisonOperators)
	return reconcile.Controller[View]{
		Name:     "taint-eviction-controller",
		Identity: "node-controller",
		Queue:    "noexec_taint_pod",
		Owns:     &kinds.Pods.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
			{Kind: kinds.Nodes.Kind, Keys: keysOfNode},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name, On: reconcile.Itself},
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, Subresource: "status", On: reconcile.Itself, Fields: []string{".status.conditions"},
				Values: []reconcile.Value{{Path: ".status.conditions[*].type", One: []string{string(corev1.DisruptionTarget)}}, {Path: ".status.conditions[*].reason", One: []string{why}}}},
		},
		Tells: reconcile.Tells{
			{Kind: kinds.Pods.Kind, On: reconcile.Itself, Reasons: []string{"TaintManagerEviction"}},
		},
		Remembers: true,
		Metrics:   metrics,
		Settings:  gates.Settings(),
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			v, ok := observe(s, k)
			v.Gates = gates
			return v, ok
		},
		Decide: decide,
	}
}

// View is what the turn of one pod can see.
type View struct {
	Pod *corev1.Pod `json:"pod"`
	// Taints are those of its node that drive pods away.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Stay is for how long the pod was said to stay; nil when nothing was said, or it
	// was called off.
	Stay *Stay `json:"stay,omitempty"`
	// Gates are the feature gates that are not at their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// Stay is the time that a pod has left on a node. It is noted with what is done for it.
type Stay struct {
	Since time.Time `json:"since"`
	Until time.Time `json:"until"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Pod: p}
	if n, ok := reconcile.Get(s, kinds.Nodes, "", p.Spec.NodeName); ok {
		v.Taints = driving(n)
	}
	if last, ok := reconcile.LastOf(s, k, events.Tell, p); ok {
		v.Stay = noted(last)
	}
	return v, true
}

// noted is what an outcome says of a pod's stay.
func noted(o events.Outcome) *Stay {
	for _, r := range o.Results {
		var stay Stay
		if r.Answer != nil && json.Unmarshal(r.Answer.Note, &stay) == nil && !stay.Until.IsZero() {
			since := o.Noted(stay.Since)
			return &Stay{since, stay.Until.Add(since.Sub(stay.Since))}
		}
	}
	return nil
}

// driving are the taints of a node that drive pods away.
func driving(n *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectNoExecute })
}

// keysOfPod maps a pod to itself, where its node drives pods away.
func keysOfPod(s reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	p, ok := now.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if n, ok := reconcile.Get(s, kinds.Nodes, "", p.Spec.NodeName); !ok || len(driving(n)) == 0 {
		return nil
	}
	return []events.Key{{Namespace: p.Namespace, Name: p.Name}}
}

// keysOfNode maps a node to its pods, when it drives them away, or does not any more.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	node, there := now.Object.(*corev1.Node)
	if !there {
		return nil
	}
	var before []corev1.Taint
	if n, ok := was.Object.(*corev1.Node); ok {
		before = driving(n)
	}
	if slices.EqualFunc(before, driving(node), same) {
		return nil
	}
	var keys []events.Key
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		if p.Spec.NodeName == node.Name {
			keys = append(keys, events.Key{Namespace: p.Namespace, Name: p.Name})
		}
	}
	return keys
}

func same(a, b corev1.Taint) bool {
	return a.MatchTaint(&b) && a.Value == b.Value && a.TimeAdded.Equal(b.TimeAdded)
}
