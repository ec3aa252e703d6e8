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

// remembered is how many writes are: those of a minute, at a thousand in a second.
const remembered = 1 << 16

const (
	// mostWriters bounds the writers that are remembered, and mostFlights their writes under
	// way. Every process that may publish on the topic can make them up. What there is no room
	// for is not waited for: the change that comes of it begins a trace of its own.
	mostWriters = 64
	mostFlights = 16384
)

// quiet is how long a writer may say nothing before its writes count as ended: it was
// killed, or is cut off.
const quiet = 6 * trace.RollEvery

// attribution is why a version of ours went on as another client's.
type attribution string

const (
	unheard attribution = "unheard" // no word of the write had come
	late    attribution = "late"    // that it is under way became known after the change
	waited  attribution = "waited"  // the answer did not become known within the grace
	hurried attribution = "hurried" // too many changes waited behind it, or the watch ended
)

// version is a version of an object; without a number it is whatever brings the
// object to its end.
type version struct {
	uid    types.UID
	number string
}

// causes are what the writers have told of their writes lately. It is safe for
// concurrent use.
type causes struct {
	tracer *trace.Tracer
	missed *prometheus.CounterVec

	mu      sync.Mutex
	writes  generations[version, events.Trace]
	given   generations[version, untracked] // what has gone on as another client's
	waiting []chan struct{}
	heard   bool                           // a writer has told of something
	flights map[events.Ref]map[flight]bool // the writes under way
	flying  int                            // how many these are
	words   map[string]time.Time           // when a writer was last heard
}

// flight is a write under way.
type flight struct{ writer, id string }

// untracked is what has gone on as another client's, and why.
type untracked struct {
	kind kinds.Name
	why  attribution
}

// newCauses are none where there are no traces.
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

// listen hears the writers until the context ends, and tells each that it has heard of
// a write of a kind that is watched here.
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
				_ = b.Say(trace.HeardBy(w.Writer), []byte(w.ID)) // or it waits for a moment
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

// tell takes in a write.
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

// regret counts a version of ours that has gone on as another client's.
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

// end takes a write for ended, and tells whether it was known to be under way.
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

// roll takes all writes of a writer for ended that it does not name, because the word
// of that was lost, and those of writers of whom nothing is heard any more.
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

// tidy forgets the writers of whom nothing is heard any more.
func (c *causes) tidy() {
	maps.DeleteFunc(c.words, func(writer string, _ time.Time) bool { return c.silent(writer) })
}

// hears takes note that a writer is there, and tells whether there is room for it.
func (c *causes) hears(writer string) bool {
	if _, known := c.words[writer]; !known && len(c.words) >= mostWriters {
		if c.tidy(); len(c.words) >= mostWriters {
			return false
		}
	}
	c.words[writer] = time.Now()
	return true
}

// silent tells whether nothing is heard of a writer.
func (c *causes) silent(writer string) bool { return time.Since(c.words[writer]) > quiet }

// forget takes writes for ended.
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

// news has the watches that wait look again.
func (c *causes) news() {
	for _, look := range c.waiting {
		knock(look)
	}
	c.waiting = nil
}

// deafen is for when nothing is heard any more: no change waits for a word that will not come.
func (c *causes) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.flights)
	c.flying = 0
	c.news()
}

// of is the write that a version came of; ours is false when none is known.
func (c *causes) of(v version, gone bool) (cause events.Trace, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(v, gone)
}

// foreign remembers a version that goes on as another client's. Only a writer that
// tells of it later proves that it was ours: what is written on the object does not,
// since bindings and scaling leave no name there.
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

// await tells whether a version may be what a write under way makes. Then look is
// knocked at when more is known.
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

// despair takes the writes of an object for ended: a change has waited for them
// without result, and no second one must.
func (c *causes) despair(about events.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.flying -= len(c.flights[about])
	delete(c.flights, about)
}

// told tells whether writers do tell of their writes, so that one of which none
// has is a miss.
func (c *causes) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
