package telemetry

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
)

// plain removes the environment variables that would decide.
func plain(t *testing.T) {
	t.Helper()
	for _, v := range append([]string{"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"},
		append(endpointVariables, protocolVariables...)...) {
		t.Setenv(v, "")
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tracing.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const ours = "apiVersion: millrace.io/v1alpha1\nkind: TracingConfiguration\n"

func TestWhereSpansGo(t *testing.T) {
	for name, test := range map[string]struct {
		o        Options
		file     string
		env      map[string]string
		on       bool
		endpoint string
		protocol string
		rate     int32
	}{
		"nothing":            {o: NewOptions()},
		"a flag":             {o: Options{endpoint: "a:1", rate: -1}, on: true, endpoint: "a:1", protocol: overGRPC, rate: -1},
		"the environment":    {o: NewOptions(), env: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://e:1", "OTEL_EXPORTER_OTLP_PROTOCOL": overHTTP}, on: true, protocol: overHTTP, rate: -1},
		"disabled":           {o: Options{endpoint: "a:1", rate: -1}, env: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		"no exporter":        {o: Options{endpoint: "a:1", rate: -1}, env: map[string]string{"OTEL_TRACES_EXPORTER": "none"}},
		"a file":             {o: NewOptions(), file: ours + "endpoint: f:1\nprotocol: http/protobuf\nsamplingRatePerMillion: 5\n", on: true, endpoint: "f:1", protocol: overHTTP, rate: 5},
		"a flag over a file": {o: Options{endpoint: "a:1", rate: 7}, file: ours + "endpoint: f:1\nsamplingRatePerMillion: 5\n", on: true, endpoint: "a:1", protocol: overGRPC, rate: 7},
		"upstream's file": {
			o: NewOptions(), file: "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n",
			on: true, endpoint: "localhost:4317", protocol: overGRPC, rate: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			plain(t)
			for k, v := range test.env {
				t.Setenv(k, v)
			}
			if test.file != "" {
				test.o.file = write(t, test.file)
			}
			s, on, err := test.o.settle()
			if err != nil || on != test.on {
				t.Fatalf("on %t, %v", on, err)
			}
			if on && (s.endpoint != test.endpoint || s.protocol != test.protocol || s.rate != test.rate) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestWhatCannotBeIsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		o    Options
		file string
		env  string
		says string
	}{
		"protocol":       {o: Options{endpoint: "a:1", protocol: "smoke", rate: -1}, says: `"smoke" is not grpc or http/protobuf`},
		"rate":           {o: Options{endpoint: "a:1", rate: 1_000_001}, says: "not between 0 and a million"},
		"no file":        {o: Options{file: "/nowhere", rate: -1}, says: "read --tracing-config-file"},
		"foreign file":   {o: NewOptions(), file: "apiVersion: v1\nkind: Pod\n", says: "want apiVersion: millrace.io/v1alpha1"},
		"unknown field":  {o: NewOptions(), file: ours + "colour: red\n", says: "colour"},
		"rule of all":    {o: NewOptions(), file: ours + "rules: [{sample: never}]\n", says: "rule 1: it names no kinds"},
		"unknown sample": {o: NewOptions(), file: ours + "rules: [{sample: perhaps, kinds: [pods]}]\n", says: `"perhaps"`},
		"selector":       {o: NewOptions(), file: ours + "rules: [{sample: never, selector: '=='}]\n", says: "selector"},
		"sampler":        {o: Options{endpoint: "a:1", rate: -1}, env: "dice", says: "$OTEL_TRACES_SAMPLER"},
	} {
		t.Run(name, func(t *testing.T) {
			plain(t)
			t.Setenv("OTEL_TRACES_SAMPLER", test.env)
			if test.file != "" {
				test.o.file = write(t, test.file)
			}
			if _, err := test.o.Start(t.Context(), "test"); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("it says %v, want %q", err, test.says)
			}
		})
	}
}

// TestRulesComeBeforeTheRate: the first matching rule decides. Heartbeats are traced only if a
// rule asks for it.
func TestRulesComeBeforeTheRate(t *testing.T) {
	plain(t)
	file := write(t, ours+`
samplingRatePerMillion: 0
rules:
- {sample: never, namespaces: [quiet]}
- {sample: always, kinds: [pods], selector: "traced in (yes)"}
- {sample: always, namespaces: [loud]}
`)
	s, _, err := Options{file: file, rate: -1}.settle()
	if err != nil {
		t.Fatal(err)
	}
	sampler, err := newSampler(s)
	if err != nil {
		t.Fatal(err)
	}
	tracer := trace.New(sdk.NewTracerProvider(sdk.WithSampler(sampler), sdk.WithIDGenerator(trace.IDs{})), trace.Options{})
	yes := map[string]string{"traced": "yes"}
	for _, test := range []struct {
		kind      kinds.Name
		namespace string
		labels    map[string]string
		sampled   bool
	}{
		{"pods", "any", nil, false}, {"pods", "any", yes, true}, {"pods", "quiet", yes, false},
		{"services", "any", yes, false}, {"services", "loud", nil, true}, {"events", "loud", nil, true}, {"events", "any", nil, false},
	} {
		d := events.Delta{
			Kind: test.kind, Ref: events.Ref{Kind: test.kind, Namespace: test.namespace, Name: "x"},
			Op: events.Is, UID: "u", ResourceVersion: "1",
		}
		if got := tracer.Delta(d, trace.Origin{Labels: test.labels}) != nil; got != test.sampled {
			t.Errorf("%s in %s with %v: sampled %t", test.kind, test.namespace, test.labels, got)
		}
	}
}

// exporter is an exporter that blocks, fails or counts.
type exporter struct {
	hold chan struct{}
	err  error
}

func (e *exporter) ExportSpans(ctx context.Context, _ []sdk.ReadOnlySpan) error {
	if e.hold != nil {
		select {
		case <-e.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return e.err
}

func (e *exporter) Shutdown(context.Context) error { return nil }

// TestACollectorThatHangsHoldsUpNothing: spans beyond the queue are dropped and counted,
// and the process stops in time.
func TestACollectorThatHangsHoldsUpNothing(t *testing.T) {
	held := &exporter{hold: make(chan struct{})}
	g := newGate(held)
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(g)).Tracer("test")
	const more = 1000
	for range maxQueued + more {
		_, span := tracer.Start(t.Context(), "x")
		span.End()
	}
	if got := testutil.ToFloat64(g.spans.WithLabelValues("dropped")); got != more {
		t.Errorf("%v dropped, want %d", got, more)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := g.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("shut down: %v", err)
	}
	close(held.hold)
}

// TestSpansAreCounted: spans are counted by their result, also those left at the end.
func TestSpansAreCounted(t *testing.T) {
	for result, err := range map[string]error{"exported": nil, "failed": errors.New("no")} {
		g := newGate(&exporter{err: err})
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(g)).Tracer("test")
		for range 3 {
			_, span := tracer.Start(t.Context(), "x")
			span.End()
		}
		_ = g.Shutdown(t.Context()) // it may say what the exporter says
		if got := testutil.ToFloat64(g.spans.WithLabelValues(result)); got != 3 {
			t.Errorf("%v %s, want 3", got, result)
		}
		if g.queued.Load() != 0 {
			t.Errorf("%d still count as waiting", g.queued.Load())
		}
	}
}

// TestOffIsNothing.
func TestOffIsNothing(t *testing.T) {
	plain(t)
	off, err := NewOptions().Start(t.Context(), "test")
	if off != nil || err != nil || off.Tracer("watcher") != nil {
		t.Errorf("%v, %v", off, err)
	}
}

// TestACollectorThatIsAwayIsNoError.
func TestACollectorThatIsAwayIsNoError(t *testing.T) {
	plain(t)
	for _, o := range []Options{
		{endpoint: "127.0.0.1:1", rate: -1}, {endpoint: "http://127.0.0.1:1", rate: 1},
		{endpoint: "127.0.0.1:1", protocol: overHTTP, rate: 1}, {endpoint: "https://127.0.0.1:1", protocol: overHTTP, rate: 1},
	} {
		on, err := o.Start(t.Context(), "test")
		if err != nil || on.Tracer("watcher") == nil {
			t.Fatalf("%+v: %v", o, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := on.Run(ctx); err != nil {
			t.Error(err)
		}
	}
}
