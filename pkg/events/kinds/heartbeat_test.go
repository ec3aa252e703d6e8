package kinds_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// A lease gives a sign of life when it is renewed, a node with its condition Ready; no other
// object gives one.
func TestSignsOfLife(t *testing.T) {
	at := time.Date(2026, 11, 21, 15, 0, 0, 0, time.UTC)
	renewed, heard := metav1.NewMicroTime(at), metav1.NewTime(at)
	node := func(conditions ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{Status: corev1.NodeStatus{Conditions: conditions}}
	}
	other := corev1.NodeCondition{Type: corev1.NodeDiskPressure, LastHeartbeatTime: metav1.NewTime(at.Add(time.Hour))}
	for name, c := range map[string]struct {
		object metav1.Object
		want   bool
	}{
		"a lease":                   {&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, true},
		"a lease that is not held":  {&coordinationv1.Lease{}, false},
		"a node":                    {node(other, corev1.NodeCondition{Type: corev1.NodeReady, LastHeartbeatTime: heard}), true},
		"a node that says no Ready": {node(other), false},
		"a node that is new":        {node(), false},
		"a pod":                     {&corev1.Pod{}, false},
	} {
		if heartbeat, ok := kinds.Heartbeat(c.object); ok != c.want || ok && !heartbeat.Time.Equal(at) {
			t.Errorf("%s: the heartbeat is %v, %v; want one: %t", name, heartbeat, ok, c.want)
		}
	}
	if !kinds.IsHeartbeat(kinds.Leases.Name) || kinds.IsHeartbeat(kinds.Nodes.Name) {
		t.Error("silence means something of leases, and of them only")
	}
}
