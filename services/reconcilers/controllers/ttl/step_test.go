package ttl

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// All nodes of a cluster get the same TTL, even if its size lies in two steps: a new node gets
// the TTL of others, and in the end all have one.
func TestTheStepIsTheClusters(t *testing.T) {
	world := reconciletest.NewWorld()
	for i := range 95 {
		n := node([]string{"15", "0"}[i%2])
		n.Name = fmt.Sprint("n", i)
		if i == 94 {
			n.Annotations = nil
		}
		world.Put(kinds.Nodes.Kind, n)
	}
	said := map[string]int{}
	for i := range 95 {
		v, _ := observe(world, events.Key{Name: fmt.Sprint("n", i)})
		for _, c := range decide(v, reconciletest.Now).Commands {
			said[string(c.Body)]++
		}
	}
	want := string(reconcile.Body(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"node.alpha.kubernetes.io/ttl": "15"}}}))
	if len(said) != 1 || said[want] != 48 {
		t.Errorf("nodes are told %v", said)
	}
}
