// Package announce tells the watchers of each write before it is sent, so that they can continue the
// trace of a request with the change that it causes ([Announcer]).
//
//	Func(begin) ──trace.Writes──► watchers ──trace.HeardBy(id)──► Func returns: the write may be sent
//	Func(end)   ──trace.Writes──► watchers
//	Run         ──trace.Writes──► the roll of the writes in flight, at intervals
//
// Goroutines: [Announcer.Run] runs until its context ends, and one more listens for the watchers.
package announce

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/trace"
)

const (
	// ackTimeout is how long a write waits for the watchers. They answer within a fraction of a
	// millisecond, or some tens on an overloaded machine; only one that was killed or is cut off
	// never does.
	ackTimeout = 250 * time.Millisecond
	// maxUnsent bounds the answers that are kept until the bus is back.
	maxUnsent = 1024
)

// Announcer announces each write to the watchers, where there are traces: before it is sent, so
// that the watchers hold back the change until the answer, and with the answer, so that the change
// continues the trace of its request. It also announces writes that are not sampled, since the
// watchers would attribute their versions to another client.
//
// The watch can be faster than a message on the bus. So a write is sent only when a watcher of its
// kind has heard of it. If none answers (none watches the kind, or none has traces), only the
// first write of the kind waits; later ones do not until a watcher answers.
type Announcer struct {
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

// Config is what an announcer needs.
type Config struct {
	// Bus is where the watchers are.
	Bus bus.Peers
	// ID names this writer to the watchers.
	ID string
	// Trace is the writer's tracer; nil means that it makes no traces, and announces nothing.
	Trace *trace.Tracer
	// Log is the logger.
	Log *slog.Logger
}

// New makes an announcer. It returns nil without traces; a nil announcer does nothing.
func New(c Config) *Announcer {
	if c.Trace == nil {
		return nil
	}
	return &Announcer{bus: c.Bus, id: c.ID, log: c.Log, ackTimeout: ackTimeout, open: map[string]call{}, unheardKinds: map[kinds.Name]bool{}}
}

// Func returns the function that announces the beginning or the end of a write. At the beginning it
// waits for a watcher. It is nil without traces.
func (a *Announcer) Func() func(context.Context, trace.Write) {
	if a == nil {
		return nil
	}
	return a.announce
}

// announce announces the beginning or the end of a write. At the beginning it waits for a watcher.
func (a *Announcer) announce(ctx context.Context, w trace.Write) {
	w.Writer = a.id
	if !w.Begins {
		a.announceEnd(w)
		return
	}
	heard, wait := a.announceBegin(w)
	if !a.send(w.Encode()) || !wait {
		return
	}
	timer := time.NewTimer(a.ackTimeout)
	defer timer.Stop()
	select {
	case <-heard:
	case <-ctx.Done():
	case <-timer.C:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.unheardKinds[w.About.Kind] = true
	}
}

func (a *Announcer) announceBegin(w trace.Write) (heard <-chan struct{}, wait bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own := call{w.About.Kind, make(chan struct{})}
	a.open[w.ID] = own
	return own.heard, !a.unheardKinds[own.kind]
}

// announceEnd announces the answer to a write before it removes the write from the roll, since a roll
// without the write tells the watchers that it is over.
func (a *Announcer) announceEnd(w trace.Write) {
	said := a.send(w.Encode())
	a.mu.Lock()
	defer a.mu.Unlock()
	if !said && len(a.unsent) < maxUnsent {
		a.unsent = append(a.unsent, w) // and in flight until then
		return
	}
	delete(a.open, w.ID)
}

func (a *Announcer) send(word []byte) bool {
	err := a.bus.Broadcast(trace.Writes, word)
	if err != nil {
		a.log.Debug("cannot announce a write", "err", err)
	}
	return err == nil
}

// receive processes the answer of a watcher.
func (a *Announcer) receive(id []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	own, ok := a.open[string(id)]
	if !ok {
		return
	}
	delete(a.unheardKinds, own.kind)
	select {
	case <-own.heard: // another watcher has answered before
	default:
		close(own.heard)
	}
}

// Run receives the watchers' answers and sends the roll until the context ends.
func (a *Announcer) Run(ctx context.Context) {
	if a == nil {
		return
	}
	var hears sync.WaitGroup
	defer hears.Wait()
	hears.Go(func() {
		for ctx.Err() == nil {
			if err := a.bus.Listen(ctx, trace.HeardBy(a.id), a.receive); err != nil {
				a.log.Warn("cannot subscribe to the watchers' requests", "err", err)
				sleep.For(ctx, trace.RollEvery)
			}
		}
	})
	for ctx.Err() == nil {
		a.sendInFlight()
		sleep.For(ctx, trace.RollEvery)
	}
}

// sendInFlight sends the answers that the bus did not take before, then the roll of the writes in
// flight. It holds the lock so that none begins meanwhile: watchers take a write that is missing
// from the roll for one that is over.
func (a *Announcer) sendInFlight() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.unsent) > 0 && a.send(a.unsent[0].Encode()) {
		delete(a.open, a.unsent[0].ID)
		a.unsent = a.unsent[1:]
	}
	open := slices.AppendSeq(make([]string, 0, len(a.open)), maps.Keys(a.open))
	slices.Sort(open)
	a.send(trace.Roll{Writer: a.id, Open: open}.Encode())
}
