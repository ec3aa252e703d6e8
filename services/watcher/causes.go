package watcher

import (
	"context"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
)

// vainly is how many changes in a row may have waited for a writer in vain before
// none waits any more, until one is heard: nobody is there who would tell.
const vainly = 50

// remembered is how many writes are: those of a minute, at a thousand in a second.
const remembered = 1 << 16

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
	// vain counts the births, and the other changes, that have waited in vain since:
	// what seems to be ours and is not, such as the binding of a Pod, which bears no
	// name of its own, must not keep births from waiting.
	vain map[bool]int
}

// newCauses are none where there are no traces.
func newCauses(t *trace.Tracer) *causes {
	if t == nil {
		return nil
	}
	return &causes{tracer: t, vain: map[bool]int{}, writes: generations[version, events.Trace]{limit: remembered}, given: generations[version, kinds.Name]{limit: remembered}, missed: prometheus.NewCounterVec(prometheus.CounterOpts{
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
	if v := (version{w.UID, w.Version}); w.Version != "" {
		c.writes.put(v, w.Trace)
		if kind, late := c.given.get(v); late {
			c.missed.WithLabelValues(string(kind)).Inc()
		}
	}
	if w.Ends {
		c.writes.put(version{uid: w.UID}, w.Trace)
	}
	c.heard = true
	clear(c.vain)
	for _, look := range c.waiting {
		knock(look)
	}
	c.waiting = nil
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

// await tells whether a write that is not known may still come. Then look is
// knocked at with the next one that does.
func (c *causes) await(v version, gone, birth bool, look chan struct{}) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.find(v, gone); known || c.vain[birth] >= vainly {
		return false
	}
	if !slices.Contains(c.waiting, look) {
		c.waiting = append(c.waiting, look)
	}
	return true
}

// despair counts a change that has waited in vain.
func (c *causes) despair(birth bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.vain[birth]++
}

// told tells whether writers do tell of their writes, so that one of which none
// has is a miss.
func (c *causes) told() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard
}
