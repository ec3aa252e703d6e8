package memory

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// reading is the state of a reader that acknowledges. It is used under the bus's lock.
type reading struct {
	dealt uint64
	ended time.Time // zero: it has not ended
}

// ackEvery is how often a reader acknowledges.
const ackEvery = 250 * time.Millisecond

// Consume is Follow with acknowledgements of the messages that were dealt with; see
// [bus.Queue].
func (b *Bus) Consume(ctx context.Context, name string, from uint64, dealt func() uint64, handle func([]events.Message) error) error {
	r, err := b.begin(ctx, name, dealt())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	acknowledging := make(chan struct{})
	go func() {
		defer close(acknowledging)
		for ctx.Err() == nil {
			tick := make(chan struct{})
			halt := b.clock.AfterFunc(ackEvery, func() { close(tick) })
			select {
			case <-tick:
			case <-ctx.Done():
				halt()
			}
			b.acknowledge(r, dealt())
		}
	}()
	defer func() {
		stop()
		<-acknowledging
		b.mu.Lock()
		defer b.mu.Unlock()
		r.ended = b.clock.Now()
	}()
	return b.Follow(ctx, name, from, handle)
}

func (b *Bus) begin(ctx context.Context, name string, dealt uint64) (r *reading, err error) {
	err = b.do(ctx, func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		r = &reading{dealt: dealt}
		s.readings = append(s.readings, r)
		return nil
	})
	return r, err
}

func (b *Bus) acknowledge(r *reading, dealt uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r.dealt = max(r.dealt, dealt)
}

// Acknowledged is how far ended readers had dealt with a stream; see [bus.Queue].
func (b *Bus) Acknowledged(ctx context.Context, name string) (dealt uint64, ok bool, err error) {
	err = b.do(ctx, func() error {
		s, err := b.stream(name)
		if err != nil {
			return err
		}
		kept := s.readings[:0]
		for _, r := range s.readings {
			if !r.ended.IsZero() && b.clock.Now().Sub(r.ended) >= bus.Abandoned {
				continue
			}
			if kept = append(kept, r); !r.ended.IsZero() && (!ok || r.dealt < dealt) {
				dealt, ok = r.dealt, true
			}
		}
		s.readings = kept
		return nil
	})
	return dealt, ok, err
}
