package writer

import (
	"context"
	"log/slog"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
)

// everyTurn is the level at which each turn has its line: -v=3.
const everyTurn = slog.Level(-3)

// log is the logger of a turn, whose lines bear what leads to it and to its trace.
func (t *taker) log(m events.Message) *slog.Logger {
	log := t.config.Log.With("controller", t.profile.Name)
	if _, lane, key, err := subject.ParseTurn(m.Subject); err == nil {
		log = log.With("key", key.String(), "lane", string(lane))
	}
	return log.With("stream", m.Stream, "sequence", m.Sequence, "traceID", trace.Context(events.TraceOf(m.Header)).TraceID().String())
}

// remark logs what came of a turn: each if asked for, and always one that did not
// succeed, unless it was only late. A failure that repeats is logged once a minute, with
// how often it came.
func (t *taker) remark(m events.Message, turn events.Turn, results []events.Result) {
	failure, failed := events.Outcome{Results: results}.Failure()
	late := failure.Status == events.Conflict || failure.Reason == "Stale"
	of := turnsOf{t.profile.Name, turn.Key, turn.Lane}
	if !failed {
		t.failing.succeeded(of)
	}
	if failed && !late {
		verb := verbAt(turn, failure.Command)
		why := cause{verb, string(failure.Ref.Kind), failure.Status, failure.Code, failure.Reason}
		if times, since, say := t.failing.failed(of, why, t.config.Clock.Now()); say {
			log := t.log(m).With("because", turn.Because, "verb", string(verb), "object", failure.Ref.String(),
				"status", string(failure.Status), "code", failure.Code, "reason", failure.Reason, "err", failure.Message)
			if times > 1 {
				log = log.With("times", times, "since", since.Format(time.RFC3339))
			}
			log.Warn("a turn did not succeed", "attempt", turn.Attempt, "againIn", events.Backoff(turn.Attempt, events.FirstBackoff, events.LongestBackoff).String())
			return
		}
	}
	if t.config.Log.Enabled(context.Background(), everyTurn) {
		t.log(m).Log(context.Background(), everyTurn, "carried out a turn", "because", turn.Because, "commands", len(turn.Commands), "late", late, "failed", failed)
	}
}
