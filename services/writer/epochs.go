package writer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// epochs knows which epoch each kind is in, as the newest delta of its state
// stream tells. What is asked for is kept fresh for a while, so that turns need not
// wait for it.
type epochs struct {
	bus bus.Bus

	mu    sync.Mutex
	known map[kinds.Name]*era
}

// era is what is known of one kind.
type era struct {
	epoch    uint64
	ok       bool // there is one
	at, used time.Time
}

const (
	// reviewed is how often epochs are looked up that are being asked for, and
	// unused how long after the last time they still are.
	reviewed = time.Second
	unused   = 10 * reviewed
)

func newEpochs(b bus.Bus) *epochs {
	return &epochs{bus: b, known: map[kinds.Name]*era{}}
}

// of gives the epochs of some kinds, as they were two reviews ago or later. A kind
// that nobody watches, or of which nothing is stored, has none.
func (e *epochs) of(ctx context.Context, some []kinds.Name) (events.Epochs, error) {
	found := events.Epochs{}
	for _, kind := range some {
		now, known := e.recent(kind)
		if !known {
			var err error
			if now, err = e.lookUp(ctx, kind); err != nil {
				return nil, err
			}
		}
		if now.ok {
			found[kind] = now.epoch
		}
	}
	return found, nil
}

func (e *epochs) recent(kind kinds.Name) (now era, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	at, ok := e.known[kind]
	if !ok {
		at = &era{}
		e.known[kind] = at
	}
	at.used = time.Now()
	return *at, at.used.Sub(at.at) < 2*reviewed
}

// keep looks up what is being asked for again, until the context ends.
func (e *epochs) keep(ctx context.Context) {
	for ctx.Err() == nil {
		wait(ctx, reviewed)
		var used []kinds.Name
		e.mu.Lock()
		for kind, at := range e.known {
			if time.Since(at.used) < unused {
				used = append(used, kind)
			}
		}
		e.mu.Unlock()
		for _, kind := range used {
			if _, err := e.lookUp(ctx, kind); err != nil {
				break // the bus is away; who asks looks for himself
			}
		}
	}
}

// lookUp reads the newest message of a kind's state stream, or its last mark where
// that message has expired.
func (e *epochs) lookUp(ctx context.Context, kind kinds.Name) (era, error) {
	began := time.Now()
	m, ok, err := newest(ctx, e.bus, kind)
	if err != nil && !errors.Is(err, events.ErrDamaged) && !errors.Is(err, bus.ErrNoStream) {
		return era{}, fmt.Errorf("look up the epoch of %s: %w", kind, err)
	}
	var d events.Delta
	if err == nil && ok {
		var ref events.Ref
		if ref, err = subject.ParseDelta(m.Subject); err == nil {
			d, err = events.DecodeDelta(ref, m)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.known[kind]
	if at.at = began; err == nil && ok {
		at.epoch, at.ok = max(at.epoch, d.Epoch), true // an epoch never goes back
	}
	return *at, nil
}

// newest is the newest message of a kind's state stream, or its last mark.
func newest(ctx context.Context, b bus.Bus, kind kinds.Name) (m events.Message, ok bool, err error) {
	stream := subject.StateStream(kind)
	state, err := b.StreamState(ctx, stream)
	if err == nil && state.Messages > 0 {
		m, ok, err = b.At(ctx, stream, state.Last)
	}
	if err == nil && !ok {
		m, ok, err = b.Last(ctx, stream, subject.Mark(kind))
	}
	return m, ok, err
}
