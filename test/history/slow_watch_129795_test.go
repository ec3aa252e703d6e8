package history

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #129795. While the watch of pods stood still for more than five minutes, the
// ReplicaSet controller created all pods again, and once more after another five minutes.
//
// Expectations have a time-out, because in the memory of a process they can be wrong for ever. After the
// time-out they count as met, without evidence.
//
// Millrace's fence has no time-out. It waits for the effects that the writer reported until they are seen, or
// until the log of the kind proves that they can no longer come.
func TestAWatchThatStandsStill(t *testing.T) {
	play := func(t *testing.T, choose func(*stage) player) (creates int) {
		s := newStage(t)
		p := choose(s)
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 3))
		p.hear(s.changes...)
		p.work()
		from := len(s.changes)
		for range 12 { // an hour without any delta of a pod
			s.now = s.now.Add(5*time.Minute + time.Second)
			s.touch(kinds.ReplicaSets.Kind, "web")
			p.hear(s.changes[len(s.changes)-1])
			p.work()
		}
		creates = s.creates
		p.hear(s.since(from, kinds.Pods.Name)...)
		p.work()
		return creates
	}
	t.Run("upstream", func(t *testing.T) {
		if got := play(t, func(s *stage) player { return s.informed(replicaset.Controller) }); got < 30 {
			t.Errorf("%d pods were created: the story does not show the bug", got)
		}
	})
	t.Run("ours", func(t *testing.T) {
		if got := play(t, func(s *stage) player { return s.ours(replicaset.Controller) }); got != 3 {
			t.Errorf("%d pods were created for a set of 3", got)
		}
	})
}
