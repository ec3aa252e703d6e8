package writer

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// everyTurn is the level at which the writer logs every turn: -v=3.
const everyTurn = slog.Level(-3)

// log returns the logger of a turn; its lines have what identifies the turn and its trace.
func (x *executor) log(m events.Message) *slog.Logger {
	log := x.config.Log.With("controller", x.profile.Name)
	if _, lane, key, err := subject.ParseTurn(m.Subject); err == nil {
		log = log.With("key", key.String(), "lane", lane.String())
	}
	return log.With("stream", m.Stream, "sequence", m.Sequence, "traceID", trace.Context(events.TraceOf(m.Header)).TraceID().String())
}

// failureOf returns the first result of a turn that did not succeed. An ask whose object is gone
// has succeeded: that is its answer.
func failureOf(turn events.Turn, results []events.Result) (events.Result, bool) {
	told := func(r events.Result) bool {
		return r.Status == events.Absent && verbAt(turn, r.Command) == events.VerbAsk
	}
	return events.Outcome{Results: slices.DeleteFunc(slices.Clone(results), told)}.Failure()
}

// logResult logs the result of a turn: every turn at the level everyTurn, and always a failure,
// unless the turn was only stale. It logs a repeated failure once a minute, with a count.
func (x *executor) logResult(m events.Message, turn events.Turn, results []events.Result) {
	failure, failed := failureOf(turn, results)
	late := failure.Status == events.Conflict || failure.Reason == "Stale"
	of := turnSource{x.profile.Name, turn.Key, turn.Lane}
	if !failed {
		x.failing.forget(of)
	}
	if failed && !late {
		verb := verbAt(turn, failure.Command)
		why := cause{verb, string(failure.Ref.Kind), failure.Status, failure.Code, failure.Reason}
		if times, since, say := x.failing.count(of, why, x.config.Clock.Now()); say {
			log := x.log(m).With("because", turn.Because, "verb", string(verb), "object", failure.Ref.String(),
				"status", string(failure.Status), "code", failure.Code, "reason", failure.Reason, "err", failure.Message)
			if times > 1 {
				log = log.With("times", times, "since", since.Format(time.RFC3339))
			}
			again := events.Backoff(turn.Attempt, events.FirstBackoff, events.LongestBackoff)
			if failure.Held() {
				again = events.HeldBackoff(again)
			}
			log.Warn("a turn did not succeed", "attempt", turn.Attempt, "againIn", again.String())
			return
		}
	}
	if x.config.Log.Enabled(context.Background(), everyTurn) {
		x.log(m).Log(context.Background(), everyTurn, "carried out a turn", "because", turn.Because, "commands", len(turn.Commands), "late", late, "failed", failed)
	}
}

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
