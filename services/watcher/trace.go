package watcher

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

const (
	// grace is how long the change of an object waits while one of our writers has a write of that
	// object in flight. Most writers report the result within two milliseconds; only one that was
	// killed, or is cut off, never does.
	grace = time.Second
	// maxHeld bounds the changes that wait, most of them behind one that waits for its writer.
	maxHeld = 1024
	// settling bounds how long the end of a session may take to find out what was stored.
	settling = 2 * time.Second
)

// tracing is what a kind's watch does for traces. It belongs to the goroutine of the watch. causes
// is nil where there are no traces; then tracing does nothing.
//
// A change that one of our writers made continues the trace of the writer's request. The writer
// reports the request before it sends it and when the answer arrives, which is often after the
// watch has received the change. So the change of an object with a write in flight waits for that
// answer. Later changes wait behind it, because the log has the order of the watch. The time-out
// (grace) counts from the arrival of each change, so many changes are not delayed for longer than
// one.
type tracing struct {
	writes *recentWrites
	// wake rings when a writer has reported, when a change has waited for grace, or when there is
	// room for a version that waits (bound.go).
	wake     chan struct{}
	held     []held
	wakeTime time.Time                    // when wake is signalled for the first held change
	why      attribution                  // the attribution of the change that is released now
	versions generations[types.UID, seen] // of the newest delta, by object
	sending  []sending
}

// held is a change that waits for a writer, or behind such a change.
type held struct {
	event   watch.Event
	until   time.Time  // the end of its wait
	about   events.Ref // zero for an event about no object
	version version
	gone    bool
}

// sending is a delta on its way into the log. Its span ends when the delta is known to be stored: a
// delta that is not stored has not happened, and the watcher will record it again.
type sending struct {
	span *trace.Span
	of   types.UID
	link events.Link
	at   time.Time
}

func newTracing(c *recentWrites) tracing {
	return tracing{writes: c, wake: make(chan struct{}, 1), versions: generations[types.UID, seen]{limit: 1 << 14}}
}

// receiveEvent takes in an event, which goes on once its cause may be known.
func (k *kindWatch) receiveEvent(ctx context.Context, event watch.Event) error {
	if k.writes == nil {
		return k.handleEvent(ctx, event)
	}
	h := held{event: event, until: time.Now().Add(grace), gone: event.Type == watch.Deleted}
	if m, err := meta.Accessor(event.Object); err == nil {
		h.about = events.Ref{Kind: k.kind.Name, Namespace: m.GetNamespace(), Name: m.GetName()}
		h.version = version{m.GetUID(), m.GetResourceVersion()}
	}
	k.held = append(k.held, h)
	return k.releaseHeld(ctx, false)
}

// releaseHeld passes on the changes that no longer wait, or all of them at the end of a watch.
func (k *kindWatch) releaseHeld(ctx context.Context, all bool) error {
	for len(k.held) > 0 {
		h := k.held[0]
		switch k.why = unheard; {
		case all, len(k.held) >= maxHeld:
			k.why = hurried
		case k.stillWaits(h):
			return nil
		}
		k.held[0] = held{}
		if k.held = k.held[1:]; len(k.held) == 0 {
			k.held = nil
		}
		if err := k.handleEvent(ctx, h.event); err != nil {
			k.held = nil // the next session meets them again
			return err
		}
	}
	return nil
}

// stillWaits reports whether a change still waits, and sets wakeTime to the end of its wait.
func (k *kindWatch) stillWaits(h held) bool {
	if !k.writes.await(h.version, h.gone, h.about, k.wake) {
		return false
	}
	left := time.Until(h.until)
	if left <= 0 {
		k.writes.giveUp(h.about)
		k.why = waited
		return false
	}
	if !k.wakeTime.Equal(h.until) {
		k.wakeTime = h.until
		wake := k.wake
		time.AfterFunc(left, func() { signal(wake) })
	}
	return true
}

// signal sends a token that makes a watch look again, unless one is pending.
func signal(look chan<- struct{}) {
	select {
	case look <- struct{}{}:
	default:
	}
}

// beginSpan begins the span of a delta and gives the delta its context.
func (k *kindWatch) beginSpan(d *events.Delta, m metav1.Object) *trace.Span {
	if k.writes == nil || d.Sync {
		return nil
	}
	span := k.writes.tracer.Delta(*d, k.origin(*d, m))
	if d.Trace = span.Trace(); span != nil {
		k.versions.put(d.UID, seen{d.Trace, intentIn(m)})
	}
	return span
}

// keepSpan keeps a span whose delta was handed to the appender.
func (k *kindWatch) keepSpan(span *trace.Span, of types.UID, err error) {
	switch {
	case span == nil:
	case err != nil:
		k.versions.drop(of)
	default:
		k.sending = append(k.sending, sending{span: span, of: of, link: k.after, at: time.Now()})
	}
}

// endStoredSpans ends the spans of the deltas that are stored.
func (k *kindWatch) endStoredSpans(stored func(sending) bool) {
	for _, s := range k.sending {
		if stored(s) {
			s.span.Stored(s.link.Sequence)
			s.span.EndAt(s.at)
		} else {
			k.versions.drop(s.of) // a span that never ends can have no children
		}
	}
	clear(k.sending)
	k.sending = k.sending[:0]
}

// endLastSpans ends the spans of those of the session's last deltas that are stored.
func (k *kindWatch) endLastSpans(ctx context.Context) {
	k.held = nil
	if len(k.sending) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	flushed := k.appender.Flush(ctx) == nil
	k.endStoredSpans(func(s sending) bool {
		if flushed {
			return true
		}
		m, there, err := k.bus.At(ctx, subject.LogStream(k.kind.Name), s.link.Sequence)
		return err == nil && there && m.Get(events.HeaderSum) == s.link.Sum
	})
}

// stays says that every delta is stored.
func stays(sending) bool { return true }

// generations remembers the entries that were put last: at least half of limit, and at most limit.
type generations[K comparable, V any] struct {
	limit      int
	young, old map[K]V
}

func (g *generations[K, V]) put(key K, value V) {
	if g.young == nil {
		g.young = map[K]V{}
	}
	if g.young[key] = value; len(g.young) >= g.limit/2 {
		g.old, g.young = g.young, nil
	}
}

func (g *generations[K, V]) get(key K) (V, bool) {
	if v, ok := g.young[key]; ok {
		return v, true
	}
	v, ok := g.old[key]
	return v, ok
}

func (g *generations[K, V]) drop(key K) {
	delete(g.young, key)
	delete(g.old, key)
}
