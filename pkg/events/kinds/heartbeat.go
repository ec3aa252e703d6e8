package kinds

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IsHeartbeat tells whether the objects of a kind say again and again that their holder lives,
// so that their silence means something. Nodes do so, too, but years go by between
// what else is heard of them: whether a watcher listens, leases tell.
func IsHeartbeat(kind Name) bool { return kind == Leases.Name }

// Heartbeat is the newest sign of life in an object, whatever clock it is by: another one
// means that its holder lives. ok is false for objects that give none.
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
