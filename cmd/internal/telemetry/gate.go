package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"k8s.io/klog/v2"
)

const (
	// maxQueued bounds the queue of spans for the collector.
	maxQueued = 20_000
	// sendAfter is how long the first span of a batch waits for others.
	sendAfter = time.Second
)

// gate is the span processor of all tracers. It counts exported and dropped spans. The SDK's
// queue drops spans silently when it is full, so the gate drops them before that.
type gate struct {
	sdk.SpanProcessor
	queued atomic.Int64
	spans  *prometheus.CounterVec
	once   sync.Once
}

func newGate(exporter sdk.SpanExporter) *gate {
	g := &gate{spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_trace_spans_total",
		Help: "Spans by result: exported, failed (the collector refused them), or dropped (the queue was full).",
	}, []string{"result"})}
	for _, result := range []string{"exported", "failed", "dropped"} {
		g.spans.WithLabelValues(result)
	}
	g.SpanProcessor = sdk.NewBatchSpanProcessor(counting{exporter, g},
		sdk.WithMaxQueueSize(maxQueued+1), sdk.WithBatchTimeout(sendAfter))
	return g
}

func (g *gate) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if g.queued.Add(1) > maxQueued {
		g.queued.Add(-1)
		g.spans.WithLabelValues("dropped").Inc()
		return
	}
	g.SpanProcessor.OnEnd(s)
}

// Shutdown is idempotent, because every provider that shares the gate calls it.
func (g *gate) Shutdown(ctx context.Context) (err error) {
	g.once.Do(func() { err = g.SpanProcessor.Shutdown(ctx) })
	return err
}

// counting is an exporter that counts the spans that it exports or loses.
type counting struct {
	sdk.SpanExporter
	gate *gate
}

func (c counting) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	defer c.gate.queued.Add(-int64(len(spans)))
	err := c.SpanExporter.ExportSpans(ctx, spans)
	result := "exported"
	if err != nil {
		result = "failed"
	}
	c.gate.spans.WithLabelValues(result).Add(float64(len(spans)))
	return err
}

// remarks logs the SDK's errors at most once a minute, because an unreachable collector
// causes the same error again and again.
type remarks struct {
	log klog.Logger

	mu   sync.Mutex
	said time.Time
}

func newRemarks(log klog.Logger) *remarks { return &remarks{log: log} }

func (r *remarks) Handle(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.said) < time.Minute {
		return
	}
	r.said = time.Now()
	r.log.Error(err, "Spans get lost; nothing else does")
}
