// Package tainteviction deletes pods from nodes with NoExecute taints: at once if the pod does
// not tolerate a taint, and after the toleration's time if it tolerates one for a while.
//
// The controller decides when it first sees the pod on such a node how long the pod may stay,
// and records that in a note. The note survives the process, so a restart does not begin the
// time anew, as it does upstream. Other taints that come meanwhile do not change it. When no
// taint is left that the pod does not tolerate for good, the controller cancels the deletion.
//
//	not all taints tolerated     set the condition, then delete
//	all tolerated, some a while  record the time, wake then, set the condition, delete
//	all tolerated for good       cancel the recorded deletion
//
// Upstream deletes any pod that has the name by then. Here the delete is conditional on the
// pod's uid.
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

// Controller is the taint eviction controller under the default feature gates. A key is a pod.
var Controller = New(nil)

// New returns the controller under feature gates that differ from their defaults.
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
		Events: reconcile.EventPromises{
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
	// Taints are the NoExecute taints of its node.
	Taints []corev1.Taint `json:"taints,omitempty"`
	// Stay is the recorded time for which the pod may stay; nil if there is none, or it was
	// cancelled.
	Stay *Stay `json:"stay,omitempty"`
	// Gates are the feature gates that differ from their defaults.
	Gates gate.Set `json:"gates,omitempty"`
}

// Stay is the time for which a pod may stay on a node. It is the note of the commands for the
// pod.
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
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		v.Stay = noted(last)
	}
	return v, true
}

// noted reads a pod's stay from an outcome.
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

// driving are the NoExecute taints of a node.
func driving(n *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectNoExecute })
}

// keysOfPod maps a pod to itself if its node has NoExecute taints.
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

// keysOfNode maps a node to its pods if its NoExecute taints have changed.
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
