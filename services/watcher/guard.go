package watcher

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Heartbeats say to whom a kind falls, and anybody who may publish can make up a replica. So
// a watcher asks on a topic who watches the kinds that fall to others. Who does so appends a
// mark, which only one who has the fence of the log can. A kind of which the log stays where
// it is falls to a replica that does not watch it: this watcher takes it, and keeps it until
// another one has appended to the log. Of each kind that is asked once for each replica to
// which it falls; after that, one of its kinds shows for all of them that the replica lives. A
// replica that dies is heard on for as long as another process says its heartbeats, and when that
// one log stands still, it is asked about each of its kinds again.

const (
	// watchedTopic is where it is asked who watches a kind.
	watchedTopic = "watched"
	// guardEvery is how often it is looked at kinds of which no watcher has shown that
	// it watches them, and takeAfter for how long that may be so.
	guardEvery = 500 * time.Millisecond
	takeAfter  = 5 * time.Second
	// askAfter is how long the log of a witness may stand still until it is asked for a mark,
	// and doubtAfter until its watcher is doubted. With takeAfter that is less than ten seconds.
	askAfter   = 1500 * time.Millisecond
	doubtAfter = 3 * time.Second
	// showEvery bounds how often it is shown that a kind is watched.
	showEvery = 2 * time.Second
)

// guarded is what is known of a kind that falls to another watcher.
type guarded struct {
	holder string
	since  time.Time // when it was first not known that a replica watches it
	from   uint64    // the end of the log then
	shown  bool
}

// witness is the kind that shows of a replica that it lives.
type witness struct {
	kind  kinds.Name
	end   uint64    // of its log
	since time.Time // when that was first seen
}

// guard sees to it that kinds that fall to others are watched, until the context ends.
func (s *Service) guard(ctx context.Context) {
	held, witnesses := map[kinds.Name]*guarded{}, map[string]*witness{}
	for ctx.Err() == nil {
		pause(ctx, guardEvery)
		want, _, _ := s.wanted()
		here := map[kinds.Name]bool{}
		for _, kind := range want {
			here[kind.Name] = true
			if s.members.Check() != nil || s.mine(kind.Name) || s.watches(kind.Name) {
				delete(held, kind.Name)
			} else if g := s.challenge(ctx, kind.Name, held[kind.Name]); g != nil {
				held[kind.Name] = g
			}
		}
		s.hearWitnesses(ctx, held, witnesses)
		unshown := 0
		for kind, g := range held {
			switch {
			case !here[kind]:
				delete(held, kind)
			case !g.shown && time.Since(g.since) >= takeAfter:
				klog.FromContext(ctx).Error(nil, "A kind falls to a watcher that does not watch it; it is watched here", "kind", kind, "fallsTo", g.holder)
				delete(held, kind)
				s.take(kind)
			case !g.shown && time.Since(g.since) >= takeAfter/2:
				unshown++
			}
		}
		s.mu.Lock()
		s.unshown = unshown
		taken := 0
		for kind := range s.taken {
			if !s.mine(kind) {
				taken++
			}
		}
		s.metrics.taken.Set(float64(taken))
		s.mu.Unlock()
	}
}

// challenge asks who watches a kind, where that has not been shown, and looks whether it is by
// now; nil when that cannot be told.
func (s *Service) challenge(ctx context.Context, kind kinds.Name, g *guarded) *guarded {
	holder := s.members.Holder(string(kind))
	if g != nil && g.shown && g.holder == holder {
		return g
	}
	log, err := s.config.Bus.StreamState(ctx, subject.LogStream(kind))
	if err != nil {
		return g // the bus is away, or its streams are not there yet
	}
	if g == nil || g.shown {
		g = &guarded{since: time.Now(), from: log.Last}
	}
	if g.holder, g.shown = holder, log.Last > g.from; !g.shown {
		_ = s.config.Bus.Say(watchedTopic, []byte(kind)) // and again
	}
	return g
}

// hearWitnesses looks whether the replicas live that have shown that they watch kinds, and
// forgets what those have shown that do not.
func (s *Service) hearWitnesses(ctx context.Context, held map[kinds.Name]*guarded, witnesses map[string]*witness) {
	shown := map[string][]kinds.Name{}
	for kind, g := range held {
		if g.shown {
			shown[g.holder] = append(shown[g.holder], kind)
		}
	}
	maps.DeleteFunc(witnesses, func(holder string, w *witness) bool { return !slices.Contains(shown[holder], w.kind) })
	for holder, watched := range shown {
		w := witnesses[holder]
		if w == nil {
			w = &witness{kind: slices.Min(watched)}
			witnesses[holder] = w
		}
		log, err := s.config.Bus.StreamState(ctx, subject.LogStream(w.kind))
		switch still := time.Since(w.since); {
		case err != nil || log.Last != w.end:
			w.end, w.since = log.Last, time.Now()
		case still >= doubtAfter:
			for _, kind := range watched {
				delete(held, kind)
			}
		case still >= askAfter:
			_ = s.config.Bus.Say(watchedTopic, []byte(w.kind)) // and again
		}
	}
}

// take has a kind watched here although it falls to another watcher.
func (s *Service) take(kind kinds.Name) {
	s.mu.Lock()
	s.taken[kind] = true
	s.mu.Unlock()
	s.wakeUp()
}

// here tells whether a kind is to be watched here.
func (s *Service) here(kind kinds.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken[kind] || s.mine(kind)
}

// yield gives up a kind that was only taken, since another watcher has appended to its log.
func (s *Service) yield(kind kinds.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken[kind] {
		delete(s.taken, kind)
		s.wakeUp()
	}
}

// answer shows others which kinds are watched here, until the context ends.
func (s *Service) answer(ctx context.Context) {
	for ctx.Err() == nil {
		err := s.config.Bus.Listen(ctx, watchedTopic, func(kind []byte) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if r := s.kinds[kinds.Name(kind)]; r != nil {
				knock(r.watch.asks)
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot hear who asks for the watchers of kinds")
			pause(ctx, lookEvery)
		}
	}
}

// show appends a mark, which proves that the kind is watched.
func (k *kindWatch) show(ctx context.Context) error {
	if time.Since(k.showed) < showEvery {
		return nil
	}
	k.showed = time.Now()
	return k.mark(ctx)
}

// checkWatched is an error while kinds fall to others that do not watch them.
func (s *Service) checkWatched() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unshown > 0 {
		return fmt.Errorf("%d kinds fall to other watchers, and none of those has shown that it watches them", s.unshown)
	}
	return nil
}
