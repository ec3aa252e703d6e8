package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

func podKey(name string) events.Key {
	return events.Key{Kind: kinds.Pods.Name, Namespace: reconciletest.Namespace, Name: name}
}

// turn decides for a key, applies the decision, and returns its Events.
func turn(world *reconciletest.World, key events.Key, uid types.UID) (told []string) {
	v, ok := Controller.Observe(world, key)
	if !ok {
		return nil
	}
	o := events.Outcome{Key: key, Lane: events.LaneStatus, UID: uid}
	for _, c := range Controller.Decide(v, now).Commands {
		if c.OnApplied != nil {
			told = append(told, fmt.Sprint(c.OnApplied.Reason, " on ", c.OnApplied.About.Name))
		}
		o.Results = append(o.Results, events.Result{Status: events.Applied, Answer: &events.Answer{Note: c.Note}})
	}
	if len(o.Results) > 0 {
		world.Remember(o)
	}
	return told
}

// A second budget over pods is reported once on the pods, whatever its name, when it is
// created and when a pod is created.
func TestASecondBudgetIsTold(t *testing.T) {
	p := reconciletest.Pod("p")
	for _, second := range []string{"0", "z"} {
		b := budget(second, everything)
		world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind, budget("a", ofWeb)).Put(kinds.Pods.Kind, p)
		if got := world.Keys(Controller, kinds.Pods.Kind, nil, p); slices.Contains(got, podKey("p")) {
			t.Errorf("a pod with one budget makes it the turn of %v", got)
		}
		world.Put(kinds.PodDisruptionBudgets.Kind, b)
		for what, keys := range map[string][]events.Key{
			"the budget comes":      world.Keys(Controller, kinds.PodDisruptionBudgets.Kind, nil, b),
			"it selects other pods": world.Keys(Controller, kinds.PodDisruptionBudgets.Kind, budget(second, nil), b),
			"the pod comes":         world.Keys(Controller, kinds.Pods.Kind, nil, p),
			"the pod goes":          world.Keys(Controller, kinds.Pods.Kind, p, nil),
		} {
			if !slices.Contains(keys, podKey("p")) {
				t.Errorf("%s: turns of %v", what, keys)
			}
		}
		counted := b.DeepCopy()
		counted.Status.ExpectedPods = 1
		if got := world.Keys(Controller, kinds.PodDisruptionBudgets.Kind, b, counted); !slices.Equal(got, []events.Key{keyOf(second)}) {
			t.Errorf("its status asks for turns of %v", got)
		}
		if got := turn(world, podKey("p"), p.UID); !slices.Equal(got, []string{"MultiplePodDisruptionBudgets on p"}) {
			t.Errorf("users are told %q", got)
		}
		if got := turn(world, podKey("p"), p.UID); len(got) > 0 {
			t.Errorf("users are told again: %q", got)
		}
		world.Remove(kinds.PodDisruptionBudgets.Name, reconciletest.Namespace, second)
		if got := world.Keys(Controller, kinds.PodDisruptionBudgets.Kind, b, nil); !slices.Contains(got, podKey("p")) {
			t.Errorf("the budget goes: turns of %v", got)
		}
		if got := turn(world, podKey("p"), p.UID); len(got) > 0 {
			t.Errorf("users are told that one is left: %q", got)
		}
		world.Put(kinds.PodDisruptionBudgets.Kind, b)
		if got := turn(world, podKey("p"), p.UID); len(got) != 1 {
			t.Errorf("the second budget comes back, and the Events are %q, want one", got)
		}
	}
}

// A budget over very many pods reports some at once, and the others as they change.
func TestASecondBudgetOverManyPods(t *testing.T) {
	world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind, budget("a", ofWeb), budget("z", everything))
	for i := range 3 * most {
		world.Put(kinds.Pods.Kind, reconciletest.Pod(fmt.Sprint("p", i)))
	}
	if got := world.Keys(Controller, kinds.PodDisruptionBudgets.Kind, nil, budget("z", everything)); len(got) != most+1 {
		t.Errorf("the change asks for turns of %d keys", len(got))
	}
}

// A report about the pod's own disruption keeps the note about budgets.
func TestAReportKeepsWhatWasTold(t *testing.T) {
	p := reconciletest.Pod("p")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour))}}
	world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind, budget("a", ofWeb), budget("z", everything)).Put(kinds.Pods.Kind, p)
	if got := turn(world, podKey("p"), p.UID); len(got) != 1 {
		t.Errorf("users are told %q", got)
	}
	if got := turn(world, podKey("p"), p.UID); len(got) > 0 {
		t.Errorf("users are told again: %q", got)
	}
	p = p.DeepCopy()
	p.Status.Conditions = nil
	world.Put(kinds.Pods.Kind, p)
	if got := turn(world, podKey("p"), p.UID); len(got) > 0 {
		t.Errorf("users are told again: %q", got)
	}
	p.UID = "another"
	if got := turn(world, podKey("p"), p.UID); len(got) != 1 {
		t.Errorf("about the next pod of that name the Events are %q, want one", got)
	}
}

