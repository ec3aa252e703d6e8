package streams

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The simulated streams keep the contract of a bus where they model it, so that a world finds what a
// real bus would let happen.
func TestTheSimulatedBusConforms(t *testing.T) {
	t.Parallel()
	const (
		always   = "the streams of a world exist from its beginning to its end"
		inMemory = "messages lie in memory, without checksums and bounds"
		reads    = "a reader of a world asks for batches by position, and the world cuts it off"
		process  = "connections and processes belong to the world"
		turns    = "the consumer of turns takes each from the start"
	)
	streamtest.ConformPartly(t, map[string]string{
		"Streams": always, "Settings": always, "Forget": always, "NoStream": always, "AppendAfterForget": always, "FollowForgotten": always,
		"Sealed": inMemory, "TooLarge": inMemory, "LargestObject": inMemory,
		"FollowHandlerError": reads, "FollowBeyondTheEnd": reads, "Consume": reads, "ConsumeWhatIsLeft": reads,
		"WorkSince": turns, "WorkRanked": turns, "WorkMaxPending": turns,
		"Peers": process, "Close": process,
		"Archive": "what a world shows of its past is tested by replays of worlds",
	}, func(*testing.T) bus.Bus {
		return &conforming{sim: New(time.Now, []kinds.Kind{kinds.Pods.Kind}), places: map[string]Place{}, stored: map[Place]uint64{}, durables: map[string]*Durable{}}
	})
}

// conforming shows the simulated streams as a bus. The streams hold turns and outcomes instead of messages,
// so a message's data travels in a text field of theirs. What a bus decides (sequences, what is refused or
// stored once, what is delivered and when, when a wake fires) the streams decide.
type conforming struct {
	bus.Bus // nil: for what the streams do not model
	archive

	mu       sync.Mutex // the streams have one goroutine in a world
	sim      *Bus
	places   map[string]Place // of outcomes, by id
	stored   map[Place]uint64 // their sequences
	durables map[string]*Durable
}

// archive has the methods of an archive deeper than those of a bus.
type archive struct{ bus.Archive }

func (c *conforming) EnsureKind(_ context.Context, kind kinds.Kind) error {
	if s := c.sim.Kinds[kind.Name]; s == nil || s.Kind != kind {
		return fmt.Errorf("%w: %s", bus.ErrNoStream, kind.Name)
	}
	return nil
}

func (c *conforming) EnsureController(_ context.Context, controller string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sim.Books[controller] == nil {
		c.sim.Open(controller)
	}
	return nil
}

func (c *conforming) StreamState(ctx context.Context, stream string) (bus.State, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sim.Archive().StreamState(ctx, stream)
}

func (c *conforming) Consumers(context.Context, string) (all []bus.Consumer, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.durables)) {
		all = append(all, bus.Consumer{Name: name})
	}
	return all, nil
}

func (c *conforming) Append(_ context.Context, kind kinds.Name) (bus.Appender, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &appending{bus: c, last: c.sim.Kinds[kind].End()}, nil
}

// appending is the publisher of a log, which is the watcher in a world: it expects the log to end with its
// own last message.
type appending struct {
	bus  *conforming
	last uint64
	err  error // the first one
}

func (a *appending) Append(_ context.Context, m events.Message) error {
	if a.err != nil {
		return a.err
	}
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		return err
	}
	kind := ref.Kind
	if ref.Name == "" {
		ref = events.Ref{}
	}
	m.Header = maps.Clone(m.Header)
	d, err := events.DecodeDelta(ref, events.Seal(m))
	if err != nil {
		return err
	}
	d.Kind = kind
	a.bus.mu.Lock()
	defer a.bus.mu.Unlock()
	if a.err = a.bus.sim.Append(d, a.last); a.err == nil {
		a.last++
	}
	return a.err
}

func (a *appending) Flush(context.Context) error { return a.err }
func (a *appending) Last() uint64                { return a.last }

func (a *appending) Close() error {
	a.err = cmp.Or(a.err, bus.ErrClosed)
	return nil
}

func (c *conforming) Store(_ context.Context, m events.Message, expect uint64) (uint64, error) {
	controller, lane, key, err := subject.ParseTurn(m.Subject)
	if err != nil {
		return 0, err
	}
	t := events.Turn{Controller: controller, Lane: lane, Key: key}
	t.Because = string(m.Data)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sim.Books[controller].Store(t, expect)
}

// Put stores an outcome. Its place is that of the turn that the id is about.
func (c *conforming) Put(_ context.Context, m events.Message, id string) (uint64, error) {
	controller, lane, key, err := subject.ParseTurn(m.Subject)
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at, known := c.places[id]
	if !known {
		at = Place{Sequence: uint64(len(c.places) + 1)}
		c.places[id] = at
	}
	book := c.sim.Books[controller]
	before := len(book.Outcomes)
	book.Settle(events.Outcome{Controller: controller, Lane: lane, Key: key, UID: types.UID(m.Data)}, at)
	if len(book.Outcomes) > before {
		c.stored[at] = uint64(len(book.Outcomes))
	}
	return c.stored[at], nil
}

func (c *conforming) Schedule(_ context.Context, w events.Wake) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sim.Schedule(w)
	return nil
}

