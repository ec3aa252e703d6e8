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
	// maxQueued bounds the spans that wait for the collector.
	maxQueued = 20_000
	// sendAfter is how long the first of them waits for others.
	sendAfter = time.Second
)

// gate is the way of all spans to the collector. It counts what becomes of them:
// the SDK's queue drops what it has no room for without a word, so the gate stays
// below that.
type gate struct {
	sdk.SpanProcessor
	queued atomic.Int64
	spans  *prometheus.CounterVec
	once   sync.Once
}

func newGate(exporter sdk.SpanExporter) *gate {
	g := &gate{spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "millrace_trace_spans_total",
		Help: "Spans by what became of them: exported, failed (the collector did not take them), or dropped (too many waited).",
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

// Shutdown may be called by every provider that shares the gate.
func (g *gate) Shutdown(ctx context.Context) (err error) {
	g.once.Do(func() { err = g.SpanProcessor.Shutdown(ctx) })
	return err
}

// counting counts what the exporter does.
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

// remarks says what the SDK has to say, which with a collector that is away is the
// same again and again, once a minute.
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
