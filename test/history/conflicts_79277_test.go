package history

import (
	"net/http"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
)

// kubernetes/kubernetes #79277. Another client often writes to the same objects. Each write of the controller
// meets a conflict. The controller retries at once on the cached object, which is known to be stale, and
// meets the next conflict: the API server answers hundreds of 409s for nothing.
//
// In Millrace a conflict is an outcome. After the first one the key is decided again at once, after the next
// ones with back-off. A version that failed is tried again only when its back-off is over or a newer version
// has been seen.
func TestAForeignWriterAndAWatchThatIsLate(t *testing.T) {
	play := func(t *testing.T, choose func(*stage) player) (conflicts int, settled bool) {
		s := newStage(t)
		p := choose(s)
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 0))
		p.hear(s.changes...)
		heard := len(s.changes)
		s.touch(kinds.ReplicaSets.Kind, "web") // and again before each write of ours
		s.before = func() { s.touch(kinds.ReplicaSets.Kind, "web") }
		s.pass(p, time.Second, time.Millisecond) // the watch is a second late
		conflicts = s.codes[http.StatusConflict]
		s.before = nil
		p.hear(s.changes[heard:]...)
		s.pass(p, 30*time.Second, time.Second)
		web := s.api.List(kinds.ReplicaSets.Name)[0].(*appsv1.ReplicaSet)
		return conflicts, web.Status.ObservedGeneration == web.Generation
	}
	t.Run("upstream", func(t *testing.T) {
		conflicts, _ := play(t, func(s *stage) player {
			p := s.informed(replicaset.Controller)
			p.retries = 500 // a bound, because it would never end
			return p
		})
		if conflicts < 100 {
			t.Errorf("%d conflicts: the story does not show the bug", conflicts)
		}
	})
	t.Run("ours", func(t *testing.T) {
		conflicts, settled := play(t, func(s *stage) player { return s.ours(replicaset.Controller) })
		t.Logf("%d conflicts in a second", conflicts)
		if conflicts > 10 || !settled {
			t.Errorf("%d conflicts in a second, and in the end the status is right: %t", conflicts, settled)
		}
	})
}