// turn is the message of a turn.
func (c *conforming) turn(book *Book, sequence uint64) (events.Message, bool) {
	if sequence == 0 || sequence > uint64(len(book.Turns)) {
		return events.Message{}, false
	}
	t := book.Turns[sequence-1]
	m := messageOf(t, subject.TurnStream(t.Controller), subject.Turn(t.Controller, t.Lane, t.Key), int(sequence-1), book.Stored[sequence-1])
	m.Data = []byte(t.Because)
	return m, true
}

func (c *conforming) Last(_ context.Context, stream, on string) (events.Message, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind, ofKind := subject.KindOfStream(stream); ofKind {
		ref, err := subject.ParseDelta(on)
		if ref.Name == "" {
			ref = events.Ref{}
		}
		s := c.sim.Kinds[kind]
		if at := s.newest[ref]; err == nil && at > 0 {
			return s.Log[at-1].wire, true, nil
		}
		return events.Message{}, false, err
	}
	controller, lane, key, err := subject.ParseTurn(on)
	book := c.sim.Books[controller]
	if err != nil || book == nil || stream != subject.TurnStream(controller) {
		return events.Message{}, false, errors.Join(err, fmt.Errorf("%w: %s", bus.ErrNoStream, stream))
	}
	sequence, _, _ := book.Last(Lane{key, lane})
	m, there := c.turn(book, sequence)
	return m, there, nil
}

func (c *conforming) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	if _, err := c.StreamState(ctx, stream); err != nil {
		return nil, err
	}
	found := map[string]events.Message{}
	for _, on := range subjects {
		m, there, err := c.Last(ctx, stream, on)
		if err != nil {
			return nil, err
		}
		if there {
			found[on] = m
		}
	}
	return found, nil
}

func (c *conforming) At(_ context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind, ofKind := subject.KindOfStream(stream); ofKind {
		s := c.sim.Kinds[kind]
		if sequence == 0 || sequence > s.End() {
			return events.Message{}, false, nil
		}
		return s.Read(sequence-1, sequence, 1)[0], true, nil
	}
	for name, book := range c.sim.Books {
		if stream == subject.TurnStream(name) {
			m, there := c.turn(book, sequence)
			return m, there, nil
		}
	}
	return events.Message{}, false, bus.ErrNoStream
}

// Follow reads a log in batches, or the wakes as they fire.
func (c *conforming) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	for at := max(from, 1) - 1; ctx.Err() == nil; sleep.For(ctx, time.Millisecond) {
		batch := c.batch(stream, at)
		if at += uint64(len(batch)); len(batch) > 0 {
			if err := handle(batch); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch reads the next messages behind a sequence.
func (c *conforming) batch(stream string, at uint64) (batch []events.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kind, ofKind := subject.KindOfStream(stream); ofKind {
		s := c.sim.Kinds[kind]
		return s.Read(at, s.End(), 100)
	}
	c.sim.Fire()
	for _, book := range c.sim.Books {
		for i, w := range book.Fired[min(at, uint64(len(book.Fired))):] {
			m := messageOf(w, stream, subject.Wake(w.Controller, w.Key), int(at)+i, time.Now())
			m.Header[events.HeaderTraceParent] = []string{w.Trace.Parent}
			batch = append(batch, m)
		}
	}
	return batch
}

// Work takes deliveries of the turns. The consumer of the first name is the one that the book has.
func (c *conforming) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	book, d := c.durable(w)
	for ; ctx.Err() == nil; sleep.For(ctx, time.Millisecond) {
		for _, next := range c.take(book, d) {
			handle(next)
		}
	}
	return nil
}

func (c *conforming) durable(w bus.Work) (*Book, *Durable) {
	c.mu.Lock()
	defer c.mu.Unlock()
	book := slices.Collect(maps.Values(c.sim.Books))[0]
	d := c.durables[w.Durable]
	if d == nil {
		if d = book.Work; len(c.durables) > 0 {
			d = c.sim.durable(d.Length)
		}
		if w.Since > 0 {
			d.next = uint64(d.Length())
		}
		c.durables[w.Durable] = d
	}
	c.sim.ackWait = cmp.Or(w.AckWait, 30*time.Second)
	return book, d
}

func (c *conforming) take(book *Book, d *Durable) (taken []bus.Delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range d.Ready(false) {
		p.Take()
		m, _ := c.turn(book, p.Sequence)
		taken = append(taken, delivered{bus: c, of: p, message: m, attempt: p.Attempts})
	}
	return taken
}

// delivered is a delivery as a worker gets it.
type delivered struct {
	bus     *conforming
	of      *Delivery
	message events.Message
	attempt int
}

func (d delivered) Message() events.Message { return d.message }
func (d delivered) Attempt() int            { return d.attempt }
func (d delivered) Ack()                    { d.answer(d.of.Ack) }
func (d delivered) Term(string)             { d.Ack() }
func (d delivered) InProgress()             { d.answer(d.of.InProgress) }

func (d delivered) NakWithDelay(delay time.Duration) {
	d.answer(func() { d.of.NakWithDelay(delay) })
}

func (d delivered) answer(how func()) {
	d.bus.mu.Lock()
	defer d.bus.mu.Unlock()
	how()
}
