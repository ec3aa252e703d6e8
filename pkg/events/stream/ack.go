package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// ackEvery is how often a reader acknowledges.
const ackEvery = 250 * time.Millisecond

// ackTimer says when a reader acknowledges: every ackEvery while it has messages that it has not
// acknowledged. Most readers have none most of the time, and there is one for each kind.
type ackTimer struct {
	*time.Timer
	set bool
}

// newAckTimer makes a timer that is not set.
func newAckTimer() *ackTimer {
	t := &ackTimer{Timer: time.NewTimer(time.Hour)}
	t.Stop()
	return t
}

// arm sets the timer if it is not set and there is something to acknowledge.
func (t *ackTimer) arm(s *session) {
	if !t.set && s.processed != nil && s.unacknowledged() {
		t.set = true
		t.Reset(ackEvery)
	}
}

// ticked acknowledges, and sets the timer again if something is left.
func (t *ackTimer) ticked(s *session) {
	t.set = false
	s.acknowledge()
	t.arm(s)
}

// end acknowledges for the last time.
func (t *ackTimer) end(s *session) {
	if t.Stop(); s.processed != nil {
		s.acknowledge()
	}
}

// unacknowledged reports whether a message is left to acknowledge.
func (s *session) unacknowledged() bool {
	if s.local != nil {
		return s.position < s.next
	}
	return s.acks.Any()
}

// acknowledge tells the server how far the reader has dealt with the stream. The next
// acknowledgement makes up for a lost one. The server has not delivered what was handed over
// here, so it is told the consumer's position.
func (s *session) acknowledge() {
	if s.local == nil {
		if to := s.acks.ReplyUpTo(s.processed()); to != "" {
			_ = s.bus.conn.Publish(to, nil)
		}
		return
	}
	if at := min(s.processed()+1, s.next); at > s.position {
		s.position = at
		s.bus.resetConsumer(s.stream, s.source.CachedInfo().Name, at)
	}
}

// deleteConsumer deletes the consumer of a session. It keeps that of a reader that acknowledges and
// ends, so that the reader's successor knows how far it got.
func (f *follower) deleteConsumer(ctx context.Context, name string) {
	if f.acks.Clear(); f.processed == nil || ctx.Err() == nil {
		f.bus.make.leave(f.stream, name)
	}
}

// hasEndedReader reports whether a consumer belongs to a reader that acknowledges and has ended: it has no
// pending pull request.
func hasEndedReader(info *jetstream.ConsumerInfo) bool {
	return info.Config.AckPolicy == jetstream.AckAllPolicy && info.NumWaiting == 0
}

// Acknowledged is how far ended readers had dealt with a stream; see [bus.Queue].
func (b *Bus) Acknowledged(ctx context.Context, stream string) (dealt uint64, ok bool, err error) {
	request, done := b.guarded(ctx, "CONSUMER.LIST."+stream)
	defer done()
	handle, err := b.handle(request, stream)
	if err != nil {
		return 0, false, natserr.Translate(request, err)
	}
	list := handle.ListConsumers(request)
	for info := range list.Info() {
		if !hasEndedReader(info) {
			continue
		}
		if floor := max(info.AckFloor.Stream, info.Config.OptStartSeq-1); !ok || floor < dealt {
			dealt, ok = floor, true
		}
	}
	if err := natserr.Translate(request, list.Err()); err != nil {
		return 0, false, fmt.Errorf("list the readers of %s: %w", stream, err)
	}
	return dealt, ok, nil
}
