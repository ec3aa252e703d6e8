package delivery

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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
		"a delivery is missing":     {func(f *Prefetch) { f.Receive(sentMsg{sequence: 9, delivery: 4}) }, ErrMayHaveMissed},
		"a delivery comes twice":    {func(f *Prefetch) { f.Receive(sentMsg{sequence: 7, delivery: 2}) }, ErrMayHaveMissed},
		"the client says an error":  {func(f *Prefetch) { f.Fail(nats.ErrTimeout); f.Fail(nats.ErrNoResponders) }, nats.ErrTimeout},
		"the place cannot be read ": {func(f *Prefetch) { f.Receive(blankReply{}) }, nil},
	} {
		f := NewPrefetch("S")
		var got []uint64
		f.OnReceived = func(sequence uint64, reply string) { got = append(got, sequence) }
		f.Receive(sentMsg{sequence: 5, delivery: 1, pending: 8})
		f.Receive(sentMsg{sequence: 7, delivery: 2, pending: 7})
		batch, behind, err := f.Take()
		if !f.isReady() || len(batch) != 2 || batch[0].Sequence != 5 || batch[1].Sequence != 7 || batch[1].Stream != "S" || behind != 7 || err != nil || len(got) != 2 {
			t.Errorf("taken is %+v, with %d behind, %v", batch, behind, err)
		}
		c.then(f)
		f.Receive(sentMsg{sequence: 8, delivery: 3})
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
					f.Receive(sentMsg{sequence: n + 1, delivery: n + 1, size: c.size})
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
			f.Receive(sentMsg{sequence: 1, delivery: c.most + 3})
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
		if f.Receive(sentMsg{sequence: n + 1, delivery: n + 1, pending: step.pending, size: step.size}); f.isReady() != step.ready {
			t.Errorf("with %d messages it is ready: %t", n+1, !step.ready)
		}
	}
	_, _, _ = f.Take()
	if f.Receive(sentMsg{sequence: 5, delivery: 5, pending: 0}); !f.isReady() {
		t.Error("it is waited for what is not there")
	}
	_, _, _ = f.Take()
	if f.Receive(sentMsg{sequence: 6, delivery: 6, pending: 9, size: heldBytes}); !f.isReady() {
		t.Error("it is waited though nothing more fits")
	}
}
