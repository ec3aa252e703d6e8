package writer

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
)

const (
	// hearing is how long a write waits for the watchers. They know within a fraction of
	// a millisecond, and on a machine with far too much to do within some tens; only one
	// that was killed, or is cut off, never does.
	hearing = 250 * time.Millisecond
	// maxUnsaid bounds what is kept for when the bus is back.
	maxUnsaid = 1024
)

// announcer tells the watchers of each write, where there are traces: before it is sent,
// so that the change that comes of it waits for its answer, and when it is answered, so
// that it goes on in the trace of its request. Also of writes that are not sampled,
// since the watchers would take their versions for another client's.
//
// The watch can be faster than a word on the bus. So a write is sent only when a watcher
// of its kind has heard of it. Where none answers, as where no watcher watches the kind or
// has traces, only the first write waits: none does from then on until a watcher answers.
type announcer struct {
	bus bus.Peers
	id  string
	log *slog.Logger
	// hearing bounds how long a write waits until the watchers know of it.
	hearing time.Duration

	mu     sync.Mutex
	open   map[string]call // the writes under way, by ID
	deaf   map[kinds.Name]bool
	unsaid []trace.Write // answers that the bus did not take
}

// call is a write under way: heard is closed when a watcher knows of it.
type call struct {
	kind  kinds.Name
	heard chan struct{}
}

// newAnnouncer is none where there are no traces.
func newAnnouncer(c Config, id string) *announcer {
	if c.Trace == nil {
		return nil
	}
	return &announcer{bus: c.Bus, id: id, log: c.Log, hearing: hearing, open: map[string]call{}, deaf: map[kinds.Name]bool{}}
}

// teller is nil where there are no traces.
func (c *announcer) teller() func(context.Context, trace.Write) {
	if c == nil {
		return nil
	}
	return c.tell
}

// tell tells of a write, and waits for its being heard before it begins.
func (c *announcer) tell(ctx context.Context, w trace.Write) {
	w.Writer = c.id
	if !w.Begins {
		c.ended(w)
		return
	}
	heard, wait := c.begins(w)
	if !c.say(w.Encode()) || !wait {
		return
	}
	timer := time.NewTimer(c.hearing)
	defer timer.Stop()
	select {
	case <-heard:
	case <-ctx.Done():
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deaf[w.About.Kind] = true
	}
}

func (c *announcer) begins(w trace.Write) (heard <-chan struct{}, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := call{w.About.Kind, make(chan struct{})}
	c.open[w.ID] = own
	return own.heard, !c.deaf[own.kind]
}

// ended tells of the answer to a write, and only then takes it from the roll: or that
// would say earlier that it is over.
func (c *announcer) ended(w trace.Write) {
	said := c.say(w.Encode())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !said && len(c.unsaid) < maxUnsaid {
		c.unsaid = append(c.unsaid, w) // and under way until then
		return
	}
	delete(c.open, w.ID)
}

func (c *announcer) say(word []byte) bool {
	err := c.bus.Say(trace.Writes, word)
	if err != nil {
		c.log.Debug("cannot tell of a write", "err", err)
	}
	return err == nil
}

// hear takes in the answer of a watcher.
func (c *announcer) hear(id []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.open[string(id)]
	if !ok {
		return
	}
	delete(c.deaf, own.kind)
	select {
	case <-own.heard: // by another watcher
	default:
		close(own.heard)
	}
}

// keep hears the watchers and calls the roll until the context ends.
func (c *announcer) keep(ctx context.Context) {
	if c == nil {
		return
	}
	var hears sync.WaitGroup
	defer hears.Wait()
	hears.Go(func() {
		for ctx.Err() == nil {
			if err := c.bus.Listen(ctx, trace.HeardBy(c.id), c.hear); err != nil {
				c.log.Warn("cannot hear the watchers", "err", err)
				wait(ctx, trace.RollEvery)
			}
		}
	})
	for ctx.Err() == nil {
		c.callRoll()
		wait(ctx, trace.RollEvery)
	}
}

// callRoll says what is under way, after what could not be said before. Nothing begins
// meanwhile, or the roll would be heard to say that it is over.
func (c *announcer) callRoll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unsaid) > 0 && c.say(c.unsaid[0].Encode()) {
		delete(c.open, c.unsaid[0].ID)
		c.unsaid = c.unsaid[1:]
	}
	open := slices.AppendSeq(make([]string, 0, len(c.open)), maps.Keys(c.open))
	slices.Sort(open)
	c.say(trace.Roll{Writer: c.id, Open: open}.Encode())
}
