package follow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/handover"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/internal/listing"
	"github.com/millrace/millrace/pkg/events/stream/internal/provision"
)

// idle is a reader on a bus that is asked nothing.
func idle() *Reader { return New((&jstest.Server{}).Connected(conn.Options{}), nil, func() {}) }

// A reader's timer runs only while messages are left to acknowledge, so that a hundred readers without
// work wake up nothing.
func TestWhenAReaderAcknowledges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dealt, asked := uint64(0), 0
		f := &session{follower: &follower{processed: func() uint64 { asked++; return dealt }}}
		timer := newAckTimer()
		ticks := func(within time.Duration) bool {
			select {
			case <-timer.C:
				return true
			case <-time.After(within): // virtual
				return false
			}
		}
		if timer.arm(f); ticks(time.Hour) {
			t.Error("the timer ticks without messages to acknowledge")
		}
		f.acks.Add(1, "")
		if timer.arm(f); ticks(ackEvery-1) || !ticks(2) {
			t.Error("the timer does not tick after exactly its interval")
		}
		if timer.ticked(f); asked != 1 || !ticks(ackEvery+1) {
			t.Errorf("the timer does not tick again while a message is left; asked %d times, want 1", asked)
		}
		dealt = 1
		if timer.ticked(f); asked != 2 || ticks(time.Hour) {
			t.Errorf("the timer ticks when no message is left; asked %d times, want 2", asked)
		}
		if timer.end(f); asked != 3 {
			t.Error("at the end it does not acknowledge")
		}
		other := &session{follower: &follower{}}
		other.acks.Add(1, "")
		timer = newAckTimer()
		if timer.arm(other); ticks(time.Hour) {
			t.Error("a reader that does not acknowledge has a timer")
		}
		timer.end(other)
	})
}

// The handler does not get again what it received in an earlier session.
func TestWhatIsFresh(t *testing.T) {
	t.Parallel()
	batch := []events.Message{{Sequence: 3}, {Sequence: 4}, {Sequence: 8}}
	for next, want := range map[uint64]int{1: 3, 3: 3, 4: 2, 5: 1, 8: 1, 9: 0} {
		f := &follower{next: next}
		if got := f.withoutRead(batch); len(got) != want {
			t.Errorf("from %d on %d are fresh, want %d", next, len(got), want)
		}
	}
}

// source is a consumer that says how much it has.
type source struct {
	jetstream.Consumer
	pending uint64
	err     error
}

func (s source) Info(context.Context) (*jetstream.ConsumerInfo, error) {
	return &jetstream.ConsumerInfo{NumPending: s.pending}, s.err
}

// A server that has messages and does not deliver them, twice in a session and in two sessions
// in a row, cannot read them.
func TestWhenAStreamIsDamaged(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	f := newSession(&follower{Reader: idle(), next: 7}, nil, nil, nil)
	for i, step := range []struct {
		source source
		next   uint64
		stuck  int
		err    error
	}{
		{source{pending: 0}, 7, 0, nil}, {source{err: away}, 7, 0, away}, {source{pending: 5}, 7, 1, nil}, {source{pending: 0}, 7, 0, nil},
		{source{pending: 5}, 7, 1, nil}, {source{pending: 5}, 7, 2, delivery.ErrMayHaveMissed}, // a session that only lost its request is begun anew
		{source{pending: 5}, 7, 1, nil}, {source{pending: 5}, 7, 2, events.ErrDamaged},
		{source{pending: 0}, 9, 0, nil}, {source{pending: 5}, 9, 1, nil}, {source{pending: 5}, 9, 2, delivery.ErrMayHaveMissed}, // it got further meanwhile
	} {
		f.next, f.source = step.next, step.source
		err := f.checkIdle(t.Context())
		if f.stuck != step.stuck || !errors.Is(err, step.err) {
			t.Errorf("step %d: %d times, %v; want %d, %v", i, f.stuck, err, step.stuck, step.err)
		}
		if errors.Is(err, delivery.ErrMayHaveMissed) {
			f.stuck = 0 // a new session
		}
	}
}

