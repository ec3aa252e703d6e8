package replicas

import (
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/services/reconcilers/kube/owner"
)

// A node may reject pods for good as soon as it gets them: they ask for something
// that is forbidden there, or the node is not what the scheduler takes it for. A
// set replaces failed pods, so the two can go round together as fast as the API
// server allows. Some failures in a row are ordinary, as when a node restarts.
// After that the set rests before its next creates, each time for as long as the
// failures have lasted.
//
// Upstream: there is no such brake, and a set like that makes pods by the
// thousand (kubernetes/kubernetes #72593, #130411).
const (
	// patience is how many pods may be rejected before the set rests.
	patience = 10
	// shortestRest and longestRest bound the rest.
	shortestRest = time.Second
	longestRest  = 5 * time.Minute
)

// rest is until when the set should create no pod, because nodes rejected the last
// ones; the zero time if there is nothing to wait for. A creation time in the
// future comes from another clock and does not count.
func (v View) rest(now time.Time) time.Time {
	var accepted time.Time
	for _, p := range v.Pods {
		if at := p.CreationTimestamp.Time; owner.Controls(v.Set, p) && started(p) && at.After(accepted) {
			accepted = at
		}
	}
	var first, last time.Time
	count := 0
	for _, p := range v.Pods {
		at := p.CreationTimestamp.Time
		if !turnedAway(p) || !owner.Controls(v.Set, p) || !at.After(accepted) || at.After(now) {
			continue
		}
		if count++; count == 1 || at.Before(first) {
			first = at
		}
		if at.After(last) {
			last = at
		}
	}
	if count <= patience {
		return time.Time{}
	}
	return last.Add(min(max(last.Sub(first), shortestRest), longestRest))
}

// turnedAway reports whether a pod failed before any of its containers was created.
func turnedAway(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed && !started(p) }

// started reports whether a node has started a pod.
func started(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodRunning || p.Status.Phase == corev1.PodSucceeded ||
		len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses) > 0
}
