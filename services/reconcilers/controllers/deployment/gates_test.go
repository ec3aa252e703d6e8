package deployment

import (
	"testing"

	"github.com/millrace/millrace/services/reconcilers/kube/gate"
)

// With the gate the status counts terminating pods.
func TestLeavingPodsAreCountedWhereTheGateIsOn(t *testing.T) {
	old := sized(1, 1, 1)
	old.seen.Status.TerminatingReplicas = new(int32(2))
	r := &rollout{deployment: rolling(1, "1", "0"), old: []*set{old}}
	if got := r.count(r.deployment.Status).TerminatingReplicas; got == nil || *got != 2 {
		t.Errorf("the status has %v, want 2", got)
	}
	r.gates = gate.Set{gate.DeploymentReplicaSetTerminatingReplicas: false}
	if got := r.count(r.deployment.Status).TerminatingReplicas; got != nil {
		t.Errorf("where the gate is off the status has %d", *got)
	}
}
