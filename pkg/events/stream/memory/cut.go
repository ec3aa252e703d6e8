package memory

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// ErrCut is the error of a call whose connection is cut.
var ErrCut = errors.New("the connection was cut")

// Cut is a bus whose connection is cut at one call; later calls succeed again. A test that cuts
// each call in turn sees every error path of its caller.
type Cut struct {
	bus.NotaryBus
	// Call is the number of the call to cut, from 1; 0: none.
	Call int
	// Answered: the bus carries out the call, and only its answer is lost.
	Answered bool

	mu    sync.Mutex
	calls int
}

var _ bus.NotaryBus = (*Cut)(nil)

// Calls is how many calls there have been.
func (c *Cut) Calls() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls
}

// during counts a call, and cuts it if it is the one.
func (c *Cut) during(call func() error) error {
	c.mu.Lock()
	c.calls++
	now := c.calls == c.Call
	c.mu.Unlock()
	if !now {
		return call()
	}
	if c.Answered {
		_ = call()
	}
	return ErrCut
}

// Kinds implements [bus.Archive], as do the methods that follow.
func (c *Cut) Kinds(ctx context.Context) (found []kinds.Kind, err error) {
	err = c.during(func() error { found, err = c.NotaryBus.Kinds(ctx); return err })
	return found, err
}

// Controllers are those of the bus.
func (c *Cut) Controllers(ctx context.Context) (found []string, err error) {
	err = c.during(func() error { found, err = c.NotaryBus.Controllers(ctx); return err })
	return found, err
}

// Shadows are those of the bus.
func (c *Cut) Shadows(ctx context.Context) (found []string, err error) {
	err = c.during(func() error { found, err = c.NotaryBus.Shadows(ctx); return err })
	return found, err
}

// StreamState is that of the bus.
func (c *Cut) StreamState(ctx context.Context, stream string) (state bus.State, err error) {
	err = c.during(func() error { state, err = c.NotaryBus.StreamState(ctx, stream); return err })
	return state, err
}

// Consumers are those of the bus.
func (c *Cut) Consumers(ctx context.Context, stream string) (found []bus.Consumer, err error) {
	err = c.during(func() error { found, err = c.NotaryBus.Consumers(ctx, stream); return err })
	return found, err
}

// Read is that of the bus.
func (c *Cut) Read(ctx context.Context, p bus.Passage, handle func(batch []events.Message) error) error {
	return c.during(func() error { return c.NotaryBus.Read(ctx, p, handle) })
}

// Next is that of the bus.
func (c *Cut) Next(ctx context.Context, stream, subject string, from uint64) (m events.Message, ok bool, err error) {
	err = c.during(func() error { m, ok, err = c.NotaryBus.Next(ctx, stream, subject, from); return err })
	return m, ok, err
}

// Last is that of the bus.
func (c *Cut) Last(ctx context.Context, stream, subject string) (m events.Message, ok bool, err error) {
	err = c.during(func() error { m, ok, err = c.NotaryBus.Last(ctx, stream, subject); return err })
	return m, ok, err
}

// At is that of the bus.
func (c *Cut) At(ctx context.Context, stream string, sequence uint64) (m events.Message, ok bool, err error) {
	err = c.during(func() error { m, ok, err = c.NotaryBus.At(ctx, stream, sequence); return err })
	return m, ok, err
}

// EnsureNotary implements [bus.NotaryBus], as does Store.
func (c *Cut) EnsureNotary(ctx context.Context, keep time.Duration) error {
	return c.during(func() error { return c.NotaryBus.EnsureNotary(ctx, keep) })
}

// Store is that of the bus.
func (c *Cut) Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error) {
	err = c.during(func() error { sequence, err = c.NotaryBus.Store(ctx, m, expect); return err })
	return sequence, err
}
