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

// lifetime is how long a write counts as under way whose writer says no more: longer
// than any request of one takes.
const lifetime = 30 * time.Second

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
	given   generations[version, kinds.Name] // what has gone on as somebody else's
	waiting []chan struct{}
	heard   bool // a writer has told of something
	// flights are the writes under way, by object and request, and since when.
	flights map[events.Ref]map[string]time.Time
	swept   time.Time // when those were last dropped that nobody ended
}

// newCauses are none where there are no traces.
func newCauses(t *trace.Tracer) *causes {
	if t == nil {
		return nil
	}
	return &causes{tracer: t, flights: map[events.Ref]map[string]time.Time{}, writes: generations[version, events.Trace]{limit: remembered}, given: generations[version, kinds.Name]{limit: remembered}, missed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_watcher_missed_causes_total",
		Help: "Changes of our own writers of which none had told in time; each has begun a trace of its own.",
	}, []string{"kind"})}
}

// listen hears the writers until the context ends.
func (c *causes) listen(ctx context.Context, b bus.Peers) {
	for c != nil && ctx.Err() == nil {
		err := b.Listen(ctx, trace.Writes, func(data []byte) {
			if w, ok := trace.DecodeWrite(data); ok {
				c.tell(w)
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
	if w.Begins {
		c.begin(w)
		return
	}
	c.end(w)
	if v := (version{w.UID, w.Version}); w.Version != "" {
		c.writes.put(v, w.Trace)
		if kind, late := c.given.get(v); late {
			c.missed.WithLabelValues(string(kind)).Inc()
		}
	}
	if w.Ends {
		c.writes.put(version{uid: w.UID}, w.Trace)
	}
	c.news()
}

// begin notes a write under way. A writer that was killed meanwhile never ends it.
func (c *causes) begin(w trace.Write) {
	now := time.Now()
	if now.Sub(c.swept) > lifetime {
		for about, flights := range c.flights {
			maps.DeleteFunc(flights, func(_ string, since time.Time) bool { return now.Sub(since) > lifetime })
			if len(flights) == 0 {
				delete(c.flights, about)
			}
		}
		c.swept = now
	}
	flights := c.flights[w.About]
	if flights == nil {
		flights = map[string]time.Time{}
		c.flights[w.About] = flights
	}
	flights[w.ID] = now
}

func (c *causes) end(w trace.Write) {
	if flights := c.flights[w.About]; flights != nil {
		if delete(flights, w.ID); len(flights) == 0 {
			delete(c.flights, w.About)
		}
	}
}

// news has whoever waits look again.
func (c *causes) news() {
	for _, look := range c.waiting {
		knock(look)
	}
	c.waiting = nil
}

// deafen is for when nothing is heard any more: nobody waits for what will not be.
func (c *causes) deafen() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.flights)
	c.news()
}

// of is the write that a version came of; ours is false when none is known.
func (c *causes) of(v version, gone bool) (cause events.Trace, ours bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.find(v, gone)
}

// foreign remembers a version that goes on as somebody else's. Only a writer that
// tells of it later proves that it was ours: what is written on the object does not,
// since bindings and scaling leave no name there.
func (c *causes) foreign(v version, kind kinds.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given.put(v, kind)
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
	if len(c.flights[about]) == 0 {
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

// despair takes the writes of an object for ended: a change has waited for them in
// vain, and no second one must.
func (c *causes) despair(about events.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flights, about)
}

// told tells whether writers do tell of their writes, so that one of which none
// has is a miss.
func (c *causes) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
