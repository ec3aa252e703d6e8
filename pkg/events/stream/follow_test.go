package stream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
)

// sentMsg is a delivery as a server sends it.
type sentMsg struct {
	jetstream.Msg
	sequence, delivery, pending, size int
}

func (m sentMsg) Reply() string {
	return fmt.Sprintf("$JS.ACK.S.c.1.%d.%d.%d.%d", m.sequence, m.delivery, time.Unix(int64(m.sequence), 0).UnixNano(), m.pending)
}
func (m sentMsg) Subject() string      { return "s" }
func (m sentMsg) Headers() nats.Header { return nil }
func (m sentMsg) Data() []byte         { return make([]byte, m.size) }

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
	f := newSession(&follower{bus: &Bus{}, next: 7}, nil, nil, nil)
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
	f := newSession(&follower{bus: &Bus{}, next: 7}, source{pending: 0}, nil, nil)
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 32} {
		if f.rest != want*time.Second {
			t.Errorf("it asks after %v, want %v", f.rest, want*time.Second)
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

// kept is a stream as it is found.
type kept struct {
	jetstream.Stream
	info *jetstream.StreamInfo
	sum  string // of the message that was read last
	err  error
}

func (k kept) CachedInfo() *jetstream.StreamInfo { return k.info }

func (k kept) GetMsg(context.Context, uint64, ...jetstream.GetMsgOpt) (*jetstream.RawStreamMsg, error) {
	return &jetstream.RawStreamMsg{Header: nats.Header{events.HeaderSum: {k.sum}}}, k.err
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
		found := kept{info: &jetstream.StreamInfo{Created: c.made, State: jetstream.StreamState{LastSeq: c.last}}, sum: c.sum, err: c.err}
		if err := f.sameStream(t.Context(), found); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	f := &follower{next: 1}
	if err := f.sameStream(t.Context(), kept{info: &jetstream.StreamInfo{Created: made}}); err != nil || !f.created.Equal(made) {
		t.Errorf("the first time: %v, made at %v", err, f.created)
	}
}

// TestAStreamIsMadeAnewBeforeItsConsumer: a reader detects that its stream was recreated before it got its
// consumer, even if the new stream has as many messages.
func TestAStreamIsMadeAnewBeforeItsConsumer(t *testing.T) {
	t.Parallel()
	before := time.Unix(1, 0)
	a := &answers{}
	a.stream = func(context.Context, string) (*jetstream.StreamInfo, error) {
		info := &jetstream.StreamInfo{Created: before, State: jetstream.StreamState{LastSeq: 9}}
		if len(a.made) > 0 {
			info.Created = before.Add(time.Hour)
		}
		return info, nil
	}
	f := &follower{bus: a.bus(Options{}), stream: "S", next: 4, created: before}
	if _, err := f.open(t.Context()); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("a stream that was made anew before the consumer: %v", err)
	}
}
