package history

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/watcher/translate"
)

// kubernetes/kubernetes #59848. A component that restarts, and asks an API server that lags behind the one
// that it asked before, goes back in time. Users saw two pods of one StatefulSet run under one name; a
// ReplicaSet gets twice its pods.
//
// After the restart the controller knows nothing of its own writes, its list is older than its own pods, and
// nothing in a list says how old it is.
//
// In Millrace the record has the writes, not the process. A process that starts recalls the key's last turn
// and the writer's outcome with the written versions; on a view that lacks those pods the fence stays closed.
// The watcher, which alone lists and watches at the API server, compares each list with what it has recorded.
func TestARestartBesideAnAPIServerThatLags(t *testing.T) {
	play := func(t *testing.T, start func(*stage) player) (pods int) {
		s := newStage(t)
		s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 3))
		past := len(s.changes)
		first := start(s)
		s.arrive = first
		first.hear(s.changes...)
		first.work()
		if s.creates != 3 {
			t.Fatalf("%d pods to begin with, want 3", s.creates)
		}
		s.arrive = nil
		second := start(s)
		second.hear(s.changes[:past]...) // the content of the lagging API server
		second.work()
		second.hear(s.changes[past:]...) // the API server catches up
		second.work()
		return s.creates
	}
	t.Run("upstream", func(t *testing.T) {
		if got := play(t, func(s *stage) player { return s.informed(replicaset.Controller) }); got != 6 {
			t.Errorf("%d pods were created: the story does not show the bug", got)
		}
	})
	t.Run("ours", func(t *testing.T) {
		if got := play(t, func(s *stage) player { return s.ours(replicaset.Controller) }); got != 3 {
			t.Errorf("%d pods were created for a set of 3", got)
		}
	})
}

// The watcher treats a list that is older than its record as a list of another history, never as news. A
// cache trusts the list.
func TestAListFromThePastIsNoNews(t *testing.T) {
	s := newStage(t)
	s.create(kinds.ReplicaSets.Kind, reconciletest.ReplicaSet("web", 3))
	cache, told := s.informed(replicaset.Controller), translate.NewState()
	s.touch(kinds.ReplicaSets.Kind, "web")
	cache.hear(s.changes...)
	for _, c := range s.changes {
		told.Fold(s.deltaOf(c), c.at)
	}
	old := s.changes[0]
	cache.hear(old)
	if have, _ := cache.cache.Get(kinds.ReplicaSets.Name, reconciletest.Namespace, "web"); have.GetResourceVersion() != old.obj.GetResourceVersion() {
		t.Error("the cache is not taken in: the story does not show the bug")
	}
	relist := told.Compare("", 0)
	if found := relist.See(s.deltaOf(old).Ref, old.obj.GetUID(), old.obj.GetResourceVersion()); !found.Rewound || found.Changed {
		t.Errorf("an object of the past is %+v", found)
	}
}
