// Package causes finds the cause of each change that a watch receives: the request of one of
// Millrace's writers, whose trace the change continues; the change that it reports on; or none, and
// then a trace begins. Writes holds what the writers report of their requests, for all kinds.
// Tracing is what the watch of one kind does.
//
// Docs: docs/adr/0014.
package causes

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/watcher/versions"
)

const (
	// grace is how long the change of an object waits while one of our writers has a write of that
	// object in flight. Most writers report the result within two milliseconds; only one that was
	// killed, or is cut off, never does.
	grace = time.Second
	// maxHeld bounds the changes that wait, most of them behind one that waits for its writer.
	maxHeld = 1024
	// settling bounds how long EndLast may take to find out what was stored.
	settling = 2 * time.Second
)

// Tracing is what a kind's watch does for traces. It belongs to the goroutine of the watch. Where
// there are no traces, as in the zero value, Tracing passes every change on and does nothing else.
//
// A change that one of our writers made continues the trace of the writer's request. The writer
// reports the request before it sends it and when the answer arrives, which is often after the
// watch has received the change. So the change of an object with a write in flight waits for that
// answer. Later changes wait behind it, because the log has the order of the watch. The time-out
// (grace) counts from the arrival of each change, so many changes are not delayed for longer than
// one.
type Tracing struct {
	writes *Writes // nil: there are no traces
	kind   kinds.Name
	// wake rings when a writer has reported, and when a change has waited for grace.
	wake     chan struct{}
	held     []held
	wakeTime time.Time                        // when wake is signalled for the first held change
	why      attribution                      // the attribution of the change that is released now
	versions versions.Recent[types.UID, seen] // of the newest delta, by object
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

// NewTracing returns what the watch of a kind does for traces. It sends a token to wake, unless one
// is pending, when the watch is to call Release.
func NewTracing(writes *Writes, kind kinds.Name, wake chan struct{}) Tracing {
	return Tracing{writes: writes, kind: kind, wake: wake, versions: versions.Recent[types.UID, seen]{Limit: 1 << 14}}
}

// Handle records a change.
type Handle func(ctx context.Context, event watch.Event) error

// Receive takes in an event, which is handled once its cause may be known.
func (t *Tracing) Receive(ctx context.Context, event watch.Event, handle Handle) error {
	if t.writes == nil {
		return handle(ctx, event)
	}
	h := held{event: event, until: time.Now().Add(grace), gone: event.Type == watch.Deleted}
	if m, err := meta.Accessor(event.Object); err == nil {
		h.about = events.Ref{Kind: t.kind, Namespace: m.GetNamespace(), Name: m.GetName()}
		h.version = version{m.GetUID(), m.GetResourceVersion()}
	}
	t.held = append(t.held, h)
	return t.Release(ctx, false, handle)
}

// Release hands over the changes that no longer wait, or all of them at the end of a watch.
func (t *Tracing) Release(ctx context.Context, all bool, handle Handle) error {
	for len(t.held) > 0 {
		h := t.held[0]
		switch t.why = unheard; {
		case all, len(t.held) >= maxHeld:
			t.why = hurried
		case t.stillWaits(h):
			return nil
		}
		t.held[0] = held{}
		if t.held = t.held[1:]; len(t.held) == 0 {
			t.held = nil
		}
		if err := handle(ctx, h.event); err != nil {
			t.held = nil // the next session meets them again
			return err
		}
	}
	return nil
}

// stillWaits reports whether a change still waits, and sets wakeTime to the end of its wait.
func (t *Tracing) stillWaits(h held) bool {
	if !t.writes.await(h.version, h.gone, h.about, t.wake) {
		return false
	}
	left := time.Until(h.until)
	if left <= 0 {
		t.writes.giveUp(h.about)
		t.why = waited
		return false
	}
	if !t.wakeTime.Equal(h.until) {
		t.wakeTime = h.until
		wake := t.wake
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

// Begin begins the span of a delta and gives the delta its context. It returns nil where the delta
// has no span: without traces, and for what a relist finds (Sync).
func (t *Tracing) Begin(d *events.Delta, m metav1.Object) *trace.Span {
	if t.writes == nil || d.Sync {
		return nil
	}
	span := t.writes.tracer.Delta(*d, t.origin(*d, m))
	if d.Trace = span.Trace(); span != nil {
		t.versions.Put(d.UID, seen{d.Trace, intentIn(m)})
	}
	return span
}

// Keep keeps the span of an object's delta that was handed to the appender, with the place that the
// delta has in the log. An error means that the delta was refused.
func (t *Tracing) Keep(span *trace.Span, of types.UID, link events.Link, err error) {
	switch {
	case span == nil:
	case err != nil:
		t.versions.Drop(of)
	default:
		t.sending = append(t.sending, sending{span: span, of: of, link: link, at: time.Now()})
	}
}

// Flushed ends the spans of all deltas: the log has confirmed them.
func (t *Tracing) Flushed() { t.endStored(func(sending) bool { return true }) }

// endStored ends the spans of the deltas that are stored.
func (t *Tracing) endStored(stored func(sending) bool) {
	for _, s := range t.sending {
		if stored(s) {
			s.span.Stored(s.link.Sequence)
			s.span.EndAt(s.at)
		} else {
			t.versions.Drop(s.of) // a span that never ends can have no children
		}
	}
	clear(t.sending)
	t.sending = t.sending[:0]
}

// EndLast ends the spans of those of a session's last deltas that are stored. It works for a moment
// although the context has ended.
func (t *Tracing) EndLast(ctx context.Context, b bus.Bus, appender bus.Appender) {
	t.held = nil
	if len(t.sending) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settling)
	defer cancel()
	flushed := appender.Flush(ctx) == nil
	t.endStored(func(s sending) bool {
		if flushed {
			return true
		}
		m, there, err := b.At(ctx, subject.LogStream(t.kind), s.link.Sequence)
		return err == nil && there && m.Get(events.HeaderSum) == s.link.Sum
	})
}
