package work

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/deliverytest"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// A delivery that is older than its consumer may have been delivered by an earlier one; an old
// one, far from the end, that was dealt with shows that the consumer goes through its history.
func TestWhatShowsAHistory(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		since    time.Duration
		attempt  int
		made     time.Time // the consumer
		stored   time.Time // the message
		pending  uint64
		asked    time.Time
		known    func() bool
		want     bool
		attempts int
	}{
		"new":                           {time.Hour, 1, now.Add(-time.Minute), now, 5000, time.Time{}, nil, false, 1},
		"old, far behind":               {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, true, 1},
		"older than the consumer":       {time.Hour, 1, now.Add(-time.Minute), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, true, 2},
		"old, with few behind it":       {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1000, time.Time{}, nil, false, 1},
		"not so old":                    {3 * time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, false, 1},
		"asked just now":                {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, now, nil, false, 1},
		"asked a while ago":             {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, now.Add(-2 * time.Second), nil, true, 1},
		"known":                         {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, func() bool { return true }, true, 1},
		"not dealt with":                {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, func() bool { return false }, false, 1},
		"again":                         {time.Hour, 2, now.Add(-time.Minute), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, false, 2},
		"of a consumer without a bound": {0, 1, now.Add(-time.Minute), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, false, 1},
	} {
		w := &worker{work: bus.Work{Since: c.since}, made: c.made, asked: c.asked}
		if c.known != nil {
			w.work.Known = func(events.Message) bool { return c.known() }
		}
		p := delivery.Position{Attempt: c.attempt, Time: c.stored, Pending: c.pending}
		if got := w.isRedeliveringHistory(deliverytest.Sent{}, &p); got != c.want || p.Attempt != c.attempts {
			t.Errorf("%s: the delivery is of a history: %t, attempt %d; want %t, %d", name, got, p.Attempt, c.want, c.attempts)
		}
	}
}

// noted is a delivery that knows how it was answered.
type noted struct {
	deliverytest.Sent
	said *[]string
}

func (s noted) note(text string) error { *s.said = append(*s.said, text); return nil }

func (s noted) Ack() error { return s.note("done") }

func (s noted) Nak() error { return s.note("again") }

func (s noted) NakWithDelay(d time.Duration) error { return s.note(fmt.Sprint("again in ", d)) }

func (s noted) InProgress() error { return s.note("working") }

func (s noted) TermWithReason(r string) error { return s.note("term: " + r) }

// A delivery is answered with what its worker says, in a line; it comes again within a minute.
func TestHowADeliveryIsAnswered(t *testing.T) {
	t.Parallel()
	var said []string
	d := &workDelivery{wire: noted{said: &said}, stream: "TURN_c", place: delivery.Position{Attempt: 3, Sequence: 7, Time: time.Unix(7, 0)}}
	d.Ack()
	d.InProgress()
	for _, delay := range []time.Duration{-1, 0, 1, time.Minute, time.Minute + 1} {
		d.NakWithDelay(delay)
	}
	d.Term(" it is\r\n no  use")
	want := []string{"done", "working", "again", "again", "again in 1ns", "again in 1m0s", "again in 1m0s", "term: it is no use"}
	if !slices.Equal(said, want) {
		t.Errorf("the delivery is answered %q, want %q", said, want)
	}
	if m := d.Message(); d.Attempt() != 3 || m.Sequence != 7 || m.Stream != "TURN_c" || !m.Time.Equal(time.Unix(7, 0)) {
		t.Errorf("the message is %+v, at attempt %d; want message 7 of TURN_c, at attempt 3", m, d.Attempt())
	}
}

// What a worker leaves open has a default; its rank is one that there is.
func TestWhatAWorkerAsksFor(t *testing.T) {
	t.Parallel()
	for rank, want := range map[int]uint8{-1: 0, 0: 0, 1: 1, bus.LastRank: bus.LastRank, bus.LastRank + 1: bus.LastRank, 1 << 20: bus.LastRank} {
		if got := (&worker{work: bus.Work{Rank: rank}}).rank(); got != want {
			t.Errorf("rank %d is asked for as %d, want %d", rank, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			work  bus.Work
			wait  time.Duration
			most  int
			since bool
		}{
			"nothing":    {bus.Work{}, 30 * time.Second, 5000, false},
			"everything": {bus.Work{AckWait: time.Second, MaxPending: 7, Since: time.Hour}, time.Second, 7, true},
		} {
			c.work.Stream, c.work.Durable = "TURN_c", "writer"
			o := (&worker{work: c.work}).order()
			if o.Stream != "TURN_c" || o.Durable != "writer" || o.AckWait != c.wait || o.MaxPending != c.most || (o.Since != nil) != c.since || c.since && !o.Since.Equal(time.Now().Add(-time.Hour)) {
				t.Errorf("with %s given the consumer is %+v", name, o)
			}
		}
	})
}

