// Package podgc ends pods that no other component will: those whose node is gone, those
// that are to go and never had a node, those that are to go and whose node was
// declared out of service, and the oldest of those that have ended, when there are too
// many of them.
//
// That a node is not there is believed after it has been so for [quarantine], and
// when the API server says so, too: a node that is made anew keeps its pods. When that
// time began is remembered by a request that changes nothing, whose outcome has a
// date.
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

// DefaultThreshold is how many pods that have ended are kept unless it is said
// otherwise. Burst is how many of the others go in one turn at most.
const (
	DefaultThreshold = 12500
	Burst            = 500
)

// finished is the key of the pods that have ended, all together. It is no pod's: it
// has no namespace.
var finished = events.Key{Name: "finished"}

// Config is what the controller needs to know.
type Config struct {
	// Threshold is how many pods that have ended are kept; 0 means [DefaultThreshold],
	// less than 0 all.
	Threshold int `json:"terminatedPods"`
}

// New makes the controller. A key is a pod, or all that have ended.
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
	// Pod is nil for the key of those that have ended.
	Pod *corev1.Pod `json:"pod,omitempty"`
	// Node is the pod's, nil when it has none or that is not there.
	Node *corev1.Node `json:"node,omitempty"`
	// Since is when its node was first missed; zero when that is not known.
	Since time.Time `json:"since,omitzero"`
	// Excess are the pods that have ended and are not to be kept, those first that
	// should go first, up to [Burst].
	Excess []*corev1.Pod `json:"excess,omitempty"`
}

// keysOfPod maps a pod to itself where something may be wrong with it, and one that
// has ended to all of those.
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

// keysOfNode maps a node that is gone to its pods, and one that is out of service to
// those that are to go.
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

// ended tells whether a pod has. Upstream: what is in no phase has, too.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodRunning && p.Status.Phase != corev1.PodUnknown
}

// outOfService is true for a node that is not ready and that a user has declared
// gone for good.
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
	if last, ok := reconcile.LastOf(s, k, events.Tell, p); ok {
		v.Since = last.At
	}
	return v, true
}

// excess are the pods that have ended beyond as many as are kept: first those that
// were evicted, then the oldest.
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

// dismissed tells whether a pod has been deleted without waiting for its node. It
// is held by a finalizer, and to delete it again would do nothing, over and over.
func dismissed(p *corev1.Pod) bool {
	return p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil && *p.DeletionGracePeriodSeconds == 0
}

func evicted(p *corev1.Pod) int {
	if p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted" {
		return 1
	}
	return 0
}

// done is true for a pod of which nothing runs any more.
func done(p *corev1.Pod) bool { return pod.Terminal(p) }
