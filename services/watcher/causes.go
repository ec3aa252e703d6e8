package watcher

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
	"github.com/millrace/millrace/pkg/events/trace"
)

// remembered bounds the remembered writes: a minute of them, at a thousand a second.
const remembered = 1 << 16

const (
	// mostWriters bounds the remembered writers, and mostFlights their writes in flight, because
	// every process that may publish on the topic can invent them. A watch does not wait for a
	// write that exceeds the bounds: its change begins a trace of its own.
	mostWriters = 64
	mostFlights = 16384
)

// quiet is how long a writer may be silent before its writes in flight count as ended: it was
// killed, or is cut off.
const quiet = 6 * trace.RollEvery

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

// causes holds what the writers have reported about their recent writes. It is safe for concurrent
// use.
type causes struct {
	tracer *trace.Tracer
	missed *prometheus.CounterVec

	mu      sync.Mutex
	writes  generations[version, events.Trace]
	given   generations[version, untracked] // versions recorded as another client's
	waiting []chan struct{}
	heard   bool                           // a writer has reported a write
	flights map[events.Ref]map[flight]bool // the writes in flight, by object
	flying  int                            // the number of writes in flight
	words   map[string]time.Time           // when a writer was last heard
}

// flight identifies a write in flight.
type flight struct{ writer, id string }

// untracked is the kind of a version that was recorded as another client's, and why it was.
type untracked struct {
	kind kinds.Name
	why  attribution
}

// newCauses returns nil without a tracer; traces are off then.
func newCauses(t *trace.Tracer) *causes {
	if t == nil {
		return nil
	}
	return &causes{
		tracer: t, flights: map[events.Ref]map[flight]bool{}, words: map[string]time.Time{},
		writes: generations[version, events.Trace]{limit: remembered}, given: generations[version, untracked]{limit: remembered},
		missed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "millrace_watcher_missed_causes_total",
			Help: "Changes of our own writers of which none had told in time; each has begun a trace of its own.",
		}, []string{"kind", "reason"}),
	}
}

// listen receives the writers' messages until the context ends. It acknowledges to a writer each
// write that begins on a kind that this watcher watches.
func (c *causes) listen(ctx context.Context, b bus.Peers, watched func(kinds.Name) bool) {
	for c != nil && ctx.Err() == nil {
		err := b.Listen(ctx, trace.Writes, func(data []byte) {
			w, ok := trace.DecodeWrite(data)
			if !ok {
				if r, ok := trace.DecodeRoll(data); ok {
					c.roll(r)
				}
				return
			}
			c.tell(w)
			if w.Begins && w.Writer != "" && watched(w.About.Kind) {
				_ = b.Say(trace.HeardBy(w.Writer), []byte(w.ID)) // if this fails, the writer waits until its time-out
			}
		})
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot hear what the writers write")
			c.deafen()
			pause(ctx, lookEvery)
		}
	}
}

// relist begins the span of a relist, which has no cause.
func (c *causes) relist(kind kinds.Name) *trace.Span {
	if c == nil {
		return nil
	}
	return c.tracer.Relist(kind)
}

func (c *causes) collectors() []prometheus.Collector {
	if c == nil {
		return nil
	}
	return []prometheus.Collector{c.missed}
}

// tell takes in a message about a write that begins or ends.
func (c *causes) tell(w trace.Write) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = true
	known := c.hears(w.Writer)
	if w.Begins {
		if !known || c.flying >= mostFlights {
			return
		}
		flights := c.flights[w.About]
		if flights == nil {
			flights = map[flight]bool{}
			c.flights[w.About] = flights
		}
		before := len(flights)
		flights[flight{w.Writer, w.ID}] = true
		c.flying += len(flights) - before
		return
	}
	began := c.end(w)
	if v := (version{w.UID, w.Version}); w.Version != "" {
		c.writes.put(v, w.Trace)
		c.regret(v, began)
	}
	if w.Ends {
		c.writes.put(version{uid: w.UID}, w.Trace)
	}
	c.news()
}