// A consumer that seems to be beyond the end of its stream in two checks, a second apart, has lost its
// position: in a single check two servers may have answered.
func TestWhenAConsumerStandsBeyondItsStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		delivered func(look int) (uint64, error)
		took      time.Duration // until it is told; 0: it is not
		looks     int           // in 20.5 s, usually every 5 s
	}{
		"at its end":         {func(int) (uint64, error) { return 7, nil }, 0, 5},
		"beyond it":          {func(int) (uint64, error) { return 8, nil }, time.Second, 2},
		"beyond it, at once": {func(look int) (uint64, error) { return map[bool]uint64{true: 8}[look == 1], nil }, 0, 5},
		"beyond it, later":   {func(look int) (uint64, error) { return map[bool]uint64{true: 8}[look > 2], nil }, 11 * time.Second, 4},
		"no answer between": {func(look int) (uint64, error) {
			if look%2 == 0 {
				return 0, errors.New("away")
			}
			return 8, nil
		}, 0, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, looks, began := &jstest.Server{FindsStream: jstest.At(&jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 7}})}, 0, time.Now()
			a.FindsConsumer = func() (*jetstream.ConsumerInfo, error) {
				looks++
				n, err := c.delivered(looks)
				return &jetstream.ConsumerInfo{Delivered: jetstream.SequenceInfo{Stream: n}}, err
			}
			ctx, done := context.WithTimeout(t.Context(), 20500*time.Millisecond)
			defer done()
			broken := make(chan error, 1)
			w := &worker{on: a.Connected(conn.Options{}), work: bus.Work{Stream: "TURN_c", Durable: "writer"}}
			w.watchPosition(ctx, broken, 5*time.Second)
			took := time.Since(began)
			select {
			case err := <-broken:
				if c.took == 0 || took != c.took || !errors.Is(err, errPositionLost) {
					t.Errorf("%s: after %v it is told %v, want after %v", name, took, err, c.took)
				}
			default:
				if c.took > 0 {
					t.Errorf("%s: the worker is not told of the loss", name)
				}
			}
			if looks != c.looks {
				t.Errorf("%s: the consumer is looked at %d times, want %d", name, looks, c.looks)
			}
		})
	}
}

// orders is a maker that records the orders.
type orders struct {
	conn.ConsumerMaker
	all []settings.Consumer
}

func (o *orders) Consumer(_ context.Context, order settings.Consumer) (jetstream.Consumer, error) {
	o.all = append(o.all, order)
	return jstest.Consumer{}, nil
}

// A worker uses an existing consumer, has different settings updated, and has a consumer recreated that is
// missing or has lost its position, unless another worker has done so.
func TestWhichConsumerAWorkerTakes(t *testing.T) {
	t.Parallel()
	made, away := time.Unix(100, 0), errors.New("away")
	work := bus.Work{Stream: "TURN_c", Durable: "writer", AckWait: time.Minute}
	like := (&worker{work: work}).order().Config()
	other := like
	other.AckWait = time.Hour
	for name, c := range map[string]struct {
		positionLost   bool
		created        time.Time
		config         jetstream.ConsumerConfig
		finds          error
		asks           bool
		update, remake bool
		err            error
	}{
		"as it should be":                     {false, made, like, nil, false, false, false, nil},
		"another":                             {false, made, other, nil, true, true, false, nil},
		"missing":                             {false, made, like, jetstream.ErrConsumerNotFound, true, false, false, nil},
		"of a server that is off":             {false, made, like, away, false, false, false, away},
		"its position is lost":                {true, made, like, nil, true, false, true, nil},
		"its position is lost, and made anew": {true, made.Add(1), like, nil, false, false, false, nil},
	} {
		a, by := &jstest.Server{}, &orders{}
		a.FindsConsumer = func() (*jetstream.ConsumerInfo, error) {
			return &jetstream.ConsumerInfo{Created: c.created, Config: c.config}, c.finds
		}
		_, err := (&worker{on: a.Connected(conn.Options{}), by: by, work: work, made: made, positionLost: c.positionLost}).durable(t.Context())
		if !errors.Is(err, c.err) || len(by.all) != map[bool]int{true: 1}[c.asks] {
			t.Errorf("%s: ordered is %+v, %v", name, by.all, err)
			continue
		}
		if c.asks && (by.all[0].Update != c.update || by.all[0].Remake != c.remake || by.all[0].Durable != "writer") {
			t.Errorf("%s: ordered is %+v", name, by.all[0])
		}
	}
}
