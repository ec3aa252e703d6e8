package standing_test

import (
	"context"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// withoutAt does not fail lookups by sequence.
type withoutAt struct{ *memory.Cut }

func (b withoutAt) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	return b.NotaryBus.At(ctx, stream, sequence)
}

// questions are all questions but that for the lags.
func questions(ctx context.Context) map[string]func(r *standing.Reader) error {
	return map[string]func(r *standing.Reader) error{
		"standing": func(r *standing.Reader) error {
			_, err := r.Standing(ctx, kinds.ReplicaSets.Kind, webSet, replicaSets)
			return err
		},
		"parked":  func(r *standing.Reader) error { _, err := r.Parked(ctx); return err },
		"kept":    func(r *standing.Reader) error { _, err := r.Retention(ctx); return err },
		"running": func(r *standing.Reader) error { _, err := r.Running(ctx); return err },
		"shadow": func(r *standing.Reader) error {
			_, err := r.Parities(ctx, []string{replicaSets}, standing.Compared{Show: report.Agreements, Most: 1})
			return err
		},
	}
}

// TestHalfAnAnswerIsNone: if any part of an answer cannot be read, the question fails with that
// error. Half an answer would look like a whole one.
func TestHalfAnAnswerIsNone(t *testing.T) {
	tell(t, func(w *world) {
		w.Eventful()
		for name, ask := range questions(w.Context()) {
			w.CutEverywhere(name, func(b *memory.Cut) error { return ask(standing.New(b)) })
		}
		// The time of a stream's newest message is optional.
		w.CutEverywhere("lags", func(b *memory.Cut) error { _, err := standing.New(withoutAt{b}).Lags(w.Context()); return err })
	})
}
