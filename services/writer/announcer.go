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
	// announceAckTimeout is how long a write waits for the watchers. They answer within a fraction of a
	// millisecond, or some tens on an overloaded machine; only one that was killed or is cut off
	// never does.
	announceAckTimeout = 250 * time.Millisecond
	// maxUnsent bounds the answers that are kept until the bus is back.
	maxUnsent = 1024
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
	// ackTimeout bounds how long a write waits until the watchers know of it.
	ackTimeout time.Duration

	mu           sync.Mutex
	open         map[string]call // the writes in flight, by ID
	unheardKinds map[kinds.Name]bool
	unsent       []trace.Write // answers that the bus did not take
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
	return &announcer{bus: c.Bus, id: id, log: c.Log, ackTimeout: announceAckTimeout, open: map[string]call{}, unheardKinds: map[kinds.Name]bool{}}
}

// forTraces returns nil without traces.
func (c *announcer) forTraces() func(context.Context, trace.Write) {
	if c == nil {
		return nil
	}
	return c.announce
}

// announce announces the beginning or the end of a write. At the beginning it waits for a watcher.
func (c *announcer) announce(ctx context.Context, w trace.Write) {
	w.Writer = c.id
	if !w.Begins {
		c.announceEnd(w)
		return
	}
	heard, wait := c.announceBegin(w)
	if !c.send(w.Encode()) || !wait {
		return
	}
	timer := time.NewTimer(c.ackTimeout)
	defer timer.Stop()
	select {
	case <-heard:
	case <-ctx.Done():
	case <-timer.C:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.unheardKinds[w.About.Kind] = true
	}
}

func (c *announcer) announceBegin(w trace.Write) (heard <-chan struct{}, wait bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own := call{w.About.Kind, make(chan struct{})}
	c.open[w.ID] = own
	return own.heard, !c.unheardKinds[own.kind]
}

// announceEnd announces the answer to a write before it removes the write from the roll, since a roll
// without the write tells the watchers that it is over.
func (c *announcer) announceEnd(w trace.Write) {
	said := c.send(w.Encode())
	c.mu.Lock()
	defer c.mu.Unlock()
	if !said && len(c.unsent) < maxUnsent {
		c.unsent = append(c.unsent, w) // and in flight until then
		return
	}
	delete(c.open, w.ID)
}

func (c *announcer) send(word []byte) bool {
	err := c.bus.Broadcast(trace.Writes, word)
	if err != nil {
		c.log.Debug("cannot announce a write", "err", err)
	}
	return err == nil
}

// receive processes the answer of a watcher.
func (c *announcer) receive(id []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	own, ok := c.open[string(id)]
	if !ok {
		return
	}
	delete(c.unheardKinds, own.kind)
	select {
	case <-own.heard: // another watcher has answered before
	default:
		close(own.heard)
	}
}

// run receives the watchers' answers and sends the roll until the context ends.
func (c *announcer) run(ctx context.Context) {
	if c == nil {
		return
	}
	var hears sync.WaitGroup
	defer hears.Wait()
	hears.Go(func() {
		for ctx.Err() == nil {
			if err := c.bus.Listen(ctx, trace.HeardBy(c.id), c.receive); err != nil {
				c.log.Warn("cannot subscribe to the watchers' requests", "err", err)
				wait(ctx, trace.RollEvery)
			}
		}
	})
	for ctx.Err() == nil {
		c.sendInFlight()
		wait(ctx, trace.RollEvery)
	}
}

// sendInFlight sends the answers that the bus did not take before, then the roll of the writes in
// flight. It holds the lock so that none begins meanwhile: watchers take a write that is missing
// from the roll for one that is over.
func (c *announcer) sendInFlight() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.unsent) > 0 && c.send(c.unsent[0].Encode()) {
		delete(c.open, c.unsent[0].ID)
		c.unsent = c.unsent[1:]
	}
	open := slices.AppendSeq(make([]string, 0, len(c.open)), maps.Keys(c.open))
	slices.Sort(open)
	c.send(trace.Roll{Writer: c.id, Open: open}.Encode())
}
