package follow

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/handover"
	"github.com/millrace/millrace/pkg/events/subject"
)

// session is a reader's use of one consumer. It begins with what the server delivers. When it has
// read everything, and the publishers are in this process, it pauses the consumer and takes
// messages where they are published ([handover.Hub]). The paused consumer still keeps the
// reader's position, and tells when the stream is deleted.
type session struct {
	*follower
	source jetstream.Consumer
	feed   *delivery.Prefetch
	handle func([]events.Message) error
	acking *ackTimer

	local    *handover.Reader // nil: the server delivers
	position uint64           // where the paused consumer was moved to; 0: it was not moved yet

	idle  *time.Timer
	rest  time.Duration // between two checks
	stuck int           // how many checks in a row found messages that do not arrive
}

func newSession(f *follower, source jetstream.Consumer, feed *delivery.Prefetch, handle func([]events.Message) error) *session {
	return &session{
		follower: f, source: source, feed: feed, handle: handle,
		acking: newAckTimer(), idle: time.NewTimer(stuckPoll), rest: stuckPoll,
	}
}

const (
	// localCheck is after how long a reader first compares what was handed over with the stream: a
	// message may have been stored while it attached.
	localCheck = 250 * time.Millisecond
	// pausedFor is for how long a consumer is paused. Its reader ends long before.
	pausedFor = 365 * 24 * time.Hour
)

// isHandedOver reports whether all publishers of a stream hand over what they store: those of logs
// and outcomes.
func isHandedOver(stream string) bool {
	_, log := subject.KindOfStream(stream)
	return log || strings.HasPrefix(stream, subject.OutcomeStream(""))
}

// attach goes over to the publishers of this process if the server has no more messages for the
// reader.
func (s *session) attach(ctx context.Context, pending uint64) error {
	if s.local != nil || pending > 0 || !isHandedOver(s.stream) {
		return nil
	}
	local := s.on.Hub.Attach(s.stream, s.next)
	if local == nil {
		return nil
	}
	s.local = local
	if _, err := s.on.JetStream.PauseConsumer(ctx, s.stream, s.source.CachedInfo().Name, time.Now().Add(pausedFor)); err != nil {
		return fmt.Errorf("pause the reader of %s: %w", s.stream, err)
	}
	s.rest = localCheck
	s.idle.Reset(localCheck)
	return nil
}

// takeReceived hands over what the server has delivered.
func (s *session) takeReceived(ctx context.Context) error {
	batch, behind, failure := s.feed.Take()
	if err := s.take(batch); err != nil {
		return err
	}
	if failure != nil {
		return failure
	}
	return s.attach(ctx, behind)
}

// takeLocal hands over what was published in this process.
func (s *session) takeLocal() error {
	batch, err := s.local.Take()
	if err != nil {
		return err
	}
	s.on.Stats.HandedOver.WithLabelValues(s.stream).Add(float64(len(batch)))
	return s.take(batch)
}

func (s *session) take(batch []events.Message) error {
	if s.stuck = 0; s.local == nil { // the server does not deliver what was handed over
		s.rest = stuckPoll
		s.idle.Reset(s.rest)
	}
	if err := s.deliver(s.withoutRead(batch), s.handle); err != nil {
		return err
	}
	s.acking.arm(s)
	return nil
}

func (s *session) end() {
	s.idle.Stop()
	s.acking.end(s)
	s.local.Detach()
}

// checkIdle looks whether the stream has messages that do not arrive. While it has none, the reader
// asks less and less often.
func (s *session) checkIdle(ctx context.Context) error {
	missing, err := s.missing(ctx)
	if err != nil {
		return err
	}
	if missing == 0 {
		s.stuck, s.rest = 0, min(2*s.rest, s.on.Intervals.ConsumerChecksIdle)
		s.idle.Reset(s.rest)
		return nil
	}
	if s.stuck++; s.stuck >= stuckPolls {
		return s.stalled(missing)
	}
	s.rest = stuckPoll
	if s.local != nil {
		s.rest = localCheck
	}
	s.idle.Reset(s.rest)
	return nil
}

// missing is how many messages the stream has behind those that were read.
func (s *session) missing(ctx context.Context) (uint64, error) {
	if s.local == nil {
		info, err := s.source.Info(ctx)
		if err != nil {
			return 0, err
		}
		return info.NumPending, nil
	}
	info, err := s.on.Info(ctx, s.stream)
	if err != nil {
		return 0, err
	}
	return max(info.State.LastSeq+1, s.next) - s.next, nil
}

// stalled is the error of a reader that gets no messages although the stream has some. A server
// that cannot read a block of messages stops there, and reports it only in its log. The first
// time, a new session begins, since the old one may only have lost its pull request, or a message
// was stored and not handed over.
func (s *session) stalled(missing uint64) error {
	if s.local != nil || s.stuckAt != s.next {
		s.stuckAt = s.next
		return delivery.ErrMayHaveMissed
	}
	return fmt.Errorf("%w: the server has %d messages from %d on and does not deliver them", events.ErrDamaged, missing, s.next)
}

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
			_ = s.on.NATS.Publish(to, nil)
		}
		return
	}
	if at := min(s.processed()+1, s.next); at > s.position {
		s.position = at
		s.resetConsumer(s.stream, s.source.CachedInfo().Name, at)
	}
}

// deleteConsumer deletes the consumer of a session. It keeps that of a reader that acknowledges and
// ends, so that the reader's successor knows how far it got.
func (f *follower) deleteConsumer(ctx context.Context, name string) {
	if f.acks.Clear(); f.processed == nil || ctx.Err() == nil {
		f.by.Leave(f.stream, name)
	}
}

// resetConsumer moves a consumer to a sequence. It does not wait for the answer, without whose
// subject the server ignores the request.
func (f *follower) resetConsumer(stream, consumer string, sequence uint64) {
	_ = f.on.NATS.PublishRequest(f.on.API("CONSUMER.RESET."+stream+"."+consumer), f.on.NATS.NewInbox(), fmt.Appendf(nil, `{"seq":%d}`, sequence))
}
