package kinds

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Beating tells whether the objects of a kind say again and again that somebody lives,
// so that their silence means something. Nodes do so, too, but years go by between
// what else is heard of them: whether anybody listens, leases tell.
func Beating(kind Name) bool { return kind == Leases.Name }

// Beat is the newest sign of life in an object, whatever clock it is by: another one
// means that somebody lives. ok is false for objects that give none.
func Beat(obj metav1.Object) (beat metav1.MicroTime, ok bool) {
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
