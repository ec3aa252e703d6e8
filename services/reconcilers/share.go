package reconcilers

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/shard"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// shareOut sets which keys of every controller this replica owns, now and at every change,
// until the context ends.
func (s *Service) shareOut(ctx context.Context) {
	s.members.Watch(ctx, func() {
		for _, l := range s.loops {
			l.Own(s.share(l.Name()))
		}
	})
}

// share returns the shards of a controller's keys that this replica owns: all replicas agree
// on one owner for each shard.
func (s *Service) share(controller string) (share shard.Set) {
	for n := range shard.Count {
		if s.members.First(fmt.Sprint(controller, "/", n)) {
			share = share.With(n)
		}
	}
	return share
}

// followWakes passes fired wakes to the controllers until the context ends. Wakes that are
// missed while the bus is unavailable do no harm, because every key that this replica owns
// has a local timer.
func (s *Service) followWakes(ctx context.Context) {
	of := map[string]*shell.Loop{}
	for _, l := range s.loops {
		of[l.Name()] = l
	}
	for ; ctx.Err() == nil; sleep.For(ctx, eager) {
		state, err := s.config.Bus.StreamState(ctx, subject.WakeStream)
		if err != nil {
			continue
		}
		_ = s.config.Bus.Follow(ctx, subject.WakeStream, state.Last+1, func(batch []events.Message) error {
			for _, m := range batch {
				fired(of, m)
			}
			return nil
		})
	}
}

// fired passes a wake to its controller. It ignores the wakes in the stream that are only
// scheduled, and those that cannot be read, which come from another publisher.
func fired(of map[string]*shell.Loop, m events.Message) {
	controller, key, err := subject.ParseWake(m.Subject)
	if err != nil || m.Subject != subject.Wake(controller, key) || of[controller] == nil {
		return
	}
	var w events.Wake
	if events.DecodeJSON(m, &w) == nil && w.Key == key {
		of[controller].Do(func(d *engine.Engine) { d.Wake(m.Sequence, w) })
	}
}
