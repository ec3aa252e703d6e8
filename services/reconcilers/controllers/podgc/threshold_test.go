package podgc

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// endedPods returns count pods that have ended, the oldest first.
func endedPods(count int) (pods []*corev1.Pod) {
	for i := range count {
		p := reconciletest.Pod(fmt.Sprintf("p%05d", i), reconciletest.On("n1"))
		p.Status.Phase, p.CreationTimestamp = corev1.PodSucceeded, metav1.NewTime(reconciletest.Now.Add(time.Duration(i-count)*time.Second))
		pods = append(pods, p)
	}
	return pods
}

// Exactly as many ended pods are kept as the threshold says, the newest ones.
func TestHowManyEndedPodsAreKept(t *testing.T) {
	for _, c := range []struct {
		threshold, pods int
		want            string
	}{
		{-1, 3, ""}, {0, 0, ""}, {0, 2, "p00000 p00001"}, {1, 1, ""}, {1, 2, "p00000"}, {2, 2, ""}, {2, 3, "p00000"}, {2, 5, "p00000 p00001 p00002"},
	} {
		var names []string
		for _, p := range excess(endedPods(c.pods), c.threshold) {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("of %d ended pods with a threshold of %d these go: %q, want %q", c.pods, c.threshold, got, c.want)
		}
	}
	if got := len(excess(endedPods(Burst+7), 2)); got != Burst {
		t.Errorf("%d go in one turn, want %d", got, Burst)
	}
}

// A threshold of 0 means the default. If no more pods have ended than the threshold, there
// is no view.
func TestTheThresholdIsWhatIsSaid(t *testing.T) {
	for threshold, want := range map[int]string{0: `{"terminatedPods":12500}`, 7: `{"terminatedPods":7}`, -1: `{"terminatedPods":-1}`} {
		if got := string(New(Config{Threshold: threshold}).Settings); got != want {
			t.Errorf("with %d it is told as %s, want %s", threshold, got, want)
		}
	}
	for threshold, want := range map[int]int{1: 2, 2: 1, 3: 0, -1: 0} {
		world := reconciletest.NewWorld(kinds.Pods.Kind, kinds.Nodes.Kind)
		for _, p := range endedPods(3) {
			world.Put(kinds.Pods.Kind, p)
		}
		v, ok := New(Config{Threshold: threshold}).Observe(world, finished)
		if len(v.Excess) != want || ok != (want > 0) {
			t.Errorf("with %d as the threshold %d go, %t, want %d", threshold, len(v.Excess), ok, want)
		}
	}
	if _, ok := New(Config{}).Observe(reconciletest.NewWorld(kinds.Pods.Kind, kinds.Nodes.Kind), events.Key{Namespace: "a", Name: "b"}); ok {
		t.Error("there is a view of a pod that is not there")
	}
}

// A node is ready by its condition Ready alone.
func TestWhichConditionMakesANodeReady(t *testing.T) {
	for what, c := range map[string]struct {
		conditions []corev1.NodeCondition
		want       bool
	}{
		"none":                           {nil, true},
		"ready":                          {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}, false},
		"not ready":                      {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}, true},
		"not ready, and short of memory": {[]corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}, {Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue}}, true},
	} {
		n := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}}, Status: corev1.NodeStatus{Conditions: c.conditions}}
		if outOfService(n) != c.want {
			t.Errorf("%s: it is out of service: %t", what, !c.want)
		}
	}
}

// Each deletion counts as one.
func TestADeletionCountsAsOne(t *testing.T) {
	d := decide(View{Excess: endedPods(2)}, reconciletest.Now)
	if len(d.Figures) != 4 {
		t.Fatalf("the figures are %v, want two for each pod", d.Figures)
	}
	for _, f := range d.Figures {
		if f.Value != 1 || f.Failed != (f.Metric == failed) {
			t.Errorf("one counts as %+v", f)
		}
	}
}