// A reader without messages asks the server less and less often.
func TestHowOftenAnIdleReaderAsks(t *testing.T) {
	t.Parallel()
	f := newSession(&follower{Reader: idle(), next: 7}, source{pending: 0}, nil, nil)
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 32} {
		if f.rest != want*time.Second {
			t.Errorf("the next check comes after %v, want %v", f.rest, want*time.Second)
		}
		if err := f.checkIdle(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	f.source = source{pending: 1}
	if err := f.checkIdle(t.Context()); err != nil || f.rest != stuckPoll {
		t.Errorf("while something is missing it asks after %v, %v; want %v", f.rest, err, stuckPoll)
	}
}

// Messages of the server make a reader ask soon whether more are missing. What was handed over says nothing of
// the server.
func TestWhatMakesAReaderAsk(t *testing.T) {
	t.Parallel()
	f := newSession(&follower{Reader: idle(), next: 7}, source{}, nil, func([]events.Message) error { return nil })
	for _, c := range []struct {
		local *handover.Reader
		want  time.Duration
	}{{&handover.Reader{}, 32 * time.Second}, {nil, stuckPoll}} {
		f.rest, f.stuck, f.local = 32*time.Second, 1, c.local
		if err := f.take(nil); err != nil || f.rest != c.want || f.stuck != 0 {
			t.Errorf("handed over: %t: %v, the next check comes after %v, and %d have found something missing; want %v and 0", c.local != nil, err, f.rest, f.stuck, c.want)
		}
	}
}

// A stream is still the same if it was created at the same time, does not end earlier, and has
// the message that was read last, or lost it to its age.
func TestWhichStreamWasRead(t *testing.T) {
	t.Parallel()
	made, sum, away := time.Unix(100, 0), "a", errors.New("away")
	for name, c := range map[string]struct {
		made time.Time
		last uint64
		read bool
		sum  string
		err  error
		want error
	}{
		"the same":               {made, 9, true, sum, nil, nil},
		"made anew":              {made.Add(1), 9, true, sum, nil, bus.ErrOvertaken},
		"it ends where it did":   {made, 6, true, sum, nil, nil},
		"it ends before":         {made, 5, true, sum, nil, bus.ErrOvertaken},
		"another message":        {made, 9, true, "b", nil, bus.ErrOvertaken},
		"a message that is gone": {made, 9, true, sum, jetstream.ErrMsgNotFound, nil},
		"it does not say":        {made, 9, true, sum, away, away},
		"nothing was read yet":   {made, 9, false, "b", away, nil},
	} {
		f := &follower{next: 7, created: made, last: sum, read: c.read}
		found := jstest.Stream{Found: &jetstream.StreamInfo{Created: c.made, State: jetstream.StreamState{LastSeq: c.last}}, Sum: c.sum, Err: c.err}
		if err := f.sameStream(t.Context(), found); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	f := &follower{next: 1}
	if err := f.sameStream(t.Context(), jstest.Stream{Found: &jetstream.StreamInfo{Created: made}}); err != nil || !f.created.Equal(made) {
		t.Errorf("the first time: %v, made at %v", err, f.created)
	}
}

// TestAStreamIsMadeAnewBeforeItsConsumer: a reader detects that its stream was recreated before it got its
// consumer, even if the new stream has as many messages.
func TestAStreamIsMadeAnewBeforeItsConsumer(t *testing.T) {
	t.Parallel()
	before := time.Unix(1, 0)
	a := &jstest.Server{}
	a.FindsStream = func(context.Context, string) (*jetstream.StreamInfo, error) {
		info := &jetstream.StreamInfo{Created: before, State: jetstream.StreamState{LastSeq: 9}}
		if len(a.Made) > 0 {
			info.Created = before.Add(time.Hour)
		}
		return info, nil
	}
	on := a.Connected(conn.Options{})
	f := &follower{Reader: New(on, provision.New(on, listing.New(on), provision.Options{}).Maker(), func() {}), stream: "S", next: 4, created: before}
	if _, err := f.open(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a stream that was made anew before the consumer: %v", err)
	}
}

// The handler does not get a message again, except one that it has refused. Unsealed messages
// are counted.
func TestWhatAHandlerHasHad(t *testing.T) {
	t.Parallel()
	enough, sealed := errors.New("enough"), events.Seal(events.Message{Sequence: 6})
	f := &follower{Reader: idle(), stream: "S", next: 2}
	if err := f.deliver(nil, func([]events.Message) error { return enough }); err != nil || f.read {
		t.Errorf("deliver without messages: %v, want nothing handed over", err)
	}
	batch := []events.Message{{Sequence: 3}, {Sequence: 4}, sealed}
	err := f.deliver(batch, func([]events.Message) error { return enough })
	if own, ok := err.(*delivery.HandlerError); !ok || own.Err != enough || f.next != 2 || f.read {
		t.Errorf("deliver to a handler that refuses: %v, next is %d; want its error, and 2 still", err, f.next)
	}
	if err := f.deliver(batch, func(batch []events.Message) error { clear(batch); return nil }); err != nil || f.next != 7 || f.last != sealed.Get(events.HeaderSum) || !f.read {
		t.Errorf("deliver to a handler that takes all: %v, next is %d, with the sum %q; want 7, and the sum of the last", err, f.next, f.last)
	}
	if got := testutil.ToFloat64(f.on.Stats.Unsealed.WithLabelValues("S")); got != 4 {
		t.Errorf("%v messages without a sum are counted, want 2 each time", got)
	}
}
