package trace_test

import (
	"strconv"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// BenchmarkChange makes all spans of one change that leads to one write: those of the watcher,
// the reconcilers and the writer, and again of the watcher.
func BenchmarkChange(b *testing.B) {
	for _, mode := range []struct {
		name     string
		fraction float64
	}{{"off", 0}, {"1%", 0.01}, {"100%", 1}} {
		b.Run(mode.name, func(b *testing.B) {
			var tracer *trace.Tracer
			if mode.fraction > 0 {
				tracer = trace.New(tracetest.Background(tracetest.Ratio(mode.fraction)), trace.Options{})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				change(b, tracer, strconv.Itoa(i))
			}
		})
	}
}

func change(b *testing.B, tracer *trace.Tracer, version string) {
	d := delta("3b1a1f0e-7a52-4ad5-9d6a-0a3f6cf2f1d4", version)
	seen := tracer.Delta(d, trace.Origin{})
	cause := seen.Trace()
	seen.End()
	process := tracer.Process(trace.Question{
		Controller: "c", About: d.Ref, Parent: cause, Began: tracer.Now(cause),
		Triggers: []events.Trigger{{Stream: "EV_pods", Sequence: 7, Trace: cause}},
	})
	reconcile := tracer.Reconcile(process, "c", tracer.Now(cause))
	decided := turn(reconcile.Or(cause))
	reconcile.End()
	process.End()
	sent := tracer.Turn(decided)
	decided.Trace = sent.Or(decided.Trace)
	sent.End()
	carry := tracer.Carry(events.Message{Sequence: 7}, decided, 1)
	request := tracer.Request(trace.With(b.Context(), carry), trace.Request{Method: "PATCH", Template: "/x", Try: 1})
	request.Answered(200, "")
	request.End()
	carry.End()
	tracer.Delta(d, trace.Origin{Ours: true, Cause: request.Trace()}).End()
}
