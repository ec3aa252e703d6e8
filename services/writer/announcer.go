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
	// hearing is how long a write waits for the watchers. They answer within a fraction of a
	// millisecond, or some tens on an overloaded machine; only one that was killed or is cut off
	// never does.
	hearing = 250 * time.Millisecond
	// maxUnsaid bounds the answers that are kept until the bus is back.
	maxUnsaid = 1024
)

// announcer announces each write to the watchers, where there are traces: before it is sent, so
// that the watchers hold back the change until the answer, and with the answer, so that the change
// continues the trace of its request. It also announces writes that are not sampled, since the
// watchers would attribute their versions to another client.
//
// The watch can be faster than a message on the bus. So a write is sent only when a watcher of its
// kind has heard of it. If none answers (none watches the kind, or none has traces), only the
// first write of the kind waits; later ones do not until a watcher answers.
type announcer struct {
	bus bus.Peers
	id  string
	log *slog.Logger
	// hearing bounds how long a write waits until the watchers know of it.
	hearing time.Duration

	mu     sync.Mutex
	open   map[string]call // the writes in flight, by ID
	deaf   map[kinds.Name]bool
	unsaid []trace.Write // answers that the bus did not take
}

// call is a write in flight; heard is closed when a watcher knows of it.
type call struct {
	kind  kinds.Name
	heard chan struct{}
}

// newAnnouncer returns nil without traces.
func newAnnouncer(c Config, id string) *announcer {
	if c.Trace == nil {
		return nil
	}
	return &announcer{bus: c.Bus, id: id, log: c.Log, hearing: hearing, open: map[string]call{}, deaf: map[kinds.Name]bool{}}
}

// teller returns nil without traces.
func (c *announcer) teller() func(context.Context, trace.Write) {
	if c == nil {
		return nil
	}
	return c.tell
}

// tell announces the beginning or the end of a write. At the beginning it waits for a watcher.
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

// ended announces the answer to a write before it removes the write from the roll, since a roll
// without the write tells the watchers that it is over.
func (c *announcer) ended(w trace.Write) {
	said := c.say(w.Encode())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !said && len(c.unsaid) < maxUnsaid {
		c.unsaid = append(c.unsaid, w) // and in flight until then
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

// hear processes the answer of a watcher.
func (c *announcer) hear(id []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.open[string(id)]
	if !ok {
		return
	}
	delete(c.deaf, own.kind)
	select {
	case <-own.heard: // another watcher has answered before
	default:
		close(own.heard)
	}
}

// keep receives the watchers' answers and sends the roll until the context ends.
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

// callRoll sends the answers that the bus did not take before, then the roll of the writes in
// flight. It holds the lock so that none begins meanwhile: watchers take a write that is missing
// from the roll for one that is over.
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
