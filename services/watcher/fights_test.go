package watcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// written is one change of what an object is to be.
type written struct{ by, wish string }

// TestAFightIsTold: two managers who write the same fields back and forth are found, by
// their names and with the fields; and nothing else that only looks like it.
func TestAFightIsTold(t *testing.T) {
	t.Parallel()
	two := func(a, b written) (all []written) {
		for range 12 {
			all = append(all, a, b)
		}
		return all
	}
	small, large := written{"pipeline", `{"replicas":3,"paused":false}`}, written{events.FieldManager, `{"replicas":7,"paused":false}`}
	onward := func() (all []written) {
		for i := range 24 {
			all = append(all, written{fmt.Sprint("m-", i%2), fmt.Sprintf(`{"replicas":%d}`, i)})
		}
		return all
	}
	for name, c := range map[string]struct {
		changes []written
		every   time.Duration
		told    int
		guessed bool
	}{
		"back and forth":                  {two(small, large), time.Second, 2, false},
		"by one manager":                  {two(small, written{small.by, large.wish}), time.Second, 0, false},
		"never the same again":            {onward(), time.Second, 0, false},
		"a few times":                     {two(small, large)[:fightReturns], time.Second, 0, false},
		"slowly":                          {two(small, large), 5 * time.Minute, 0, false},
		"the same by one after the other": {two(small, written{large.by, small.wish}), time.Second, 0, false},
		"by who is only guessed":          {two(small, large), time.Second, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var f fights
			at, told := time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC), 0
			for i, w := range c.changes {
				d := events.Delta{UID: "u", Generation: int64(i + 2), At: at.Add(time.Duration(i) * c.every), By: events.Manager{Name: w.by}, Proven: !c.guessed}
				found, ok := f.see(d, func() []byte { return []byte(w.wish) })
				if _, again := f.see(d, func() []byte { t.Error("a report of the status is looked at"); return nil }); again {
					t.Error("a report of the status makes a fight")
				}
				if !ok {
					continue
				}
				told++
				if !slices.Equal(found.managers, []string{events.FieldManager, "pipeline"}) || !slices.Equal(found.fields, []string{".spec.replicas"}) || found.times != fightReturns {
					t.Errorf("it is told as %+v", found)
				}
			}
			if told != c.told {
				t.Errorf("told %d times, want %d", told, c.told)
			}
		})
	}
}

// TestWishes: what an object is to be is read from what is in it, of whatever type.
func TestWishes(t *testing.T) {
	t.Parallel()
	custom := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": int64(3)}}}
	if got := string(wishOf(custom)); got != `{"size":3}` {
		t.Errorf("a custom object is to be %s", got)
	}
	if got := string(wishOf(&corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}})); got != `{"unschedulable":true}` {
		t.Errorf("a node is to be %s", got)
	}
	if got := wishOf(&corev1.ConfigMap{Data: map[string]string{"a": "b"}}); got != nil {
		t.Errorf("a ConfigMap is to be %s", got)
	}
	if got := wishOf(&metav1.PartialObjectMetadata{}); got != nil {
		t.Errorf("metadata is to be %s", got)
	}
}

// TestTheWatcherTellsOfAFight: what is watched is looked at.
func TestTheWatcherTellsOfAFight(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	service, _ := start(t, s, b, "one")
	watching(t, service)
	write := func(i int) {
		what := "MODIFIED"
		if i == 0 {
			what = "ADDED"
		}
		s.changeOf("pods", what, "web", func(p *corev1.Pod) {
			byWriter([]string{events.FieldManager, "pipeline"}[i%2])(p)
			p.Generation, p.Spec.HostNetwork = int64(i+1), i%2 == 0
		})
	}
	const enough = 3 + fightReturns // its birth, the first change, and the first that is none's return
	for i := range 2*enough - 1 {
		write(i)
	}
	until(t, func() bool {
		return testutil.ToFloat64(service.metrics.fights.WithLabelValues(string(kinds.Pods.Name))) == 2
	})
}
