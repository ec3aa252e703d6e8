package causes

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sleep"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/watcher/versions"
)

// maxRememberedWrites bounds the remembered writes: a minute of them, at a thousand a second.
const maxRememberedWrites = 1 << 16

const (
	// maxWriters bounds the remembered writers, and maxWritesInFlight their writes in flight, because
	// every process that may publish on the topic can invent them. A watch does not wait for a
	// write that exceeds the bounds: its change begins a trace of its own.
	maxWriters        = 64
	maxWritesInFlight = 16384
)

// listenAgain is the pause before the next attempt to subscribe to the writers' messages.
const listenAgain = time.Second

// writerTimeout is how long a writer may be silent before its writes in flight count as ended: it was
// killed, or is cut off.
const writerTimeout = 6 * trace.RollEvery

// attribution is why a version that our writer made was recorded as another client's.
type attribution string

const (
	unheard attribution = "unheard" // no message about the write had arrived
	late    attribution = "late"    // the message that it was in flight arrived after the change
	waited  attribution = "waited"  // the writer did not report the result within grace
	hurried attribution = "hurried" // too many changes waited behind it, or the watch ended
)

// version is a version of an object. An empty number stands for the version that ends the object.
type version struct {
	uid    types.UID
	number string
}

// Writes holds what the writers have reported about their recent writes. It is safe for concurrent
// use.
type Writes struct {
	tracer *trace.Tracer
	missed *prometheus.CounterVec

	mu            sync.Mutex
	writes        versions.Recent[version, events.Trace]
	untracked     versions.Recent[version, untracked] // versions recorded as another client's
	waiting       []chan struct{}
	heard         bool                           // a writer has reported a write
	inFlight      map[events.Ref]map[flight]bool // the writes in flight, by object
	inFlightCount int                            // the number of writes in flight
	lastHeard     map[string]time.Time           // when a writer was last heard
}

// flight identifies a write in flight.
type flight struct{ writer, id string }

// untracked is the kind of a version that was recorded as another client's, and why it was.
type untracked struct {
	kind kinds.Name
	why  attribution
}

// NewWrites returns nil without a tracer; traces are off then.
func NewWrites(t *trace.Tracer) *Writes {
	if t == nil {
		return nil
	}
	return &Writes{
		tracer: t, inFlight: map[events.Ref]map[flight]bool{}, lastHeard: map[string]time.Time{},
		writes: versions.Recent[version, events.Trace]{Limit: maxRememberedWrites}, untracked: versions.Recent[version, untracked]{Limit: maxRememberedWrites},
		missed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_missed_causes_total",
			Help: "Changes by Millrace's writers that were not announced in time. Each has begun a new trace.",
		}, []string{"kind", "reason"}),
	}
}

