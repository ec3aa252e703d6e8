package daemonset

import (
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// A failed pod is replaced, but its node may reject the next one for the same reason. So
// the first failed pod of a node is replaced at once, and each later one only once it is
// a second old, then two, four, up to longestRest. A pod that lasts for twice longestRest
// resets the back-off of its node.
//
// Upstream: failedPodsBackoff, which lives in the memory of a process. Here a pod that
// replaces one that failed says so itself; hence the two are one turn's work, where
// upstream has the next sync find the node empty.
const (
	failuresNote = "daemonset.millrace.io/failures"
	shortestRest = time.Second
	longestRest  = 15 * time.Minute
)

// staff gives every node what it should have: one pod where a pod should run, none where
// none may, elsewhere at most one, or one old and one new.
//
// Upstream: manage.
func (s *stage) staff() reconcile.Decision {
	var w work
	for _, here := range s.places {
		switch {
		case !here.known:
			// Such a node never appears, so pods bound to it alone never run. Pods that
			// had a node are not this controller's to clean up.
			for _, p := range here.pods {
				if p.Spec.NodeName == "" {
					w.end(p, nil)
				}
			}
		case here.run && len(here.pods) == 0:
			w.creates = append(w.creates, create{node: here.name})
		case here.stay:
			s.tend(&w, here)
		default:
			for _, p := range here.pods {
				w.end(p, nil)
			}
		}
	}
	quiet := "every node has the pods that it should"
	if !w.wake.IsZero() {
		quiet = "a pod has failed, and it is not long since the one before it did"
	}
	return s.done(w, "nodes do not have the pods that they should", quiet)
}

// tend corrects the pods of a node that may have them. It replaces a pod that has ended
// in its role: as the only pod, or as the new pod beside an old one.
func (s *stage) tend(w *work, here place) {
	var running []*corev1.Pod
	var leaving, resting, lost, young bool
	failures := 0
	for _, p := range here.pods {
		switch {
		case p.DeletionTimestamp != nil:
			leaving = true
		case !pod.Terminal(p):
			running = append(running, p)
			young = young || hashIn(p) == s.hash
		case s.rested(p).After(s.now):
			resting = true
			w.waits(s.rested(p))
		default:
			lost = lost || hashIn(p) == s.hash
			failures = max(failures, s.failures(p)+1)
			w.end(p, s.obituary(p, here.name))
		}
	}
	switch {
	case s.surges() && len(running) > 0:
		s.pairUp(w, running)
		if lost && !young && !resting && here.run {
			w.creates = append(w.creates, create{here.name, failures})
		}
	case len(running) > 0:
		for _, p := range running[1:] {
			w.end(p, nil)
		}
	case here.run && !resting && (!leaving || s.surges()):
		w.creates = append(w.creates, create{here.name, failures})
	}
}

// pairUp leaves a node its first new and its first old pod, and deletes the old one when
// it is not ready or the new one is available.
func (s *stage) pairUp(w *work, running []*corev1.Pod) {
	var young, old *corev1.Pod
	for _, p := range running {
		switch {
		case hashIn(p) == s.hash && young == nil:
			young = p
		case hashIn(p) != s.hash && old == nil:
			old = p
		default:
			w.end(p, nil)
		}
	}
	if young != nil && old != nil && (!pod.Ready(old) || s.available(young)) {
		w.end(old, nil)
	}
}

// failures returns how many pods of the same revision failed on the node in a row before this one.
func (s *stage) failures(p *corev1.Pod) int {
	lasted := s.now.Sub(p.CreationTimestamp.Time) > 2*longestRest
	if p.Status.Phase != corev1.PodFailed || hashIn(p) != s.hash || lasted {
		return 0
	}
	n, err := strconv.Atoi(p.Annotations[failuresNote])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// rested returns when a pod that has ended may be replaced.
func (s *stage) rested(p *corev1.Pod) time.Time {
	const enough = 16 // enough doublings to exceed longestRest, and too few to overflow
	created, n := p.CreationTimestamp.Time, s.failures(p)
	if n == 0 {
		return created
	}
	return created.Add(min(shortestRest<<(min(n, enough)-1), longestRest))
}

// obituary returns the Event about a pod that has ended.
func (s *stage) obituary(p *corev1.Pod, node string) *events.Notice {
	if p.Status.Phase == corev1.PodFailed {
		return s.notice(corev1.EventTypeWarning, "FailedDaemonPod",
			fmt.Sprintf("Found failed daemon pod %s/%s on node %s, will try to kill it", p.Namespace, p.Name, node))
	}
	return s.notice(corev1.EventTypeNormal, "SucceededDaemonPod",
		fmt.Sprintf("Found succeeded daemon pod %s/%s on node %s, will try to delete it", p.Namespace, p.Name, node))
}
