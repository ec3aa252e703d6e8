package reconcilers

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// shareOut tells every controller which of its keys fall to this replica, now and whenever
// that changes, until the context ends.
func (s *Service) shareOut(ctx context.Context) {
	s.members.Watch(ctx, func() {
		for _, l := range s.loops {
			l.Own(s.share(l.Name()))
		}
	})
}

// share is which of a controller's keys fall to this replica: of each shard all replicas
// agree on one.
func (s *Service) share(controller string) (share shell.Share) {
	for shard := range shell.Shards {
		if s.members.First(fmt.Sprint(controller, "/", shard)) {
			share = share.With(shard)
		}
	}
	return share
}

// followWakes tells the controllers which wakes fire, until the context ends. What is missed
// while the bus is away does no harm: every key that this replica owns has a timer here.
func (s *Service) followWakes(ctx context.Context) {
	of := map[string]*shell.Loop{}
	for _, l := range s.loops {
		of[l.Name()] = l
	}
	for ; ctx.Err() == nil; wait(ctx, eager) {
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

// fired tells a controller of a wake. The stream holds those that are set as well; and one
// that cannot be read is of another publisher.
func fired(of map[string]*shell.Loop, m events.Message) {
	controller, key, err := subject.ParseWake(m.Subject)
	if err != nil || m.Subject != subject.Wake(controller, key) || of[controller] == nil {
		return
	}
	var w events.Wake
	if events.DecodeJSON(m, &w) == nil && w.Key == key {
		of[controller].Tell(func(d *shell.Engine) { d.Wake(m.Sequence, w) })
	}
}
