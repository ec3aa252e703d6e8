package passage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/deliverytest"
)

// A server that stalls for a while delivers as little as one that cannot read its messages.
// Only when two sessions in a row get no further is the record damaged.
func TestOneSilenceIsNoDamage(t *testing.T) {
	t.Parallel()
	r := &read{}
	for _, step := range []struct {
		from    uint64
		damaged bool
	}{{0, false}, {1, true}, {7, false}, {9, false}, {9, true}} {
		r.From = step.from
		if err := r.stuckError(); err == nil || errors.Is(err, events.ErrDamaged) != step.damaged {
			t.Errorf("no message comes from %d on: %v; want it damaged: %t", step.from, err, step.damaged)
		}
	}
}

// deliver hands over only the messages of a passage, and From is the sequence after them; a message beyond the
// end completes the passage.
func TestWhatBelongsToAPassage(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for name, c := range map[string]struct {
		sequences []uint64
		handed    []uint64
		over      bool
		next      uint64
	}{
		"nothing":             {nil, nil, false, 2},
		"a part":              {[]uint64{3, 4}, []uint64{3, 4}, false, 5},
		"the end":             {[]uint64{3, 5}, []uint64{3, 5}, true, 6},
		"the end, and behind": {[]uint64{4, 5, 6, 8}, []uint64{4, 5}, true, 6},
		"a hole at the end":   {[]uint64{4, 6}, []uint64{4}, true, 5},
		"what is behind it":   {[]uint64{6, 7}, nil, true, 2},
	} {
		var batch []events.Message
		for _, n := range c.sequences {
			batch = append(batch, events.Message{Sequence: n})
		}
		var handed []uint64
		r := &read{Passage: bus.Passage{From: 2, To: 5}, handle: func(batch []events.Message) error {
			for _, m := range batch {
				handed = append(handed, m.Sequence)
			}
			return nil
		}}
		if over, err := r.deliver(batch); over != c.over || err != nil || !slices.Equal(handed, c.handed) || r.From != c.next {
			t.Errorf("%s: %v are handed over, it is over: %t, and goes on at %d, %v", name, handed, over, r.From, err)
		}
		r = &read{Passage: bus.Passage{From: 2, To: 5}, handle: func([]events.Message) error { return enough }}
		if over, err := r.deliver(batch); len(c.handed) > 0 && (over || err == nil || err.Error() != enough.Error() || r.From != 2) {
			t.Errorf("%s, when the handler has had enough: over: %t, from %d, %v", name, over, r.From, err)
		}
	}
}

// A read ends when its passage is complete, its context has ended, or the handler has returned an error.
func TestWhenAPassageIsOver(t *testing.T) {
	t.Parallel()
	enough, other := errors.New("enough"), errors.New("other")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	r := &read{Passage: bus.Passage{Stream: "S"}}
	for name, c := range map[string]struct {
		ctx       context.Context
		err, want error
		over      bool
	}{
		"it was read":                           {t.Context(), nil, nil, true},
		"the handler has had enough":            {t.Context(), fmt.Errorf("read: %w", &delivery.HandlerError{Err: enough}), enough, true},
		"something else":                        {t.Context(), other, nil, false},
		"something else, and it is to end":      {ended, other, context.Canceled, true},
		"it was read, and is to end":            {ended, nil, nil, true},
		"the handler's error, and it is to end": {ended, &delivery.HandlerError{Err: enough}, enough, true},
	} {
		if over, err := r.finished(c.ctx, c.err); over != c.over || !errors.Is(err, c.want) {
			t.Errorf("%s: over: %t, %v, want %t, %v", name, over, err, c.over, c.want)
		}
	}
	since := time.Unix(7, 0)
	r.Since, r.Subject, r.HeadersOnly = since, "s", true
	if o := r.consumer(); o.Since == nil || !o.Since.Equal(since) || o.Subject != "s" || !o.HeadersOnly || o.Stream != "S" {
		t.Errorf("the consumer of a passage since a time is %+v", o)
	}
	r.From = 1
	if o := r.consumer(); o.Since != nil || o.From != 1 {
		t.Errorf("the consumer of a passage from a sequence is %+v", o)
	}
}

