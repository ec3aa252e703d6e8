package podgc

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var (
	controller = New(Config{Threshold: 2})
	now        = reconciletest.Now
)

func TestStories(t *testing.T) { reconciletest.Stories(t, controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(func(t *rapid.T) View {
		if rapid.IntRange(0, 5).Draw(t, "those that have ended") == 0 {
			return View{Excess: []*corev1.Pod{reconciletest.Pod("a", reconciletest.InPhase(corev1.PodFailed))}}
		}
		v := View{Pod: reconciletest.Pod("p")}
		v.Pod.Spec.NodeName = rapid.SampledFrom([]string{"", "n1"}).Draw(t, "node")
		v.Pod.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{"Pending", "Running", "Failed", "Succeeded"}).Draw(t, "phase")
		if rapid.Bool().Draw(t, "deleted") {
			reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
		}
		if v.Pod.Spec.NodeName != "" && rapid.Bool().Draw(t, "node is there") {
			v.Node = node("n1", rapid.Bool().Draw(t, "out of service"))
		}
		if rapid.Bool().Draw(t, "missed") {
			v.Since = now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "since")) * time.Second)
		}
		return v
	}), now, reconciletest.Content(4, applied), reconciletest.Law[View]{Name: "merciful", Holds: merciful},
		reconciletest.Law[View]{Name: "exact", Holds: exact})
}

// merciful: a pod that has its node, or whose node is missing for less than the
// quarantine, is neither deleted nor marked as failed.
func merciful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	if v.Pod == nil || v.Pod.DeletionTimestamp != nil || v.Node == nil && v.Pod.Spec.NodeName != "" && !v.Since.IsZero() && now.Sub(v.Since) >= quarantine {
		return nil
	}
	for _, command := range c.Decide(v, now).Commands {
		var said struct{ Status corev1.PodStatus }
		if err := json.Unmarshal(command.Body, &said); command.Body != nil && err != nil {
			return err
		}
		if command.Verb == events.VerbDelete || command.If.Absent != nil || said.Status.Phase != "" {
			return errMercy
		}
	}
	return nil
}

// exact: every command names the version that was seen, because a restored backup of
// etcd may have a pod of the same uid in another state.
func exact(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.If.ResourceVersion == "" {
			return errors.New("a command does not say which version it is about")
		}
	}
	return nil
}

var errMercy = errors.New("a pod is ended without need")

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		switch {
		case c.Verb == events.VerbDelete && v.Pod == nil:
			return View{Pod: reconciletest.Pod("other")}
		case c.Verb == events.VerbDelete:
			v.Pod, v.Node, v.Since = reconciletest.Pod("other"), nil, time.Time{}
		default:
			var said struct{ Status corev1.PodStatus }
			if err := json.Unmarshal(c.Body, &said); err != nil {
				panic(err)
			}
			v.Pod, v.Since = v.Pod.DeepCopy(), now
			if said.Status.Phase != "" {
				v.Pod.Status.Phase, v.Pod.Status.Conditions = said.Status.Phase, said.Status.Conditions
			}
		}
	}
	return v
}

func node(name string, out bool) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if out {
		n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}}
	}
	return n
}

func TestOutOfService(t *testing.T) {
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	well, out := node("n", true), node("n", true)
	well.Status.Conditions = ready
	if outOfService(well) || !outOfService(out) || outOfService(node("n", false)) {
		t.Error("out of service is what is tainted and not ready, and nothing else")
	}
}

// TestWhatWasBegunIsEnded: a pod that was marked as failed because its node is deleted is deleted
// at once, even if the time since when the node is missing is forgotten. Another disruption does
// not count: the node may be back.
func TestWhatWasBegunIsEnded(t *testing.T) {
	disrupted := func(status corev1.ConditionStatus, reason string) corev1.PodCondition {
		return corev1.PodCondition{Type: corev1.DisruptionTarget, Status: status, Reason: reason}
	}
	for name, c := range map[string]struct {
		phase corev1.PodPhase
		says  corev1.PodCondition
		ends  bool
	}{
		"it was ended for its node":       {corev1.PodFailed, disrupted(corev1.ConditionTrue, reason), true},
		"it had succeeded":                {corev1.PodSucceeded, disrupted(corev1.ConditionTrue, reason), true},
		"it was evicted":                  {corev1.PodFailed, disrupted(corev1.ConditionTrue, "EvictionByEvictionAPI"), false},
		"its node was tainted":            {corev1.PodFailed, disrupted(corev1.ConditionTrue, "DeletionByTaintManager"), false},
		"it was preempted":                {corev1.PodFailed, disrupted(corev1.ConditionTrue, corev1.PodReasonPreemptionByScheduler), false},
		"no reason is given":              {corev1.PodFailed, disrupted(corev1.ConditionTrue, ""), false},
		"it is said that it was not":      {corev1.PodFailed, disrupted(corev1.ConditionFalse, reason), false},
		"another condition says the same": {corev1.PodFailed, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, Reason: reason}, false},
		"it runs":                         {corev1.PodRunning, disrupted(corev1.ConditionTrue, reason), false},
	} {
		p := reconciletest.Pod("p", reconciletest.On("n1"), reconciletest.InPhase(c.phase))
		p.Status.Conditions = []corev1.PodCondition{c.says}
		for _, since := range []time.Time{{}, now.Add(-quarantine / 2)} {
			d := decide(View{Pod: p, Since: since}, now)
			ends := len(d.Commands) == 1 && d.Commands[0].Verb == events.VerbDelete
			if ends != c.ends || !ends && d.WakeAt.IsZero() {
				t.Errorf("%s, and its node is missed since %v: %s, %v", name, since, d.Because, d.Commands)
			}
			if ends && (d.Commands[0].If.Absent == nil || *d.Commands[0].GraceSeconds != 0) {
				t.Errorf("%s: the delete is %+v, want without grace, if the node is absent", name, d.Commands[0])
			}
		}
	}
}

