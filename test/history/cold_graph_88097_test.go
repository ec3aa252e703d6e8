package history

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/garbagecollector"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #88097. While the nodes of a control plane were being replaced, the garbage collector
// deleted objects whose owners existed.
//
// A collector that starts builds its graph anew, kind by kind. If it processes children before their parents
// are in the graph, the parents seem to be absent.
//
// In Millrace the garbage collector never trusts an absence in its cache. The delete names the owner, and the
// writer looks for the owner with a live request just before the delete; if the owner exists, the writer
// deletes nothing and reports the owner in the outcome.
func TestChildrenAreSeenBeforeTheirParents(t *testing.T) {
	play := func(t *testing.T, controller reconcile.Any) (alive int) {
		s := newStage(t)
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 1))
		parent := s.uid(kinds.ReplicaSets.Kind, "web")
		for _, name := range []string{"web-1", "web-2", "web-3"} {
			s.create(kinds.Pods.Kind, reconciletest.Pod(name, reconciletest.OwnedBy[*corev1.Pod](kinds.ReplicaSets.Kind, named("web", parent))))
		}
		p := s.ours(controller)
		p.hear(s.since(0, kinds.Pods.Name)...)
		p.work()
		p.hear(s.since(0, kinds.ReplicaSets.Name)...)
		p.work()
		return s.alive(parent)
	}
	if alive := play(t, sure()); alive != 0 {
		t.Errorf("%d children live: the story does not show the bug", alive)
	}
	if alive := play(t, garbagecollector.Controller); alive != 3 {
		t.Errorf("%d of 3 children of a living parent are left", alive)
	}
}

// sure is the garbage collector without the writer's live check: like upstream's at that time, it trusts an
// absence in its cache.
func sure() reconcile.Any {
	c := garbagecollector.Controller
	judge := c.Decide
	c.Decide = func(v garbagecollector.View, now time.Time) reconcile.Decision {
		d := judge(v, now)
		for i := range d.Commands {
			if cond := d.Commands[i].If; cond != nil {
				cond.Absent, cond.Leaving = nil, nil
			}
		}
		return d
	}
	return c
}
