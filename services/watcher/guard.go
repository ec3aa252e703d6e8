package watcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Heartbeats say which replica a kind falls to, and any process that may publish can invent a
// replica. So a watcher asks on a topic which watcher watches a kind that falls to another one. The
// watcher of the kind answers with a mark, which only the holder of the log's fence can append. If
// the log does not grow, the kind falls to a replica that does not watch it: this watcher takes the
// kind, and keeps it until another one has appended to the log. It asks once for each kind and
// replica; after that, one of the replica's kinds (its witness) shows for all of them that the
// replica lives. Another process may go on sending the heartbeats of a replica that died; when the
// log of the witness stands still, this watcher asks about each of the replica's kinds again.

const (
	// watchedTopic is the topic on which watchers ask which of them watches a kind.
	watchedTopic = "watched"
	// guardEvery is how often a watcher checks the kinds whose watcher has not shown itself, and
	// takeOverAfter how long it waits before it takes such a kind.
	guardEvery    = 500 * time.Millisecond
	takeOverAfter = 5 * time.Second
	// askAfter is how long the log of a witness may stand still before its watcher is asked for a
	// mark, and unshownAfter before that watcher is doubted. unshownAfter and takeOverAfter together are
	// less than ten seconds.
	askAfter     = 1500 * time.Millisecond
	unshownAfter = 3 * time.Second
)

// kindGuard is what this watcher knows of a kind that falls to another one.
type kindGuard struct {
	holder string
	since  time.Time // when this watcher began to ask
	from   uint64    // the last sequence of the log then
	shown  bool
}

// replicaLog is the kind whose log shows that a replica lives.
type replicaLog struct {
	kind  kinds.Name
	end   uint64    // the last sequence of its log
	since time.Time // when that was first seen
}

// guard makes sure that a watcher watches each kind that falls to others, until the context ends.
func (s *Service) guard(ctx context.Context) {
	held, witnesses := map[kinds.Name]*kindGuard{}, map[string]*replicaLog{}
	for ctx.Err() == nil {
		sleep.For(ctx, guardEvery)
		want, _, _ := s.wanted()
		here := map[kinds.Name]bool{}
		for _, kind := range want {
			here[kind.Name] = true
			if s.members.Check() != nil || s.fallsHere(kind.Name) || s.watches(kind.Name) {
				delete(held, kind.Name)
			} else if g := s.askWatcher(ctx, kind.Name, held[kind.Name]); g != nil {
				held[kind.Name] = g
			}
		}
		s.checkReplicas(ctx, held, witnesses)
		unshown := 0
		for kind, g := range held {
			switch {
			case !here[kind]:
				delete(held, kind)
			case !g.shown && time.Since(g.since) >= takeOverAfter:
				klog.FromContext(ctx).Error(nil, "A kind is assigned to a watcher that does not watch it; watching it here", "kind", kind, "fallsTo", g.holder)
				delete(held, kind)
				s.take(kind)
			case !g.shown && time.Since(g.since) >= takeOverAfter/2:
				unshown++
			}
		}
		s.mu.Lock()
		s.unshownKinds = unshown
		taken := 0
		for kind := range s.taken {
			if !s.fallsHere(kind) {
				taken++
			}
		}
		s.metrics.taken.Set(float64(taken))
		s.mu.Unlock()
	}
}

// askWatcher asks which watcher watches a kind, unless one has shown it, and checks whether one has
// by now. It returns g unchanged when the log cannot be read.
func (s *Service) askWatcher(ctx context.Context, kind kinds.Name, g *kindGuard) *kindGuard {
	holder := s.members.Holder(string(kind))
	if g != nil && g.shown && g.holder == holder {
		return g
	}
	log, err := s.config.Bus.StreamState(ctx, subject.LogStream(kind))
	if err != nil {
		return g // the bus is unreachable, or the streams do not exist yet
	}
	if g == nil || g.shown {
		g = &kindGuard{since: time.Now(), from: log.Last}
	}
	if g.holder, g.shown = holder, log.Last > g.from; !g.shown {
		_ = s.config.Bus.Broadcast(watchedTopic, []byte(kind)) // and again
	}
	return g
}

// checkReplicas checks whether the replicas that have shown that they watch kinds still live. It
// forgets what a replica has shown whose witness stands still.
func (s *Service) checkReplicas(ctx context.Context, held map[kinds.Name]*kindGuard, witnesses map[string]*replicaLog) {
	shown := map[string][]kinds.Name{}
	for kind, g := range held {
		if g.shown {
			shown[g.holder] = append(shown[g.holder], kind)
		}
	}
	maps.DeleteFunc(witnesses, func(holder string, w *replicaLog) bool { return !slices.Contains(shown[holder], w.kind) })
	for holder, watched := range shown {
		w := witnesses[holder]
		if w == nil {
			w = &replicaLog{kind: slices.Min(watched)}
			witnesses[holder] = w
		}
		log, err := s.config.Bus.StreamState(ctx, subject.LogStream(w.kind))
		switch still := time.Since(w.since); {
		case err != nil || log.Last != w.end:
			w.end, w.since = log.Last, time.Now()
		case still >= unshownAfter:
			for _, kind := range watched {
				delete(held, kind)
			}
		case still >= askAfter:
			_ = s.config.Bus.Broadcast(watchedTopic, []byte(w.kind)) // and again
		}
	}
}

// take has this watcher watch a kind although it falls to another one.
func (s *Service) take(kind kinds.Name) {
	s.mu.Lock()
	s.taken[kind] = true
	s.mu.Unlock()
	s.wakeUp()
}

// watchesHere reports whether this watcher is to watch a kind.
func (s *Service) watchesHere(kind kinds.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[kind] || s.fallsHere(kind)
}

// giveUpTaken gives up a taken kind, since another watcher has appended to its log.
func (s *Service) giveUpTaken(kind kinds.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[kind] {
		delete(s.taken, kind)
		s.wakeUp()
	}
}

// answerGuards shows other watchers which kinds this one watches, until the context ends.
func (s *Service) answerGuards(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.config.Bus.Listen(ctx, watchedTopic, func(kind []byte) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.kinds[kinds.Name(kind)]; r != nil {
				r.reflector.ShowWatched()
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot subscribe to the requests of other watchers")
			sleep.For(ctx, listenAgain)
		}
	}
}

// checkWatched returns an error while kinds fall to watchers that have not shown that they watch
// them.
func (s *Service) checkWatched() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unshownKinds > 0 {
		return fmt.Errorf("%d kinds fall to other watchers, and none of those has shown that it watches them", s.unshownKinds)
	}
	return nil
}
