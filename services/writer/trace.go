package writer

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/trace"
)

// traced begins the span of a turn, which the context carries to its requests.
func (x *executor) traced(ctx context.Context, d bus.Delivery, turn events.Turn) (context.Context, *trace.Span) {
	span := x.config.Trace.Carry(d.Message(), turn, d.Attempt())
	return trace.With(ctx, span), span
}

// became says what came of a turn.
func became(span *trace.Span, o events.Outcome) {
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
