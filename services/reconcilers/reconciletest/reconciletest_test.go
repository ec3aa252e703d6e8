package reconciletest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/story"
)

// nap is the smallest honest controller with a view, a clock and a list: it
// deletes its pods once the time has come.
type nap struct {
	Until time.Time     `json:"until"`
	Pods  []*corev1.Pod `json:"pods,omitempty"`
}

func honest(decide func(v nap, now time.Time) reconcile.Decision) reconcile.Controller[nap] {
	return reconcile.Controller[nap]{
		Name:   "nap-controller",
		Writes: reconcile.Writes{{Verb: events.VerbDelete, Kind: kinds.Pods.Name}},
		Decide: decide,
	}
}

func wellBehaved(v nap, now time.Time) reconcile.Decision {
	switch {
	case len(v.Pods) == 0:
		return reconcile.Nothing("no Pod is here")
	case now.Before(v.Until):
		return reconcile.Wake(v.Until, "not yet")
	}
	pods := slices.SortedFunc(slices.Values(v.Pods), func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	var commands []events.Command
	for _, p := range pods {
		commands = append(commands, reconcile.Delete(kinds.Pods.Kind, p))
	}
	return reconcile.Do("time is up", commands...)
}

func anyNap(t *rapid.T) nap {
	v := nap{Until: Now.Add(time.Duration(rapid.IntRange(-3, 3).Draw(t, "hours")) * time.Hour)}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z]{3}`), 0, 4, rapid.ID).Draw(t, "pods") {
		v.Pods = append(v.Pods, Pod(name, On("n1"), ReadySince(Now)))
	}
	return v
}

func permute(t *rapid.T, v nap) nap {
	v.Pods = rapid.Permutation(v.Pods).Draw(t, "order")
	return v
}

func apply(v nap, _ reconcile.Decision, _ time.Time) nap {
	v.Pods = nil
	return v
}

func TestAnHonestControllerKeepsTheLaws(t *testing.T) {
	Laws(t, honest(wellBehaved), rapid.Custom(anyNap), Now, Indifferent(permute), Content(2, apply))
}

func TestEveryLawCatchesItsCheat(t *testing.T) {
	calls := 0
	cheats := []struct {
		law, cheat string
		decide     func(v nap, now time.Time) reconcile.Decision
	}{
		{"deterministic", "counts how often it was asked", func(nap, time.Time) reconcile.Decision {
			calls++
			return reconcile.Nothing(strings.Repeat("again ", calls))
		}},
		{"deterministic", "tells notices apart only by chance", func(nap, time.Time) reconcile.Decision {
			calls++
			return reconcile.Do("news", reconcile.Record(events.Notice{Message: strings.Repeat("again ", calls)}))
		}},
		{"hands off", "marks a shared object", func(v nap, _ time.Time) reconcile.Decision {
			for _, p := range v.Pods {
				p.Status.Phase = corev1.PodFailed
			}
			return reconcile.Nothing("marked")
		}},
		{"faithful", "deletes what it did not promise", func(v nap, _ time.Time) reconcile.Decision {
			return reconcile.Do("why not", reconcile.Delete(kinds.Namespaces.Kind, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u"}}))
		}},
		{"faithful", "deletes any object that has the name", func(v nap, _ time.Time) reconcile.Decision {
			return reconcile.Do("why not", reconcile.Delete(kinds.Pods.Kind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x"}}))
		}},
		{"faithful", "counts what it did not declare", func(v nap, _ time.Time) reconcile.Decision {
			return reconcile.Decision{Because: "the set sleeps", Figures: []reconcile.Figure{{Metric: "naps"}}}
		}},
		{"faithful", "gives no reason", func(nap, time.Time) reconcile.Decision { return reconcile.Decision{} }},
		{"patient", "acts before the time it named", func(v nap, now time.Time) reconcile.Decision {
			return wellBehaved(v, now.Add(time.Hour))
		}},
		{"patient", "forgets to be woken", func(v nap, now time.Time) reconcile.Decision {
			d := wellBehaved(v, now)
			d.WakeAt = time.Time{}
			return d
		}},
		{"punctual", "sleeps past its time", func(v nap, now time.Time) reconcile.Decision {
			if len(v.Pods) > 0 && !now.After(v.Until) {
				return reconcile.Wake(v.Until, "not yet")
			}
			return wellBehaved(v, now)
		}},
		{"punctual", "wakes for nothing", func(v nap, now time.Time) reconcile.Decision {
			if now.Before(v.Until) {
				return reconcile.Wake(v.Until, "just in case")
			}
			return reconcile.Nothing("false alarm")
		}},
		{"indifferent to order", "takes the first it sees", func(v nap, _ time.Time) reconcile.Decision {
			if len(v.Pods) == 0 {
				return reconcile.Nothing("no Pod is here")
			}
			return reconcile.Do("you", reconcile.Delete(kinds.Pods.Kind, v.Pods[0]))
		}},
		{"content", "never has enough", func(nap, time.Time) reconcile.Decision {
			return reconcile.Do("more", reconcile.Record(events.Notice{Reason: "More"}))
		}},
		{"blind", "goes by a variable of a container", func(v nap, _ time.Time) reconcile.Decision {
			if len(v.Pods) == 0 || len(v.Pods[0].Spec.Containers) == 0 || len(v.Pods[0].Spec.Containers[0].Env) == 0 {
				return reconcile.Nothing("no Pod says anything")
			}
			return reconcile.Nothing("it says " + v.Pods[0].Spec.Containers[0].Env[0].Value)
		}},
		{"blind", "goes by an annotation of a user", func(v nap, _ time.Time) reconcile.Decision {
			if len(v.Pods) == 0 {
				return reconcile.Nothing("no Pod is here")
			}
			return reconcile.Nothing("it says " + v.Pods[0].Annotations["example.com/planted"])
		}},
		{"robust", "trusts that conditions are there", func(v nap, _ time.Time) reconcile.Decision {
			for _, p := range v.Pods {
				_ = p.Status.Conditions[0]
			}
			return reconcile.Nothing("fine")
		}},
	}
	laws := append(Universal[nap](), Indifferent(permute), Content(2, apply))
	for _, c := range cheats {
		t.Run(c.cheat, func(t *testing.T) {
			at := slices.IndexFunc(laws, func(l Law[nap]) bool { return l.Name == c.law })
			if at < 0 {
				t.Fatalf("there is no law %q", c.law)
			}
			caught := 0
			rapid.Check(t, func(t *rapid.T) {
				if laws[at].Holds(t, honest(c.decide), anyNap(t), Now) != nil {
					caught++
				}
			})
			if caught == 0 {
				t.Errorf("the law %q never catches a controller that %s", c.law, c.cheat)
			}
		})
	}
}

const example = `One pod, and its time is up.

-- now --
2030-01-01T12:00:00Z
-- view.yaml --
until: "2030-01-01T12:00:00Z"
pods:
- metadata: {namespace: default, name: web, uid: "7"}
`

func TestAStoryIsToldAndThenHolds(t *testing.T) {
	told, diff, err := play(honest(wellBehaved), []byte(example))
	if err != nil || diff == "" {
		t.Fatalf("a story without an end: diff %q, %v; want a difference", diff, err)
	}
	if !strings.Contains(string(told), "do: delete pods:default/web") {
		t.Errorf("the story as told lacks the delete:\n%s", told)
	}
	if _, diff, err = play(honest(wellBehaved), told); err != nil || diff != "" {
		t.Errorf("the story as told does not hold: %s %v", diff, err)
	}
	loose := strings.Replace(string(told), "because: time is up", `because:    "time is up"`, 1)
	if _, diff, err = play(honest(wellBehaved), []byte(loose)); err != nil || diff != "" {
		t.Errorf("other YAML of the same meaning does not hold: %s %v", diff, err)
	}
	late := strings.Replace(string(told), "2030-01-01T12:00:00Z", "2030-01-01T11:59:59Z", 1)
	if _, diff, err = play(honest(wellBehaved), []byte(late)); err != nil || !strings.Contains(diff, "not yet") {
		t.Errorf("at another time: diff %q, %v; want the other decision in it", diff, err)
	}
}

func TestAStoryWithATypoFails(t *testing.T) {
	for what, broken := range map[string]string{
		"unknown view field":   strings.Replace(example, "until:", "untill:", 1),
		"unknown object field": strings.Replace(example, "namespace:", "namespase:", 1),
		"no time":              strings.Replace(example, "-- now --", "-- then --", 1),
		"no view":              strings.Replace(example, "-- view.yaml --", "-- sight.yaml --", 1),
		"no words":             strings.Replace(example, "One pod, and its time is up.\n\n", "", 1),
		"another file":         example + "-- decision.yml --\n",
	} {
		if _, _, err := play(honest(wellBehaved), []byte(broken)); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

func TestRenderSharesBodiesAndShowsStatusAlone(t *testing.T) {
	set := ReplicaSet("web", 1)
	text, err := story.Render(reconcile.Do("busy",
		reconcile.Create(kinds.Pods.Kind, "default", "a", json.RawMessage(`{"spec":{}}`)),
		reconcile.Create(kinds.Pods.Kind, "default", "b", json.RawMessage(`{"spec":{}}`)),
		reconcile.UpdateStatus(kinds.ReplicaSets.Kind, set,
			reconcile.WithEvents(&events.Notice{About: reconcile.About(kinds.ReplicaSets.Kind, set), Type: "Normal", Reason: "Told", Message: "it"}, nil)),
	))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"do: create pods:default/a", "sameBodyAs: a", "do: update replicasets.apps:default/web/status",
		"status:\n    replicas: 0", "event: 'Normal Told on ReplicaSet web: it'",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "selector") {
		t.Errorf("the page shows more than the status:\n%s", text)
	}
}

func TestDifference(t *testing.T) {
	for _, c := range []struct{ first, second, want string }{
		{"a\nb\n", "a\nb\n", ""},
		{"a\nb\nc\n", "a\nc\nd\n", "  a\n- b\n  c\n+ d\n"},
		{"a\n", "b\n", "- a\n+ b\n"},
		{"a\nb\na\n", "b\na\nb\n", "- a\n  b\n  a\n+ b\n"},
	} {
		if got := difference(c.first, c.second); got != c.want {
			t.Errorf("difference(%q, %q) =\n%swant\n%s", c.first, c.second, got, c.want)
		}
	}
}

func TestWorld(t *testing.T) {
	set := ReplicaSet("web", 2)
	mine := Pod("web-1", OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set))
	orphan, far := Pod("stray"), Pod("far", In[*corev1.Pod]("other"))
	w := NewWorld().Put(kinds.Pods.Kind, orphan, mine, far).Put(kinds.ReplicaSets.Kind, set)

	if got := reconcile.List(w, kinds.Pods, Namespace); !slices.Equal(got, []*corev1.Pod{orphan, mine}) {
		t.Errorf("List = %v", got)
	}
	if got := reconcile.ControlledBy(w, kinds.Pods, set.UID); !slices.Equal(got, []*corev1.Pod{mine}) {
		t.Errorf("ControlledBy = %v", got)
	}
	if got := reconcile.Orphans(w, kinds.Pods, ""); !slices.Equal(got, []*corev1.Pod{orphan, far}) {
		t.Errorf("Orphans = %v", got)
	}
	if got, ok := w.ByUID(mine.UID); !ok || got.Object != metav1.Object(mine) {
		t.Errorf("ByUID = %v, %v", got, ok)
	}
	if got := w.Dependents(set.UID); len(got) != 1 || got[0].Object != metav1.Object(mine) {
		t.Errorf("Dependents = %v", got)
	}
	if got, ok := w.KindOf("apps", "ReplicaSet"); !ok || got != kinds.ReplicaSets.Kind {
		t.Errorf("KindOf = %v, %v", got, ok)
	}
	renewed := Pod("stray", On("n1"))
	w.Put(kinds.Pods.Kind, renewed)
	if got, ok := reconcile.Get(w, kinds.Pods, Namespace, "stray"); !ok || got != renewed {
		t.Errorf("Get = %v, %v after it was put again", got, ok)
	}
	w.Remove(kinds.Pods.Name, Namespace, "stray")
	if got, ok := reconcile.Get(w, kinds.Pods, Namespace, "stray"); ok {
		t.Errorf("Get = %v after it was removed", got)
	}
	key := events.Key{Namespace: Namespace, Name: "web"}
	w.Remember(events.Outcome{Key: key, Lane: events.LaneWrite, Turn: 7})
	if o, ok := w.Last(key, events.LaneWrite); !ok || o.Turn != 7 {
		t.Errorf("Last = %v, %v", o, ok)
	}
	if o, ok := w.Last(key, events.LaneStatus); ok {
		t.Errorf("Last of the other lane = %v", o)
	}
	c := reconcile.Controller[nap]{Inputs: []reconcile.Input{reconcile.Own(kinds.ReplicaSets.Kind)}}
	if got := w.Keys(c, kinds.ReplicaSets.Kind, set, nil); !slices.Equal(got, []events.Key{key}) {
		t.Errorf("Keys of a set that is gone = %v", got)
	}
	if got := w.Keys(c, kinds.Pods.Kind, nil, mine); got != nil {
		t.Errorf("Keys of a kind that is no input = %v", got)
	}
}

// A figure with Took names an object, and its metric is a histogram.
func TestFiguresOfTimesFit(t *testing.T) {
	metrics := []reconcile.Metric{{Name: "took"}, {Name: "sum", Sort: reconcile.Counter}}
	commands := []events.Command{{Kind: kinds.Pods.Name, Namespace: Namespace, Name: "x"}}
	of := commands[0].Ref()
	for _, c := range []struct {
		figure reconcile.Figure
		fits   bool
	}{
		{reconcile.Figure{Metric: "took", Of: of, Took: true}, true}, {reconcile.Figure{Metric: "took", Of: of}, true},
		{reconcile.Figure{Metric: "took", Took: true}, false}, {reconcile.Figure{Metric: "sum", Of: of, Took: true}, false},
	} {
		if err := fits(metrics, commands, c.figure); (err == nil) != c.fits {
			t.Errorf("%+v: %v, want that it fits: %v", c.figure, err, c.fits)
		}
	}
}