// regret counts a version of our writers that was recorded as another client's.
func (c *causes) regret(v version, began bool) {
	g, ok := c.given.get(v)
	if !ok {
		return
	}
	if g.why == unheard && began {
		g.why = late
	}
	c.missed.WithLabelValues(string(g.kind), string(g.why)).Inc()
}

// end removes a write in flight, and tells whether there was one.
func (c *causes) end(w trace.Write) (began bool) {
	flights, one := c.flights[w.About], flight{w.Writer, w.ID}
	if began = flights[one]; began {
		c.flying--
	}
	if delete(flights, one); len(flights) == 0 {
		delete(c.flights, w.About)
	}
	return began
}

// roll ends the writes in flight that a writer's roll does not name, because the message that they
// ended was lost. It also ends the writes of silent writers.
func (c *causes) roll(r trace.Roll) {
	open := make(map[string]bool, len(r.Open))
	for _, id := range r.Open {
		open[id] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hears(r.Writer) {
		return
	}
	c.forget(func(f flight) bool { return f.writer == r.Writer && !open[f.id] || c.silent(f.writer) })
	c.tidy()
}

// tidy forgets the silent writers.
func (c *causes) tidy() {
	maps.DeleteFunc(c.words, func(writer string, _ time.Time) bool { return c.silent(writer) })
}

// hears notes that a writer is alive, and tells whether there is room for it.
func (c *causes) hears(writer string) bool {
	if _, known := c.words[writer]; !known && len(c.words) >= mostWriters {
		if c.tidy(); len(c.words) >= mostWriters {
			return false
		}
	}
	c.words[writer] = time.Now()
	return true
}

// silent tells whether a writer has sent nothing for longer than quiet.
func (c *causes) silent(writer string) bool { return time.Since(c.words[writer]) > quiet }

// forget ends the writes in flight that which selects.
func (c *causes) forget(which func(flight) bool) {
	forgot := false
	for about, flights := range c.flights {
		before := len(flights)
		maps.DeleteFunc(flights, func(f flight, _ bool) bool { return which(f) })
		c.flying -= before - len(flights)
		forgot = forgot || len(flights) < before
		if len(flights) == 0 {
			delete(c.flights, about)
		}
	}
	if forgot {
		c.news()
	}
}

// news wakes the watches that wait for a write.
func (c *causes) news() {
	for _, look := range c.waiting {
		knock(look)
	}
	c.waiting = nil
}

// deafen ends all writes in flight when the topic cannot be heard, so that no change waits for a
// message that will not come.
func (c *causes) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.flights)
	c.flying = 0
	c.news()
}

// of returns the trace of the write that made a version; ours is false when no such write is known.
func (c *causes) of(v version, gone bool) (cause events.Trace, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(v, gone)
}

// foreign remembers a version that is recorded as another client's. Only a writer's later message
// proves that the version was ours: the object itself does not, since bindings and scaling leave no
// name there.
func (c *causes) foreign(v version, g untracked) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given.put(v, g)
}

func (c *causes) find(v version, gone bool) (cause events.Trace, ours bool) {
	if cause, ours = c.writes.get(v); !ours && gone {
		cause, ours = c.writes.get(version{uid: v.uid})
	}
	return cause, ours
}

// await tells whether a write in flight may make a version. If so, it sends a token to look when
// more is known.
func (c *causes) await(v version, gone bool, about events.Ref, look chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	awaited := false
	for f := range c.flights[about] {
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

// despair ends the writes in flight of an object: one change has waited for them without a result,
// and no other change is to wait for them.
func (c *causes) despair(about events.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying -= len(c.flights[about])
	delete(c.flights, about)
}

// told tells whether writers report their writes at all. Only then is a version without a report a
// miss.
func (c *causes) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
