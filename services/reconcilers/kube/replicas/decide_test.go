package replicas

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/kube/owner"
	"github.com/millrace/millrace/services/reconcilers/kube/pod"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

var now = reconciletest.Now

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, controller, rapid.Custom(anyView), now,
		reconciletest.Indifferent(shuffled),
		reconciletest.Content(5, applied),
		reconciletest.Law[View]{Name: "measured", Holds: measured},
		reconciletest.Law[View]{Name: "careful with pods of others", Holds: careful},
		reconciletest.Law[View]{Name: "arrives", Holds: arrives},
	)
}

// measured: creates and deletes bring the number of pods to the wanted one and
// never past it, with names that no pod has.
func measured(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	var created, died []string
	for _, command := range c.Decide(v, now).Commands {
		switch command.Verb {
		case events.VerbCreate:
			created = append(created, command.Name)
		case events.VerbDelete:
			died = append(died, command.Name)
		}
	}
	have := 0
	for _, p := range v.Pods {
		if pod.Active(p) && owner.Controls(v.Set, p) && p.Labels["app"] == "web" {
			have++
		}
		if slices.Contains(created, p.Name) {
			return fmt.Errorf("a pod is to be created under the name of %s", p.Name)
		}
	}
	after := have + len(created) - len(died)
	switch {
	case len(created) > 0 && len(died) > 0:
		return fmt.Errorf("%d pods are created while %d die", len(created), len(died))
	case len(created) > 0 && after != v.wanted(), len(died) > 0 && after != v.wanted():
		return fmt.Errorf("%d pods, %d wanted, but %d are created and %d die", have, v.wanted(), len(created), len(died))
	case len(slices.Compact(slices.Sorted(slices.Values(created)))) < len(created):
		return fmt.Errorf("two pods are to be created under one name: %q", created)
	}
	return nil
}

// careful: only pods that the set controls and selects are deleted.
func careful(_ *rapid.T, c reconcile.Controller[View], v View, now time.Time) error {
	for _, command := range c.Decide(v, now).Commands {
		if command.Verb != events.VerbDelete {
			continue
		}
		at := slices.IndexFunc(v.Pods, func(p *corev1.Pod) bool { return p.Name == command.Name })
		if at < 0 || !owner.Controls(v.Set, v.Pods[at]) || v.Pods[at].Labels["app"] != "web" {
			return fmt.Errorf("%s is not the set's to delete", command.Name)
		}
	}
	return nil
}

func TestABurstIsBoundedAndSharesItsBody(t *testing.T) {
	v := View{Set: reconciletest.ReplicaSet("web", 10_000)}
	creates := decide(v, now).In(events.LaneWrite).Commands
	if len(creates) != Burst {
		t.Fatalf("%d creates, want %d", len(creates), Burst)
	}
	seen := map[string]bool{}
	for _, b := range creates {
		if &b.Body[0] != &creates[0].Body[0] {
			t.Fatal("two creates of one burst have each their own body")
		}
		if seen[b.Name] {
			t.Fatalf("two pods are created under the name %s", b.Name)
		}
		seen[b.Name] = true
	}
	again := decide(v, now.Add(time.Hour)).In(events.LaneWrite).Commands
	if !slices.EqualFunc(creates, again, func(a, b events.Command) bool { return a.Name == b.Name }) {
		t.Error("the names depend on more than the view")
	}
	v.Failure = &Failure{Attempt: 7, Result: events.Result{Status: events.Conflict}}
	if other := decide(v, now).In(events.LaneWrite).Commands; other[0].Name == creates[0].Name {
		t.Errorf("after a conflict the first pod still has the name %s", other[0].Name)
	}
}

func TestNothingIsCreatedUnderANameThatIsTaken(t *testing.T) {
	v := View{Set: reconciletest.ReplicaSet("web", 3)}
	wanted := decide(v, now).In(events.LaneWrite).Commands
	// One of them is there in a state that does not count.
	v.Pods = []*corev1.Pod{reconciletest.Pod(wanted[1].Name, of(v.Set), reconciletest.InPhase(corev1.PodFailed))}
	creates := decide(v, now).In(events.LaneWrite).Commands
	if len(creates) != 3 || creates[0].Name != wanted[0].Name || creates[1].Name != wanted[2].Name {
		t.Errorf("with %s taken of %v, the creates are %v", wanted[1].Name, wanted, creates)
	}
}

func TestDeletionsAreBounded(t *testing.T) {
	set := reconciletest.ReplicaSet("web", 0)
	v := View{Set: set}
	for i := range Burst + 1 {
		v.Pods = append(v.Pods, reconciletest.Pod(fmt.Sprintf("web-%d", i), of(set)))
	}
	if deletions := decide(v, now).In(events.LaneWrite).Commands; len(deletions) != Burst {
		t.Errorf("%d deletions, want %d", len(deletions), Burst)
	}
}

// A pod's change is the most frequent question of all.
func BenchmarkAPodOfAFullSetChanges(b *testing.B) {
	set := reconciletest.ReplicaSet("web", 500)
	world := reconciletest.NewWorld()
	pods := make([]metav1.Object, 0, 500)
	for i := range 500 {
		pods = append(pods, reconciletest.Pod(fmt.Sprintf("web-%03d", i), reconciletest.On("n1"),
			reconciletest.ReadySince(now), reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, set)))
	}
	world.Put(kinds.ReplicaSets.Kind, set).Put(kinds.Pods.Kind, pods...)
	b.ReportAllocs()
	for b.Loop() {
		if d, ok := controller.Ask(world, key("web"), now); !ok || len(d.Commands) != 1 {
			b.Fatalf("decided %+v, want one status", d)
		}
	}
}
