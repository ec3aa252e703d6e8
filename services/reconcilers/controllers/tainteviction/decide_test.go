package tainteviction

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/gate"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(anyView), now,
		reconciletest.Content(4, applied), reconciletest.Law[View]{Name: "patient with pods", Holds: mild})
}

func anyView(t *rapid.T) View {
	v := View{Pod: reconciletest.Pod("p", reconciletest.On("n1"))}
	v.Pod.Spec.Tolerations = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) corev1.Toleration {
		by := tolerates(rapid.SampledFrom([]string{"a", "b", ""}).Draw(t, "of"))
		if rapid.Bool().Draw(t, "limited") {
			by.TolerationSeconds = ptr.To(rapid.Int64Range(-1, 30).Draw(t, "seconds"))
		}
		return by
	}), 0, 3).Draw(t, "tolerations")
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b"}), 0, 2, rapid.ID).Draw(t, "taints") {
		drives := corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
		if rapid.Bool().Draw(t, "dated") {
			at := metav1.NewTime(now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "since")) * time.Second))
			drives.TimeAdded = &at
		}
		v.Taints = append(v.Taints, drives)
	}
	if rapid.Bool().Draw(t, "noted") {
		since := now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(t, "noted since")) * time.Second)
		v.Stay = &Stay{since, since.Add(time.Duration(rapid.IntRange(1, 60).Draw(t, "stay")) * time.Second)}
	}
	if rapid.Bool().Draw(t, "marked") {
		mark(v.Pod, now.Add(-time.Second))
	}
	if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
		reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
	}
	return v
}

func tolerates(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists}
}

func mark(p *corev1.Pod, since time.Time) {
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: why, LastTransitionTime: metav1.NewTime(since),
	})
}

// applied returns the view after every command succeeded.
func applied(v View, d reconcile.Decision, now time.Time) View {
	for _, c := range d.Commands {
		if c.Verb == events.VerbDelete {
			v.Pod = v.Pod.DeepCopy()
			reconciletest.Deleted[*corev1.Pod](now)(v.Pod)
			continue
		}
		if v.Stay = nil; len(c.Note) > 0 {
			v.Stay = noted(events.Outcome{Results: []events.Result{{Answer: &events.Answer{Note: c.Note}}}})
		}
		if c.Verb == events.VerbPatch {
			v.Pod = v.Pod.DeepCopy()
			mark(v.Pod, now)
		}
	}
	return v
}

// mild: a pod that tolerates every taint of its node is not deleted before its shortest
// toleration ends, counted from a noted stay, and never if no toleration is limited.
func mild(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	all, patience, limited := v.tolerates()
	if !all || limited && (patience == 0 || v.Stay != nil && !v.Stay.Until.After(now)) {
		return nil
	}
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbRecord {
			return fmt.Errorf("the decision does %v", command.Verb)
		}
	}
	return nil
}

func TestForHowLong(t *testing.T) {
	drive := func(keys ...string) (taints []corev1.Taint) {
		for _, key := range keys {
			taints = append(taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute})
		}
		return taints
	}
	limited := func(key string, seconds int64) corev1.Toleration {
		by := tolerates(key)
		by.TolerationSeconds = &seconds
		return by
	}
	for _, c := range []struct {
		what        string
		taints      []corev1.Taint
		tolerations []corev1.Toleration
		all         bool
		patience    time.Duration
		limited     bool
	}{
		{"nothing drives it away", nil, nil, true, 0, false},
		{"it tolerates nothing", drive("a"), nil, false, 0, true},
		{"it tolerates one of two", drive("a", "b"), []corev1.Toleration{tolerates("a")}, false, 0, true},
		{"for good", drive("a"), []corev1.Toleration{tolerates("")}, true, 0, false},
		{"for the shorter time", drive("a", "b"), []corev1.Toleration{limited("a", 30), limited("b", 20)}, true, 20 * time.Second, true},
		{"for good and for a while", drive("a", "b"), []corev1.Toleration{tolerates("a"), limited("b", 20)}, true, 20 * time.Second, true},
		{"the first that fits counts", drive("a"), []corev1.Toleration{limited("a", 30), limited("a", 20)}, true, 30 * time.Second, true},
		{"for less than no time", drive("a"), []corev1.Toleration{limited("a", -3)}, true, 0, true},
	} {
		v := View{Pod: reconciletest.Pod("p"), Taints: c.taints}
		v.Pod.Spec.Tolerations = c.tolerations
		if all, patience, limited := v.tolerates(); all != c.all || all && patience != c.patience || limited != c.limited {
			t.Errorf("%s: %v, %v, %v", c.what, all, patience, limited)
		}
	}
}

