// Package podgc deletes pods that no other component will: pods whose node was deleted,
// terminating pods that never had a node, terminating pods whose node was declared out
// of service, and the oldest of the ended pods when there are too many.
//
// A node counts as deleted after it has been missing for [quarantine], and if the API
// server confirms it, because a node that is created again keeps its pods. A request
// that changes nothing records the beginning of that time in its outcome.
package podgc

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// quarantine is how long a node must have been missing.
const quarantine = 40 * time.Second

// DefaultThreshold is the default number of ended pods that are kept. Burst is how many
// of the others one turn deletes at most.
const (
	DefaultThreshold = 12500
	Burst            = 500
)

// finished is the key of all ended pods together. It is no pod's key, because it has no
// namespace.
var finished = events.Key{Name: "finished"}

// Config is the configuration of the controller.
type Config struct {
	// Threshold is how many ended pods are kept; 0 means [DefaultThreshold], less than
	// 0 all.
	Threshold int `json:"terminatedPods"`
}

// New returns the controller. A key is a pod, or all ended pods.
func New(config Config) reconcile.Controller[View] {
	config.Threshold = cmp.Or(config.Threshold, DefaultThreshold)
	return reconcile.Controller[View]{
		Name:     "pod-garbage-collector-controller",
		Aliases:  []string{"podgc"},
		Identity: "pod-garbage-collector",
		Queue:    "orphaned_pods_nodes",
		Owns:     &kinds.Pods.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Pods.Kind, Keys: keysOfPod},
			{Kind: kinds.Nodes.Kind, Keys: keysOfNode},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name, Unchanged: true, AtOnce: true},
			{Verb: events.VerbPatch, Kind: kinds.Pods.Name, Subresource: "status", On: reconcile.Itself, Unchanged: true,
				Fields: []string{".status.phase", ".status.observedGeneration", ".status.conditions"},
				Values: []reconcile.Value{{Path: ".status.phase", One: []string{string(corev1.PodFailed)}}, {Path: ".status.conditions[*].type", One: []string{string(corev1.DisruptionTarget)}}}},
		},
		Metrics:   metrics,
		Remembers: true,
		Settings:  reconcile.Body(config),
		Observe:   func(s reconcile.Snapshot, k events.Key) (View, bool) { return observe(s, k, config.Threshold) },
		Decide:    decide,
	}
}

// View is what one turn can see.
type View struct {
	// Pod is nil for the key of the ended pods.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Node is the pod's node, nil if it has none or the node does not exist.
	Node *corev1.Node `json:"node,omitempty"`
	// Since is when the node was first missed; zero if that is not known.
	Since time.Time `json:"since,omitzero"`
	// Excess are the ended pods that are not to be kept, in the order in which they
	// should be deleted, up to [Burst].
	Excess []*corev1.Pod `json:"excess,omitempty"`
}

// keysOfPod maps a pod to itself if it may have to be deleted, and an ended pod to the
// key of all of them.
func keysOfPod(s reconcile.Snapshot, _, now reconcile.Object) []events.Key {
	p, ok := now.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	var keys []events.Key
	if _, known := s.Get(kinds.Nodes.Name, "", p.Spec.NodeName); p.DeletionTimestamp != nil || p.Spec.NodeName != "" && !known {
		keys = append(keys, keyOf(p))
	}
	if ended(p) {
		keys = append(keys, finished)
	}
	return keys
}

// keysOfNode maps a deleted node to its pods, and a node that is out of service to its
// terminating pods.
func keysOfNode(s reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	node := now
	if node.None() {
		node = was
	}
	if n, there := now.Object.(*corev1.Node); there && !outOfService(n) {
		return nil
	}
	var keys []events.Key
	for _, p := range reconcile.List(s, kinds.Pods, "") {
		if p.Spec.NodeName == node.GetName() && (now.None() || p.DeletionTimestamp != nil) {
			keys = append(keys, keyOf(p))
		}
	}
	return keys
}

func keyOf(p *corev1.Pod) events.Key { return events.Key{Namespace: p.Namespace, Name: p.Name} }

// ended reports whether a pod has. Upstream: what is in no phase has, too.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodUnknown
}

// outOfService is true for a node that is not ready and has the taint by which users
// declare it out of service.
func outOfService(n *corev1.Node) bool {
	ready := slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	return !ready && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

func observe(s reconcile.Snapshot, k events.Key, threshold int) (View, bool) {
	if k == finished {
		excess := excess(reconcile.List(s, kinds.Pods, ""), threshold)
		return View{Excess: excess}, len(excess) > 0
	}
	p, ok := reconcile.Get(s, kinds.Pods, k.Namespace, k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Pod: p}
	if n, ok := reconcile.Get(s, kinds.Nodes, "", p.Spec.NodeName); ok {
		v.Node = n
	}
	if last, ok := reconcile.LastOf(s, k, events.LaneStatus, p); ok {
		v.Since = last.At
	}
	return v, true
}

// excess are the ended pods beyond the number that is kept: evicted ones first, then
// the oldest.
func excess(pods []*corev1.Pod, threshold int) []*corev1.Pod {
	all := slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !ended(p) })
	if threshold < 0 || len(all) <= threshold {
		return nil
	}
	slices.SortStableFunc(all, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(evicted(b), evicted(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	all = slices.DeleteFunc(all[:len(all)-threshold], dismissed)
	return all[:min(len(all), Burst)]
}

// dismissed reports whether a pod has been deleted with a grace period of zero. A
// finalizer holds it, and another delete would do nothing, again and again.
func dismissed(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

func evicted(p *corev1.Pod) int {
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
		return 1
	}
	return 0
}

// done is true for a pod without running containers.
func done(p *corev1.Pod) bool { return pod.Terminal(p) }