// consume waits as long as messages arrive, and at most five seconds for the next.
func TestHowLongAPassageIsWaitedFor(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	for name, c := range map[string]struct {
		does func(t *testing.T, f *delivery.Prefetch, c *conn.Conn, cancel context.CancelCauseFunc)
		took time.Duration
		says string // "": nothing
		next uint64
	}{
		"all that there is": {func(_ *testing.T, f *delivery.Prefetch, _ *conn.Conn, _ context.CancelCauseFunc) {
			f.Receive(deliverytest.Sent{Sequence: 3, Delivery: 1, Pending: 1})
			f.Receive(deliverytest.Sent{Sequence: 4, Delivery: 2})
		}, 0, "", 5},
		"up to the end": {func(_ *testing.T, f *delivery.Prefetch, _ *conn.Conn, _ context.CancelCauseFunc) {
			f.Receive(deliverytest.Sent{Sequence: 9, Delivery: 1, Pending: 7})
		}, 0, "", 10},
		"slowly": {func(_ *testing.T, f *delivery.Prefetch, _ *conn.Conn, _ context.CancelCauseFunc) {
			time.Sleep(4 * time.Second) // of virtual time
			f.Receive(deliverytest.Sent{Sequence: 3, Delivery: 1, Pending: 1})
			time.Sleep(4 * time.Second)
			f.Receive(deliverytest.Sent{Sequence: 4, Delivery: 2})
		}, 8 * time.Second, "", 5},
		"slowly, with a sign of nothing": {func(_ *testing.T, f *delivery.Prefetch, _ *conn.Conn, _ context.CancelCauseFunc) {
			f.Receive(deliverytest.Sent{Sequence: 3, Delivery: 1, Pending: 1})
			time.Sleep(time.Second)
			f.Ready <- struct{}{}
			time.Sleep(time.Second)
			f.Receive(deliverytest.Sent{Sequence: 4, Delivery: 2})
		}, 2 * time.Second, "", 5},
		"nothing comes": {func(*testing.T, *delivery.Prefetch, *conn.Conn, context.CancelCauseFunc) {}, 5 * time.Second, "nothing came for 5s", 1},
		"nothing more comes": {func(_ *testing.T, f *delivery.Prefetch, _ *conn.Conn, _ context.CancelCauseFunc) {
			time.Sleep(4 * time.Second)
			f.Receive(deliverytest.Sent{Sequence: 3, Delivery: 1, Pending: 1})
		}, 9 * time.Second, "nothing came for 5s", 4},
		"something is missing": {func(_ *testing.T, f *delivery.Prefetch, _ *conn.Conn, _ context.CancelCauseFunc) {
			f.Receive(deliverytest.Sent{Sequence: 3, Delivery: 1, Pending: 2})
			f.Receive(deliverytest.Sent{Sequence: 5, Delivery: 3})
		}, 0, delivery.ErrMayHaveMissed.Error(), 4},
		"the bus is closed": {func(_ *testing.T, _ *delivery.Prefetch, c *conn.Conn, _ context.CancelCauseFunc) { c.Close() }, 0, bus.ErrClosed.Error(), 1},
		"it is to end":      {func(_ *testing.T, _ *delivery.Prefetch, _ *conn.Conn, cancel context.CancelCauseFunc) { cancel(away) }, 0, "away", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, f, began := conn.New(conn.Options{}), delivery.NewPrefetch("S"), time.Now()
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				r := &read{Reader: New(b, nil, false), Passage: bus.Passage{From: 1, To: 9}, handle: func([]events.Message) error { return nil }}
				go c.does(t, f, b, cancel)
				synctest.Wait() // what comes at once has come
				err := r.consume(ctx, f)
				if said := fmt.Sprint(err); err == nil != (c.says == "") || err != nil && !strings.Contains(said, c.says) || time.Since(began) != c.took || r.From != c.next {
					t.Errorf("consume ends after %v with %v, next is %d; want %v, %q, %d", time.Since(began), err, r.From, c.took, c.says, c.next)
				}
			})
		})
	}
}