func TestExcess(t *testing.T) {
	old := func(name string, age time.Duration, phase corev1.PodPhase) *corev1.Pod {
		p := reconciletest.Pod(name, reconciletest.InPhase(phase))
		p.CreationTimestamp = metav1.NewTime(now.Add(-age))
		return p
	}
	thrown := old("e", time.Minute, corev1.PodFailed)
	thrown.Status.Reason = "Evicted"
	pods := []*corev1.Pod{
		old("a", time.Hour, corev1.PodSucceeded), old("b", 2*time.Hour, corev1.PodFailed), old("c", time.Minute, corev1.PodFailed),
		old("d", 3*time.Hour, corev1.PodRunning), thrown,
	}
	var names []string
	for _, p := range excess(slices.Clone(pods), 1) {
		names = append(names, p.Name)
	}
	if !slices.Equal(names, []string{"e", "b", "a"}) {
		t.Errorf("those that go are %v", names)
	}
	held := int64(0)
	pods[1].DeletionTimestamp, pods[1].DeletionGracePeriodSeconds = &metav1.Time{Time: now}, &held
	if got := excess(slices.Clone(pods), 1); len(got) != 2 || got[0].Name != "e" || got[1].Name != "a" {
		t.Errorf("when one has been deleted already and is held, %v go", got)
	}
	if got := excess(slices.Clone(pods), -1); got != nil {
		t.Errorf("when all are kept, %v go", got)
	}
}

func TestObserve(t *testing.T) {
	p := reconciletest.Pod("p", reconciletest.On("n1"))
	key := events.Key{Namespace: p.Namespace, Name: "p"}
	world := reconciletest.NewWorld(kinds.Nodes.Kind).Put(kinds.Pods.Kind, p)
	world.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: "another", At: now})
	if v, ok := controller.Observe(world, key); !ok || v.Pod != p || v.Node != nil || !v.Since.IsZero() {
		t.Errorf("the view has %+v", v)
	}
	world.Remember(events.Outcome{Key: key, Lane: events.LaneStatus, UID: p.UID, At: now}).Put(kinds.Nodes.Kind, node("n1", false))
	if v, _ := controller.Observe(world, key); v.Node == nil || !v.Since.Equal(now) {
		t.Errorf("the view has %+v", v)
	}
	if _, ok := controller.Observe(world, finished); ok {
		t.Error("no pod has ended, and observe finds some")
	}
	for _, name := range []string{"a", "b", "c"} {
		world.Put(kinds.Pods.Kind, reconciletest.Pod(name, reconciletest.InPhase(corev1.PodFailed)))
	}
	if v, _ := controller.Observe(world, finished); len(v.Excess) != 1 {
		t.Errorf("of three ended pods, with two to keep, %d are too many, want 1", len(v.Excess))
	}
}

func TestWhoseTurn(t *testing.T) {
	there, lost := reconciletest.Pod("there", reconciletest.On("n1")), reconciletest.Pod("lost", reconciletest.On("n2"))
	leaving := reconciletest.Pod("leaving", reconciletest.On("n1"), reconciletest.Deleted[*corev1.Pod](now))
	over := reconciletest.Pod("over", reconciletest.InPhase(corev1.PodFailed))
	world := reconciletest.NewWorld().Put(kinds.Nodes.Kind, node("n1", false)).Put(kinds.Pods.Kind, there, lost, leaving)
	key := func(names ...string) (keys []events.Key) {
		for _, name := range names {
			keys = append(keys, events.Key{Namespace: reconciletest.Namespace, Name: name})
		}
		return keys
	}
	for _, c := range []struct {
		what     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		{"a pod with its node", kinds.Pods.Kind, nil, there, nil},
		{"a pod without its node", kinds.Pods.Kind, nil, lost, key("lost")},
		{"a pod that is to go", kinds.Pods.Kind, nil, leaving, key("leaving")},
		{"a pod that has ended", kinds.Pods.Kind, nil, over, []events.Key{finished}},
		{"a pod that is gone", kinds.Pods.Kind, lost, nil, nil},
		{"a node goes", kinds.Nodes.Kind, node("n1", false), nil, key("leaving", "there")},
		{"a node is out of service", kinds.Nodes.Kind, nil, node("n1", true), key("leaving")},
		{"a node changes", kinds.Nodes.Kind, nil, node("n1", false), nil},
	} {
		if got := world.Keys(controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}