func TestObserve(t *testing.T) {
	p := reconciletest.Pod("p", reconciletest.On("n1"))
	key := events.Key{Namespace: p.Namespace, Name: "p"}
	note, err := json.Marshal(Stay{now, now.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	said := events.Outcome{Key: key, Lane: events.LaneStatus, UID: p.UID, Results: []events.Result{{}, {Answer: &events.Answer{Note: note}}}}
	world := reconciletest.NewWorld().Put(kinds.Pods.Kind, p).Remember(said).
		Put(kinds.Nodes.Kind, node("n1", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute))
	if v, ok := Controller.Observe(world, key); !ok || v.Pod != p || len(v.Taints) != 1 || v.Stay == nil || !v.Stay.Until.Equal(now.Add(time.Minute)) {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	said.UID = "another"
	if v, _ := Controller.Observe(world.Remember(said), key); v.Stay != nil {
		t.Errorf("of another pod with that name the view has %v", v.Stay)
	}
	if v, ok := Controller.Observe(world, events.Key{Namespace: p.Namespace, Name: "q"}); ok {
		t.Errorf("of no pod the view has %+v", v)
	}
}

func node(name string, effects ...corev1.TaintEffect) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, effect := range effects {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "a", Effect: effect})
	}
	return n
}

func TestWhoseTurn(t *testing.T) {
	edited := func(edit func(*corev1.Taint)) *corev1.Node {
		n := node("n1", corev1.TaintEffectNoExecute)
		edit(&n.Spec.Taints[0])
		return n
	}
	drives, warns, plain := node("n1", corev1.TaintEffectNoExecute), node("n1", corev1.TaintEffectNoSchedule), node("n1")
	world := reconciletest.NewWorld().Put(kinds.Nodes.Kind, drives, node("n2")).
		Put(kinds.Pods.Kind, reconciletest.Pod("a", reconciletest.On("n1")), reconciletest.Pod("b", reconciletest.On("n2")), reconciletest.Pod("c"))
	a := []events.Key{{Namespace: reconciletest.Namespace, Name: "a"}}
	for _, c := range []struct {
		what     string
		kind     kinds.Kind
		was, now metav1.Object
		want     []events.Key
	}{
		{"a pod on a node that drives away", kinds.Pods.Kind, nil, reconciletest.Pod("a", reconciletest.On("n1")), a},
		{"a pod elsewhere", kinds.Pods.Kind, nil, reconciletest.Pod("b", reconciletest.On("n2")), nil},
		{"a pod that is gone", kinds.Pods.Kind, reconciletest.Pod("a", reconciletest.On("n1")), nil, nil},
		{"a node begins to drive away", kinds.Nodes.Kind, plain, drives, a},
		{"a node stops it", kinds.Nodes.Kind, drives, plain, a},
		{"a node goes on", kinds.Nodes.Kind, drives, drives, nil},
		{"a node only warns", kinds.Nodes.Kind, plain, warns, nil},
		{"a node that drives away is new", kinds.Nodes.Kind, nil, drives, a},
		{"a node is gone", kinds.Nodes.Kind, drives, nil, nil},
		{"a taint has another value", kinds.Nodes.Kind, drives, edited(func(t *corev1.Taint) { t.Value = "x" }), a},
		{"a taint is another", kinds.Nodes.Kind, drives, edited(func(t *corev1.Taint) { t.Key = "b" }), a},
		{"a taint was added anew", kinds.Nodes.Kind, drives, edited(func(t *corev1.Taint) { t.TimeAdded = &metav1.Time{Time: now} }), a},
	} {
		if got := world.Keys(Controller, c.kind, c.was, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: turns of %v, want %v", c.what, got, c.want)
		}
	}
}

