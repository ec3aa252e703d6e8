package telemetry

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/trace"
)

// flush bounds the export of the last spans when the process stops.
const flush = 3 * time.Second

// Telemetry exports the spans of a process; nil exports none.
type Telemetry struct {
	settings settings
	version  string
	instance string
	sampler  sdk.Sampler
	gate     *gate
}

// Start prepares the export of spans; nil if no collector is configured. It sends nothing
// before the first span, and an unreachable collector is no error.
//
// Errors: flags, file or environment are contradictory or cannot be read.
func (o Options) Start(ctx context.Context, version string) (*Telemetry, error) {
	s, on, err := o.settle()
	if err != nil || !on {
		return nil, err
	}
	sampler, err := newSampler(s)
	if err != nil {
		return nil, err
	}
	exporter, err := s.exporter(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the way to the trace collector: %w", err)
	}
	log := klog.FromContext(ctx)
	otel.SetErrorHandler(newRemarks(log))
	log.Info("Tracing", "protocol", s.protocol, "sampler", sampler.Description())
	return &Telemetry{settings: s, version: version, instance: rand.Text(), sampler: sampler, gate: newGate(exporter)}, nil
}

// exporter is the OTLP exporter. It takes settings that are not given from the
// environment.
func (s settings) exporter(ctx context.Context) (sdk.SpanExporter, error) {
	if s.protocol == overHTTP {
		var options []otlptracehttp.Option
		switch {
		case strings.Contains(s.endpoint, "://"):
			options = append(options, otlptracehttp.WithEndpointURL(s.endpoint))
		case s.endpoint != "":
			options = append(options, otlptracehttp.WithEndpoint(s.endpoint), otlptracehttp.WithInsecure())
		}
		return otlptracehttp.New(ctx, options...)
	}
	var options []otlptracegrpc.Option
	switch {
	case strings.Contains(s.endpoint, "://"):
		options = append(options, otlptracegrpc.WithEndpointURL(s.endpoint))
	case s.endpoint != "":
		options = append(options, otlptracegrpc.WithEndpoint(s.endpoint), otlptracegrpc.WithInsecure())
	}
	return otlptracegrpc.New(ctx, options...)
}

// Tracer is the tracer of a service of this process. The service name of its spans is
// "millrace-<service>" unless $OTEL_SERVICE_NAME is set.
func (t *Telemetry) Tracer(service string) *trace.Tracer {
	if t == nil {
		return nil
	}
	about, err := resource.New(context.Background(), resource.WithAttributes(
		semconv.ServiceName("millrace-"+service), semconv.ServiceVersion(t.version), semconv.ServiceInstanceID(t.instance),
	), resource.WithFromEnv())
	if err != nil {
		otel.Handle(fmt.Errorf("read $OTEL_RESOURCE_ATTRIBUTES: %w", err)) // the valid attributes are used
	}
	return trace.New(sdk.NewTracerProvider(
		sdk.WithSpanProcessor(t.gate), sdk.WithIDGenerator(trace.IDs{}), sdk.WithSampler(t.sampler), sdk.WithResource(about),
	), trace.Options{Cluster: t.settings.cluster})
}

// Run waits until the context ends, and then exports the remaining spans within flush.
func (t *Telemetry) Run(ctx context.Context) error {
	<-ctx.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flush)
	defer cancel()
	if err := t.gate.Shutdown(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Spans were left when the process stopped")
	}
	return nil
}

// Collectors are the metrics of the export.
func (t *Telemetry) Collectors() []prometheus.Collector { return []prometheus.Collector{t.gate.spans} }
