package replicas

import (
	"encoding/json"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// Of two pods that differ in their cost the cheap one goes, where the gate is on.
func TestCostsCountWhereTheGateIsOn(t *testing.T) {
	set := reconciletest.ReplicaSet("web", 1)
	of := reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set)
	young := reconciletest.Pod("young", of, reconciletest.On("n1"), reconciletest.ReadySince(now.Add(-time.Minute)))
	old := reconciletest.Pod("old", of, reconciletest.On("n1"), reconciletest.ReadySince(now.Add(-time.Hour)))
	old.Annotations = map[string]string{corev1.PodDeletionCost: "-1"}
	cheap := young.DeepCopy()
	cheap.UID, cheap.Annotations = "cheap", old.Annotations
	for _, c := range []struct {
		gates  gate.Set
		want   string
		asGood bool
	}{{nil, "old", false}, {gate.Set{gate.PodDeletionCost: false}, "young", true}} {
		v := View{Set: set, Pods: []*corev1.Pod{old, young}, Gates: c.gates}
		var got []string
		for _, command := range sets.Decide(v, now).Commands {
			if command.Verb == events.VerbDelete {
				got = append(got, command.Name)
			}
		}
		if len(got) != 1 || got[0] != c.want {
			t.Errorf("under %v %v go, want %s", c.gates, got, c.want)
		}
		v.Pods = []*corev1.Pod{young, cheap}
		if got := AsGood(v, young.UID, cheap.UID, now); got != c.asGood {
			t.Errorf("under %v it is chance which of two goes: %v", c.gates, got)
		}
	}
}

// The status says how many pods are on their way out, where the gate is on.
func TestLeavingPodsAreCountedWhereTheGateIsOn(t *testing.T) {
	set := reconciletest.ReplicaSet("web", 1)
	leaving := reconciletest.Pod("leaving", reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set), reconciletest.Deleted[*corev1.Pod](now))
	for _, c := range []struct {
		gates gate.Set
		want  *int32
	}{{nil, ptr.To[int32](1)}, {gate.Set{gate.DeploymentReplicaSetTerminatingReplicas: false}, nil}} {
		commands := sets.Decide(View{Set: set, Pods: []*corev1.Pod{leaving}, Gates: c.gates}, now).Commands
		said := appsv1.ReplicaSet{}
		if err := json.Unmarshal(commands[len(commands)-1].Body, &said); err != nil || !ptr.Equal(said.Status.TerminatingReplicas, c.want) {
			t.Errorf("under %v the status has %v, want %v: %v", c.gates, said.Status.TerminatingReplicas, c.want, err)
		}
	}
}
