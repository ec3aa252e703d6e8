package record_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

type question func(r *record.Record) error

// whys are the questions to Why.
func whys(ctx context.Context) map[string]question {
	return map[string]question{
		"why": func(r *record.Record) error {
			_, err := r.Why(ctx, kinds.Pods.Kind, pod("b"), record.Question{})
			return err
		},
		"why it ended": func(r *record.Record) error {
			_, err := r.Why(ctx, kinds.Pods.Kind, pod("a"), record.Question{})
			return err
		},
		"why a fight": func(r *record.Record) error {
			_, err := r.Why(ctx, kinds.Deployments.Kind, web, record.Question{At: record.Moment{Time: time.Now()}})
			return err
		},
		"why a field": func(r *record.Record) error {
			_, err := r.Why(ctx, kinds.ReplicaSets.Kind, webSet, record.Question{Field: "spec.replicas"})
			return err
		},
	}
}

// questions are all other questions, about the time since a moment.
func questions(ctx context.Context, begun time.Time) map[string]question {
	middle := begun.Add(4 * time.Second)
	errBegun := errors.New("begun")
	return map[string]question{
		"history": func(r *record.Record) error { _, err := r.History(ctx, kinds.Pods.Kind, pod("a"), 0); return err },
		"chronicle": func(r *record.Record) error {
			_, err := r.Chronicle(ctx, record.Filter{}, record.Span{}, 100)
			return err
		},
		"span": func(r *record.Record) error {
			_, err := r.Chronicle(ctx, record.Filter{}, record.Span{From: begun, To: middle}, 100)
			return err
		},
		"decided": func(r *record.Record) error { _, err := r.Decided(ctx, web, middle); return err },
		"state":   func(r *record.Record) error { _, err := r.At(ctx, kinds.Pods.Kind, "", record.Moment{}); return err },
		"state of a time": func(r *record.Record) error {
			_, err := r.At(ctx, kinds.Deployments.Kind, "", record.Moment{Time: middle})
			return err
		},
		"state of a version": func(r *record.Record) error {
			_, err := r.At(ctx, kinds.Deployments.Kind, "", record.Moment{Version: "103"})
			return err
		},
		"one": func(r *record.Record) error {
			_, err := r.One(ctx, kinds.Pods.Kind, pod("b"), record.Moment{})
			return err
		},
		"gaps": func(r *record.Record) error { _, err := r.Gaps(ctx, "pods", begun); return err },
		"tail": func(r *record.Record) error {
			err := r.TailFrom(ctx, record.Filter{}, func() error { return errBegun }, nil)
			if errors.Is(err, errBegun) {
				return nil
			}
			return err
		},
	}
}

// TestHalfAnAnswerIsNone: if any part of an answer cannot be read, the question fails with that
// error. Half an answer would look like a whole one.
func TestHalfAnAnswerIsNone(t *testing.T) {
	tell(t, func(w *world) {
		begun := time.Now()
		w.Eventful()
		all := questions(w.Context(), begun)
		maps.Copy(all, whys(w.Context()))
		for name, ask := range all {
			w.CutEverywhere(name, func(b *memory.Cut) error { return ask(record.New(b)) })
		}
	})
}