// The buckets are upstream's: dashboards compare them.
func TestBuckets(t *testing.T) {
	want := []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 30, 60, 120, 180, 240}
	for _, m := range metrics {
		if m.Name == latency && !slices.Equal(m.Buckets, want) {
			t.Errorf("the buckets are %v, want %v", m.Buckets, want)
		}
	}
}

// A note without an end is no stay, and the view has the gates.
func TestWhatIsSeenBesides(t *testing.T) {
	for text, want := range map[string]bool{`{}`: false, `{"until":"2030-01-01T00:00:00Z"}`: true, `{"until":7}`: false} {
		o := events.Outcome{Results: []events.Result{{}, {Answer: &events.Answer{Note: json.RawMessage(text)}}}}
		if got := noted(o) != nil; got != want {
			t.Errorf("%s is a stay: %v, want %v", text, got, want)
		}
	}
	world := reconciletest.NewWorld(kinds.Nodes.Kind).Put(kinds.Pods.Kind, reconciletest.Pod("p"))
	c := New(gate.Set{gate.TaintTolerationComparisonOperators: true})
	if v, ok := c.Observe(world, events.Key{Namespace: reconciletest.Namespace, Name: "p"}); !ok || !v.Gates.On(gate.TaintTolerationComparisonOperators) {
		t.Errorf("the gates are %v", v.Gates)
	}
}

func TestFigures(t *testing.T) {
	v := View{Pod: reconciletest.Pod("p"), Taints: node("n1", corev1.TaintEffectNoExecute).Spec.Taints}
	mark(v.Pod, now.Add(-3*time.Second))
	got := map[string]float64{}
	for _, f := range Controller.Decide(v, now).Figures {
		got[f.Metric] = f.Value
	}
	if len(got) != 2 || got[deletions] != 1 || got[latency] != 3 {
		t.Errorf("the figures are %v", got)
	}
}

// A stay that was noted by a clock an hour ahead begins when the note is received. A taint from the
// future does not begin it anew; a taint that was added after its end does.
func TestStaysOfAClockThatWasAhead(t *testing.T) {
	p := reconciletest.Pod("p", reconciletest.On("n1"))
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: ptr.To(int64(60))}}
	ahead := now.Add(time.Hour)
	note, err := json.Marshal(Stay{ahead, ahead.Add(time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	told := events.Outcome{Decided: ahead, At: ahead, Results: []events.Result{{Answer: &events.Answer{Note: note}}}}
	stay := noted(told.KnownBy(now))
	if stay == nil || !stay.Since.Equal(now) || !stay.Until.Equal(now.Add(time.Minute)) {
		t.Fatalf("the stay is %+v, and was heard of at %v", stay, now)
	}
	for _, c := range []struct {
		what  string
		added time.Time
		now   time.Time
		want  string
	}{
		{"added by that clock", ahead, now.Add(time.Second), "the pod tolerates its node's taints for a time"},
		{"added by that clock, and the time is over", ahead, now.Add(time.Minute), "the pod's toleration of its node's taints has expired"},
		{"added before", now.Add(-time.Second), now.Add(time.Minute), "the pod's toleration of its node's taints has expired"},
		{"added after the time was over", now.Add(2 * time.Minute), now.Add(3 * time.Minute), "the pod tolerates its node's taints for a time"},
		{"added just now by a clock that is a little ahead", now.Add(2*time.Minute + 10*time.Second), now.Add(2 * time.Minute), "the pod tolerates its node's taints for a time"},
	} {
		at := metav1.NewTime(c.added)
		v := View{Pod: p, Stay: stay, Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute, TimeAdded: &at}}}
		if d := decide(v, c.now); d.Because != c.want {
			t.Errorf("%s: %s", c.what, d.Because)
		}
		if d := decide(v, c.now); d.WakeAt.After(c.now.Add(time.Minute)) {
			t.Errorf("%s: the pod waits until %v at %v", c.what, d.WakeAt, c.now)
		}
	}
}
