package delivery

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream/internal/deliverytest"
)

// isReady reports whether there is something to take.
func (f *Prefetch) isReady() bool {
	select {
	case <-f.Ready:
		return true
	default:
		return false
	}
}

// feed returns messages in order; after a missing delivery, one without a position or an error
// it returns no more.
func TestAFeedEndsWhereSomethingIsMissing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then func(f *Prefetch)
		err  error // nil: any
	}{
		"a delivery is missing":     {func(f *Prefetch) { f.Receive(deliverytest.Sent{Sequence: 9, Delivery: 4}) }, ErrMayHaveMissed},
		"a delivery comes twice":    {func(f *Prefetch) { f.Receive(deliverytest.Sent{Sequence: 7, Delivery: 2}) }, ErrMayHaveMissed},
		"the client says an error":  {func(f *Prefetch) { f.Fail(nats.ErrTimeout); f.Fail(nats.ErrNoResponders) }, nats.ErrTimeout},
		"the place cannot be read ": {func(f *Prefetch) { f.Receive(blankReply{}) }, nil},
	} {
		f := NewPrefetch("S")
		var got []uint64
		f.OnReceived = func(sequence uint64, reply string) { got = append(got, sequence) }
		f.Receive(deliverytest.Sent{Sequence: 5, Delivery: 1, Pending: 8})
		f.Receive(deliverytest.Sent{Sequence: 7, Delivery: 2, Pending: 7})
		batch, behind, err := f.Take()
		if !f.isReady() || len(batch) != 2 || batch[0].Sequence != 5 || batch[1].Sequence != 7 || batch[1].Stream != "S" || behind != 7 || err != nil || len(got) != 2 {
			t.Errorf("taken is %+v, with %d behind, %v", batch, behind, err)
		}
		c.then(f)
		f.Receive(deliverytest.Sent{Sequence: 8, Delivery: 3})
		if batch, _, err = f.Take(); !f.isReady() || len(batch) != 0 || err == nil || c.err != nil && !errors.Is(err, c.err) || len(got) != 2 {
			t.Errorf("%s: then %+v is taken, %v", name, batch, err)
		}
	}
}

type blankReply struct{ jetstream.Msg }

func (blankReply) Reply() string { return "_INBOX.x" }

// A busy reader gets at most a bound of messages and of bytes, and the rest when it has taken
// those; a closed one gets none.
func TestAFeedIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ size, most int }{"messages": {0, heldMessages}, "bytes": {1 << 20, 32}} {
		synctest.Test(t, func(t *testing.T) {
			f := NewPrefetch("S")
			sent := 0
			go func() {
				for n := range c.most + 2 {
					f.Receive(deliverytest.Sent{Sequence: n + 1, Delivery: n + 1, Size: c.size})
					sent++
				}
			}()
			synctest.Wait()
			if sent != c.most {
				t.Errorf("%s: %d are held, want %d", name, sent, c.most)
			}
			batch, _, err := f.Take()
			if synctest.Wait(); len(batch) != c.most || err != nil || sent != c.most+2 {
				t.Errorf("%s: %d are taken, %v, and %d sent", name, len(batch), err, sent)
			}
			f.Close()
			f.Receive(deliverytest.Sent{Sequence: 1, Delivery: c.most + 3})
			if batch, _, err = f.Take(); len(batch) != 2 || err != nil {
				t.Errorf("%s: when it is closed %d are taken, %v", name, len(batch), err)
			}
		})
	}
}

// feed waits for as many messages as are worth taking, but not for messages that the server
// does not have.
func TestAFeedWaitsForEnough(t *testing.T) {
	t.Parallel()
	f := NewPrefetch("S")
	f.WakeAt = 3
	for n, step := range []struct {
		pending, size int
		ready         bool
	}{{9, 1, false}, {8, 1, false}, {7, 1, true}, {6, 1, true}} {
		if f.Receive(deliverytest.Sent{Sequence: n + 1, Delivery: n + 1, Pending: step.pending, Size: step.size}); f.isReady() != step.ready {
			t.Errorf("with %d messages Take has something: %t, want the opposite", n+1, !step.ready)
		}
	}
	_, _, _ = f.Take()
	if f.Receive(deliverytest.Sent{Sequence: 5, Delivery: 5, Pending: 0}); !f.isReady() {
		t.Error("the prefetch waits for messages that the server does not have")
	}
	_, _, _ = f.Take()
	if f.Receive(deliverytest.Sent{Sequence: 6, Delivery: 6, Pending: 9, Size: heldBytes}); !f.isReady() {
		t.Error("the prefetch waits for more although it is full")
	}
}