// Listen receives the writers' messages until the context ends. It acknowledges to a writer each
// write that begins on a kind that this watcher watches.
func (c *Writes) Listen(ctx context.Context, b bus.Peers, watched func(kinds.Name) bool) {
	for c != nil && ctx.Err() == nil {
		err := b.Listen(ctx, trace.Writes, func(data []byte) {
			w, ok := trace.DecodeWrite(data)
			if !ok {
				if r, ok := trace.DecodeRoll(data); ok {
					c.endUnlisted(r)
				}
				return
			}
			c.receive(w)
			if w.Begins && w.Writer != "" && watched(w.About.Kind) {
				_ = b.Broadcast(trace.HeardBy(w.Writer), []byte(w.ID)) // if this fails, the writer waits until its time-out
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot subscribe to the writers' announcements")
			c.endAllWrites()
			sleep.For(ctx, listenAgain)
		}
	}
}

// Relist begins the span of a relist, which has no cause.
func (c *Writes) Relist(kind kinds.Name) *trace.Span {
	if c == nil {
		return nil
	}
	return c.tracer.Relist(kind)
}

// Collectors returns the metrics of the writes; none without traces.
func (c *Writes) Collectors() []prometheus.Collector {
	if c == nil {
		return nil
	}
	return []prometheus.Collector{c.missed}
}

// receive takes in a message about a write that begins or ends.
func (c *Writes) receive(w trace.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	known := c.noteWriter(w.Writer)
	if w.Begins {
		if !known || c.inFlightCount >= maxWritesInFlight {
			return
		}
		flights := c.inFlight[w.About]
		if flights == nil {
			flights = map[flight]bool{}
			c.inFlight[w.About] = flights
		}
		before := len(flights)
		flights[flight{w.Writer, w.ID}] = true
		c.inFlightCount += len(flights) - before
		return
	}
	began := c.end(w)
	if v := (version{w.UID, w.Version}); w.Version != "" {
		c.writes.Put(v, w.Trace)
		c.countMissed(v, began)
	}
	if w.Ends {
		c.writes.Put(version{uid: w.UID}, w.Trace)
	}
	c.wakeWaiting()
}

// countMissed counts a version of our writers that was recorded as another client's.
func (c *Writes) countMissed(v version, began bool) {
	g, ok := c.untracked.Get(v)
	if !ok {
		return
	}
	if g.why == unheard && began {
		g.why = late
	}
	c.missed.WithLabelValues(string(g.kind), string(g.why)).Inc()
}

// end removes a write in flight, and reports whether there was one.
func (c *Writes) end(w trace.Write) (began bool) {
	flights, one := c.inFlight[w.About], flight{w.Writer, w.ID}
	if began = flights[one]; began {
		c.inFlightCount--
	}
	if delete(flights, one); len(flights) == 0 {
		delete(c.inFlight, w.About)
	}
	return began
}

// endUnlisted ends the writes in flight that a writer's roll does not name, because the message that they
// ended was lost. It also ends the writes of silent writers.
func (c *Writes) endUnlisted(r trace.Roll) {
	open := make(map[string]bool, len(r.Open))
	for _, id := range r.Open {
		open[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.noteWriter(r.Writer) {
		return
	}
	c.forget(func(f flight) bool { return f.writer == r.Writer && !open[f.id] || c.silent(f.writer) })
	c.forgetSilentWriters()
}

// forgetSilentWriters forgets the silent writers.
func (c *Writes) forgetSilentWriters() {
	maps.DeleteFunc(c.lastHeard, func(writer string, _ time.Time) bool { return c.silent(writer) })
}

// noteWriter notes that a writer is alive, and reports whether there is room for it.
func (c *Writes) noteWriter(writer string) bool {
	if _, known := c.lastHeard[writer]; !known && len(c.lastHeard) >= maxWriters {
		if c.forgetSilentWriters(); len(c.lastHeard) >= maxWriters {
			return false
		}
	}
	c.lastHeard[writer] = time.Now()
	return true
}

// silent reports whether a writer has sent nothing for longer than quiet.
func (c *Writes) silent(writer string) bool {
	return time.Since(c.lastHeard[writer]) > writerTimeout
}

// forget ends the writes in flight that which selects.
func (c *Writes) forget(which func(flight) bool) {
	forgot := false
	for about, flights := range c.inFlight {
		before := len(flights)
		maps.DeleteFunc(flights, func(f flight, _ bool) bool { return which(f) })
		c.inFlightCount -= before - len(flights)
		forgot = forgot || len(flights) < before
		if len(flights) == 0 {
			delete(c.inFlight, about)
		}
	}
	if forgot {
		c.wakeWaiting()
	}
}

// wakeWaiting wakes the watches that wait for a write.
func (c *Writes) wakeWaiting() {
	for _, look := range c.waiting {
		signal(look)
	}
	c.waiting = nil
}

// endAllWrites ends all writes in flight when the topic cannot be heard, so that no change waits for a
// message that will not come.
func (c *Writes) endAllWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.inFlight)
	c.inFlightCount = 0
	c.wakeWaiting()
}

// InFlight is how many writes of an object are in flight, as far as their writers have reported.
func (c *Writes) InFlight(about events.Ref) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.inFlight[about])
}

// TraceOf returns the trace of the write that made a version of an object; ours is false when no
// such write is known.
func (c *Writes) TraceOf(uid types.UID, number string) (cause events.Trace, ours bool) {
	return c.traceOf(version{uid, number}, false)
}

// traceOf is TraceOf; gone asks also for the write that ended the object.
func (c *Writes) traceOf(v version, gone bool) (cause events.Trace, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(v, gone)
}

// recordUntracked remembers a version that is recorded as another client's. Only a writer's later message
// proves that the version was ours: the object itself does not, since bindings and scaling leave no
// name there.
func (c *Writes) recordUntracked(v version, g untracked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.untracked.Put(v, g)
}

func (c *Writes) find(v version, gone bool) (cause events.Trace, ours bool) {
	if cause, ours = c.writes.Get(v); !ours && gone {
		cause, ours = c.writes.Get(version{uid: v.uid})
	}
	return cause, ours
}

// await reports whether a write in flight may make a version. If so, it sends a token to look when
// more is known.
func (c *Writes) await(v version, gone bool, about events.Ref, look chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	awaited := false
	for f := range c.inFlight[about] {
		awaited = awaited || !c.silent(f.writer)
	}
	if !awaited {
		return false
	}
	if _, known := c.find(v, gone); known {
		return false
	}
	if !slices.Contains(c.waiting, look) {
		c.waiting = append(c.waiting, look)
	}
	return true
}

// giveUp ends the writes in flight of an object: one change has waited for them without a result,
// and no other change is to wait for them.
func (c *Writes) giveUp(about events.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlightCount -= len(c.inFlight[about])
	delete(c.inFlight, about)
}

// Heard reports whether writers report their writes at all. Only then is a version without a report a
// miss.
func (c *Writes) Heard() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
