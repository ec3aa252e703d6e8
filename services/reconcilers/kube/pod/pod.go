// Package pod answers the questions that controllers ask about pods: whether one is
// active, ready or available, and which one to delete first.
package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Terminal is true when all containers have ended for good.
func Terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// Active is true for a pod that has not ended and is not being deleted.
func Active(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp == nil }

// Terminating is true for a pod that is being deleted and has not ended.
func Terminating(p *corev1.Pod) bool { return !Terminal(p) && p.DeletionTimestamp != nil }

// Ready is true if the pod has the condition Ready.
func Ready(p *corev1.Pod) bool {
	_, ready := ReadySince(p)
	return ready
}

// ReadySince is the moment at which the pod became ready; the zero time if the
// condition does not say.
func ReadySince(p *corev1.Pod) (since time.Time, ready bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady {
			if c.Status != corev1.ConditionTrue {
				return time.Time{}, false
			}
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// Available is true if the pod has been ready for minReadySeconds.
func Available(p *corev1.Pod, minReadySeconds int32, now time.Time) bool {
	if minReadySeconds == 0 {
		return Ready(p)
	}
	at, ok := AvailableAt(p, minReadySeconds)
	return ok && !at.After(now)
}

// AvailableAt is the moment at which a ready pod is or becomes available. ok is false
// if it is not known: the pod is not ready, or does not say since when.
func AvailableAt(p *corev1.Pod, minReadySeconds int32) (at time.Time, ok bool) {
	since, ready := ReadySince(p)
	if !ready || since.IsZero() {
		return time.Time{}, false
	}
	return since.Add(time.Duration(minReadySeconds) * time.Second), true
}

// Sidecar reports whether an init container is a sidecar.
func Sidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// NextAvailable is when the next of some ready pods becomes available; the zero time
// if there is none to wait for.
func NextAvailable(pods []*corev1.Pod, minReadySeconds int32, now time.Time) (next time.Time) {
	if minReadySeconds == 0 {
		return next
	}
	for _, p := range pods {
		at, ok := AvailableAt(p, minReadySeconds)
		if ok && at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}
