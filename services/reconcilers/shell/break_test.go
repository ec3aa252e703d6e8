package shell

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// torn is a bus whose streams break off: each Follow delivers its next messages and ends with
// its error, and the last one goes on until its context ends.
type torn struct {
	markless
	mu     sync.Mutex
	parts  []part
	starts []uint64
}

type part struct {
	batch []events.Message
	err   error
}

func (b *torn) StreamState(context.Context, string) (bus.State, error) {
	return bus.State{First: 1, Created: epoch}, nil
}

func (b *torn) Listen(ctx context.Context, _ string, _ func([]byte)) error {
	<-ctx.Done()
	return nil
}

func (b *torn) Broadcast(string, []byte) error { return nil }

func (b *torn) Consume(ctx context.Context, stream string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	return b.Follow(ctx, stream, from, handle)
}

func (*torn) Acknowledged(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b *torn) Follow(ctx context.Context, _ string, from uint64, handle func([]events.Message) error) error {
	b.mu.Lock()
	b.starts = append(b.starts, from)
	var p part
	if len(b.parts) > 0 {
		p, b.parts = b.parts[0], b.parts[1:]
	}
	b.mu.Unlock()
	if len(p.batch) > 0 {
		if err := handle(p.batch); err != nil {
			return err
		}
	}
	if p.err == nil {
		<-ctx.Done()
	}
	return p.err
}

// A recreated stream shares nothing with the messages folded before.
func TestAStreamMadeAnewIsFoldedFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := delta(kinds.Pods.Kind, events.Is, aPod("old", "", 9), 9)
		b := &torn{parts: []part{{batch: []events.Message{pod}, err: bus.ErrOvertaken}}}
		f := &Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- f.Follow(ctx) }()
		time.Sleep(time.Second) // virtual
		synctest.Wait()
		if n := f.Cache.Count(kinds.Pods.Name); n != 0 {
			t.Errorf("the cache has %d objects of the old stream, want none", n)
		}
		if b.mu.Lock(); len(b.starts) != 2 || b.starts[1] != 1 {
			t.Errorf("the follower began at the sequences %v, want 1 the second time", b.starts)
		}
		b.mu.Unlock()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The engine may miss outcomes while it does not follow them, so it doubts all of its keys each
// time that following begins.
func TestWhatWasMissedIsRecalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := looped(&torn{parts: []part{{err: bus.ErrClosed}}}, toy(), Settings{}, nil, aSet("web", 1, 1, 0, ""))
		remember(t, l, 10)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			l.followOutcomes(ctx, func() {})
		}()
		for begun := range 2 {
			time.Sleep(time.Second) // virtual: beyond the pause after a break
			synctest.Wait()
			(<-l.inbox)()
			if !recalls(t, l, 10) {
				t.Errorf("the key is not recalled, although the stream of outcomes is followed for the %d. time", begun+1)
			}
		}
		cancel()
		<-done
	})
}