// The note of a report counts only if all of its commands succeeded and returned it.
func TestWhatAReportTold(t *testing.T) {
	noted := func(status events.Status) events.Result {
		return events.Result{Status: status, Answer: &events.Answer{Note: []byte(`{"budgets":["a","z"]}`)}}
	}
	for what, c := range map[string]struct {
		results []events.Result
		want    []string
	}{
		"nothing was done":        {nil, nil},
		"done, with its note":     {[]events.Result{noted(events.Applied)}, []string{"a", "z"}},
		"done, without a note":    {[]events.Result{{Status: events.Applied}}, nil},
		"refused, with its note":  {[]events.Result{noted(events.Refused)}, nil},
		"done, and then refused":  {[]events.Result{noted(events.Applied), noted(events.Refused)}, nil},
		"done, with another note": {[]events.Result{{Status: events.Applied, Answer: &events.Answer{Note: []byte(`[]`)}}}, nil},
	} {
		if got := toldIn(events.Outcome{Results: c.results}); !slices.Equal(got, c.want) {
			t.Errorf("%s: the outcome told of %q, want %q", what, got, c.want)
		}
	}
}

// asks counts the questions of a budget during a time; each is answered at once.
func asks(b *reconciletest.World, key events.Key, from time.Time, during time.Duration, answer func(c events.Command) events.Result) (n int) {
	for at := from; at.Before(from.Add(during)); {
		v, _ := Controller.Observe(b, key)
		d := Controller.Decide(v, at)
		o := events.Outcome{Key: key, UID: "u-web", Lane: events.LaneWrite, At: at}
		for _, c := range d.Commands {
			if c.Verb == events.VerbAsk {
				n++
				o.Results = append(o.Results, answer(c))
			}
		}
		switch {
		case len(o.Results) > 0:
			b.Remember(o)
			at = at.Add(100 * time.Millisecond)
		case d.WakeAt.IsZero():
			return n
		default:
			at = d.WakeAt
		}
	}
	return n
}

// The answer that a kind has no scale is valid until the pods change. After any other
// failure the controller asks again.
func TestAScaleThatIsNotThereIsAskedForOnce(t *testing.T) {
	one := intstr.FromInt32(1)
	b := budget("web", everything)
	b.Spec.MaxUnavailable = &one
	daemon := func(name string) *corev1.Pod {
		p := reconciletest.Pod(name)
		p.OwnerReferences = []metav1.OwnerReference{reference("apps/v1", "DaemonSet", "agent")}
		return p
	}
	for _, c := range []struct {
		result events.Result
		once   bool
	}{
		{events.Result{Status: events.Refused, Code: 501, Reason: "NoSuchSubresource", Message: "daemonsets.apps does not implement the scale subresource"}, true},
		{events.Result{Status: events.Refused, Reason: "NoMatch", Message: "no matches for kind"}, true},
		{events.Result{Status: events.Absent}, true},
		{events.Result{Status: events.Failed, Code: 500, Message: "down"}, false},
	} {
		world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind, b).Put(kinds.Pods.Kind, daemon("p"))
		answer := func(command events.Command) events.Result {
			r := c.result
			r.Answer = &events.Answer{Note: command.Note}
			return r
		}
		if n := asks(world, keyOf("web"), now, 20*time.Second, answer); (n == 1) != c.once {
			t.Errorf("%s %s: it is asked for %d times in 20 s", c.result.Status, c.result.Reason, n)
		}
		world.Put(kinds.Pods.Kind, daemon("q"))
		if n := asks(world, keyOf("web"), now.Add(time.Minute), time.Second, answer); n == 0 {
			t.Errorf("%s %s: another pod comes, and it is not asked for again", c.result.Status, c.result.Reason)
		}
	}
}

// If two controllers are asked about, the answer for one does not drop the other's.
func TestTwoScalesAreAskedForTogether(t *testing.T) {
	one := intstr.FromInt32(1)
	b := budget("web", everything)
	b.Spec.MaxUnavailable = &one
	of := func(name, kind string) *corev1.Pod {
		p := reconciletest.Pod(name)
		p.OwnerReferences = []metav1.OwnerReference{reference("example.com/v1", kind, strings.ToLower(kind))}
		return p
	}
	answer := func(c events.Command) events.Result {
		body := reconcile.Body(map[string]any{"metadata": map[string]any{"uid": c.Of.UID}, "spec": map[string]any{"replicas": 1}})
		return events.Result{Status: events.Answered, Answer: &events.Answer{Note: c.Note, Body: body}}
	}
	world := reconciletest.NewWorld().Put(kinds.PodDisruptionBudgets.Kind, b).Put(kinds.Pods.Kind, of("p", "Foo"))
	asks(world, keyOf("web"), now, 50*time.Millisecond, answer)
	world.Put(kinds.Pods.Kind, of("q", "Bar")) // the answer about the other controller is still valid
	if n := asks(world, keyOf("web"), now, 20*time.Second, answer); n > 4 {
		t.Errorf("the API server is asked %d times, want 4 at most", n)
	}
}
