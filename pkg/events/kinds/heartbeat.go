package kinds

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsHeartbeat reports whether the objects of a kind are renewed regularly while their holder is
// alive, so that a missing renewal means something. Nodes are, too, but their kind has few other
// changes, so whether a watcher receives them in time is judged by the leases.
func IsHeartbeat(kind Name) bool { return kind == Leases.Name }

// Heartbeat is the newest sign of life in an object, on any clock: a different value means that
// its holder is alive. ok is false for objects without one.
func Heartbeat(obj metav1.Object) (heartbeat metav1.MicroTime, ok bool) {
	switch o := obj.(type) {
	case *coordinationv1.Lease:
		if o.Spec.RenewTime != nil {
			return *o.Spec.RenewTime, true
		}
	case *corev1.Node:
		for i := range o.Status.Conditions {
			if c := &o.Status.Conditions[i]; c.Type == corev1.NodeReady {
				return metav1.MicroTime(c.LastHeartbeatTime), true
			}
		}
	}
	return metav1.MicroTime{}, false
}
