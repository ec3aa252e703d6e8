package ttl

import (
	"slices"
	"strconv"
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

func node(said string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u"}}
	if said != "" {
		n.Annotations = map[string]string{corev1.ObjectTTLAnnotationKey: said}
	}
	return n
}

func TestStories(t *testing.T) { reconciletest.Stories(t, Controller) }

func TestLaws(t *testing.T) {
	reconciletest.Laws(t, Controller, rapid.Custom(func(t *rapid.T) View {
		return View{
			Node:  node(rapid.SampledFrom([]string{"", "0", "15", "30", "60", "300", "nonsense"}).Draw(t, "said")),
			Nodes: rapid.IntRange(0, 3000).Draw(t, "nodes"),
			Step:  rapid.IntRange(0, 4).Draw(t, "step"),
		}
	}), reconciletest.Now, reconciletest.Content(2, func(v View, _ reconcile.Decision, _ time.Time) View {
		v.Node = node(wanted(v.Step, v.Nodes))
		return v
	}))
}

func TestWanted(t *testing.T) {
	for _, c := range []struct {
		said  string
		nodes int
		want  string
	}{
		{"", 1, "0"}, {"", 100, "0"}, {"", 101, "15"}, {"", 2001, "300"}, {"nonsense", 501, "30"},
		{"15", 90, "15"}, {"15", 89, "0"}, {"0", 100, "0"}, {"300", 1800, "300"}, {"300", 1799, "60"}, {"300", 5, "0"}, {"0", 5000, "300"},
	} {
		if got := wanted(stepOf(c.said), c.nodes); got != c.want {
			t.Errorf("after %q, %s nodes want %q, not %q", c.said, strconv.Itoa(c.nodes), got, c.want)
		}
	}
}

func TestObserve(t *testing.T) {
	other := node("")
	other.Name = "n2"
	world := reconciletest.NewWorld().Put(kinds.Nodes.Kind, node(""), other)
	if v, ok := observe(world, events.Key{Name: "n1"}); !ok || v.Nodes != 2 || v.Node.Name != "n1" {
		t.Errorf("the view is %+v, found: %v", v, ok)
	}
	if _, ok := observe(world, events.Key{Name: "n3"}); ok {
		t.Error("observe finds a node that is not there")
	}
	if got := world.Keys(Controller, kinds.Nodes.Kind, nil, other); !slices.Equal(got, []events.Key{{Name: "n2"}}) {
		t.Errorf("a node makes it the turn of %v", got)
	}
}
