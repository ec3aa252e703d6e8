package history

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/replicaset"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/watcher/translate"
)

// kubernetes/kubernetes #59848. A component that restarts, and asks an API server
// that lags behind the one it asked before, travels back in time. Users saw two
// pods of one StatefulSet run under one name; a ReplicaSet gets twice its pods.
//
// After the restart the controller knows nothing of what it did, its list is from
// before its own pods were created, and nothing in a list says how old it is.
//
// Here what was done is in the record, not in a process. The one who starts
// recalls the key's last turn, what the writer said of it, and in which versions;
// on a view that lacks those pods the fence stays shut. And the watcher, which is
// the only one to ask the API server, compares what it is told with what it has
// told before.
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
		second.hear(s.changes[:past]...) // all that the other API server has
		second.work()
		second.hear(s.changes[past:]...) // it catches up
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

// What the watcher makes of a list that is older than what it has told: a list of
// another history, never news. A cache believes the list.
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
