package causes

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/translate"
)

const request = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// traced is a watch of pods that appends each change to its log, and does nothing else.
type traced struct {
	*Tracing
	bus      bus.Bus
	appender bus.Appender
	link     events.Link // to the last message
}

// traceable is a watch of pods with an open log.
func traceable(t *testing.T, b bus.Bus, r *tracetest.Recorder) *traced {
	t.Helper()
	return watchOf(t, b, NewWrites(r.Tracer("watcher", trace.Options{})))
}

func watchOf(t *testing.T, b bus.Bus, writes *Writes) *traced {
	t.Helper()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	tracing := NewTracing(writes, kinds.Pods.Name, make(chan struct{}, 1))
	return &traced{Tracing: &tracing, bus: b, appender: log}
}

// record is the Handle of the watch.
func (k *traced) record(ctx context.Context, event watch.Event) error {
	op := events.Is
	if event.Type == watch.Deleted {
		op = events.Gone
	}
	return k.append(ctx, op, event.Object)
}

func (k *traced) append(ctx context.Context, op events.Op, obj runtime.Object) error {
	o, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	d, err := translate.Object(kinds.Pods.Kind, op, obj, translate.Stamp{At: time.Now()})
	if err != nil {
		return err
	}
	span := k.Begin(&d, o)
	m := events.Seal(subject.Message(d))
	if err = k.appender.Append(ctx, m); err == nil {
		k.link = events.Link{Sequence: k.appender.Last(), Sum: m.Get(events.HeaderSum)}
	}
	k.Keep(span, d.UID, k.link, err)
	return err
}

// flush confirms what was appended.
func (k *traced) flush(ctx context.Context) error {
	if err := k.appender.Flush(ctx); err != nil {
		return err
	}
	k.Flushed()
	return nil
}
