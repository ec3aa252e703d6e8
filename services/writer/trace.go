package writer

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/trace"
)

// traced starts the span of a turn; the context carries it to the turn's requests.
func (x *executor) traced(ctx context.Context, d bus.Delivery, turn events.Turn) (context.Context, *trace.Span) {
	span := x.config.Trace.Carry(d.Message(), turn, d.Attempt())
	return trace.With(ctx, span), span
}

// recordOutcome records the outcome of a turn in its span.
func recordOutcome(span *trace.Span, o events.Outcome) {
	if span == nil {
		return
	}
	if failure, failed := o.Failure(); failed {
		span.Set(trace.Outcome.String(string(failure.Status)))
		span.Fail(failure.Reason)
		return
	}
	span.Set(trace.Outcome.String(string(events.Applied)))
}
