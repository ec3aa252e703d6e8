package record_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// withoutAt does not fail lookups by sequence.
type withoutAt struct{ *memory.Cut }

func (b withoutAt) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	return b.NotaryBus.At(ctx, stream, sequence)
}

// eventful is a record with every type of content.
func (w *world) eventful() {
	w.Helper()
	w.scaled()
	w.compared()
	w.is(pod("a"), "kubelet", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
	w.is(pod("a"), "kubelet", func(o metav1.Object) { o.SetLabels(map[string]string{"seen": "yes"}) })
	gone := w.say(w.delta(pod("a"), events.Gone, "kubelet", nil))
	w.say(events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte(`{"reason":"the watcher was away"}`)})
	created := w.delta(pod("b"), events.Is, events.FieldManager, nil)
	w.done(replicaSets, webSet, w.decide(replicaSets, webSet, "too few Pods", []events.Command{create(pod("b"))}, trigger(pod("a"), gone)), created)
	w.say(created)
	w.is(pod("b"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning })
	for _, n := range []int32{3, 7, 3, 7, 3, 7} {
		w.is(web, map[int32]string{3: "pipeline", 7: "scaler"}[n], replicas(n))
	}
	key := events.Key{Namespace: "shop", Name: "broken"}
	m, err := events.EncodeJSON(events.Turn{Controller: replicaSets, Key: key, Lane: events.LanePark, Because: "panic"}, events.Trace{})
	w.must(err)
	m.Subject = subject.Turn(replicaSets, events.LanePark, key)
	_, err = w.bus.Put(w.Context(), m, "broken")
	w.must(err)
	w.report(events.Report{Replica: "a", Controllers: []string{deployments, replicaSets}})
}

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
		"standing": func(r *record.Record) error {
			_, err := r.Standing(ctx, kinds.ReplicaSets.Kind, webSet, replicaSets)
			return err
		},
		"parked":  func(r *record.Record) error { _, err := r.Parked(ctx); return err },
		"kept":    func(r *record.Record) error { _, err := r.Retention(ctx); return err },
		"running": func(r *record.Record) error { _, err := r.Running(ctx); return err },
		"gaps":    func(r *record.Record) error { _, err := r.Gaps(ctx, "pods", begun); return err },
		"shadow": func(r *record.Record) error {
			_, err := r.Parities(ctx, []string{replicaSets}, record.Compared{Show: events.Agreements, Most: 1})
			return err
		},
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
		w.eventful()
		all := questions(w.Context(), begun)
		maps.Copy(all, whys(w.Context()))
		for name, ask := range all {
			w.cutEverywhere(name, func(b *memory.Cut) error { return ask(record.New(b)) })
		}
		// The time of a stream's newest message is optional.
		w.cutEverywhere("lags", func(b *memory.Cut) error { _, err := record.New(withoutAt{b}).Lags(w.Context()); return err })
	})
}

func (w *world) cutEverywhere(name string, ask func(b *memory.Cut) error) {
	w.Helper()
	whole := &memory.Cut{NotaryBus: w.bus}
	if err := ask(whole); err != nil {
		w.Errorf("%s: with nothing cut: %v", name, err)
	}
	if whole.Calls() == 0 {
		w.Errorf("%s: the bus is not asked", name)
	}
	for at := 1; at <= whole.Calls(); at++ {
		b := &memory.Cut{NotaryBus: w.bus, Call: at}
		// The number of parallel calls may be lower in this run.
		if err := ask(b); b.Calls() >= at && !errors.Is(err, memory.ErrCut) {
			w.Errorf("%s: call %d of %d is cut, and the answer is no error of it: %v", name, at, whole.Calls(), err)
		}
	}
}

// compared stores three findings of a shadow, two of them with their turns.
func (w *world) compared() {
	w.Helper()
	w.must(w.bus.EnsureShadow(w.Context(), replicaSets))
	key := events.Key{Namespace: "shop", Name: "web-1"}
	m, err := events.EncodeJSON(events.Turn{Controller: replicaSets, Key: key, Lane: events.LaneWrite, Because: "too few Pods"}, events.Trace{})
	w.must(err)
	m.Subject = subject.ShadowTurn(replicaSets, events.LaneWrite, key)
	turn, err := w.bus.Put(w.Context(), m, "turn")
	w.must(err)
	for i, f := range []events.Finding{
		{Agreement: events.Agreed, What: "first", Turn: turn}, {Agreement: events.Differs, What: "second"}, {Agreement: events.Agreed, What: "third", Turn: turn},
	} {
		w.wait(time.Second)
		f.Controller, f.Key, f.At = replicaSets, key, time.Now()
		m, err := events.EncodeJSON(f, events.Trace{})
		w.must(err)
		m.Subject = subject.Finding(replicaSets, key)
		_, err = w.bus.Put(w.Context(), m, fmt.Sprint("finding", i))
		w.must(err)
	}
}

// The findings of a shadow are counted, and shown from difference to agreement, the newest
// first, with the turn that wanted the write.
func TestAShadowIsCompared(t *testing.T) {
	tell(t, func(w *world) {
		begun := time.Now()
		w.compared()
		all, err := w.record.Parities(w.Context(), []string{deployments, replicaSets}, record.Compared{Show: events.Agreements, Most: 1})
		w.must(err)
		if len(all) != 1 || all[0].Controller != replicaSets {
			w.Fatalf("compared are %+v", all)
		}
		p := all[0]
		if p.Total() != 3 || p.Unexplained != 1 || p.Percent() < 66 || p.Percent() > 67 || fmt.Sprint(p.Kinds()) != "[agreed differs]" {
			w.Errorf("of %d findings %d are unexplained: %v %% of %v", p.Total(), p.Unexplained, p.Percent(), p.Kinds())
		}
		if !p.Since.Equal(begun.Add(time.Second)) || !p.Until.Equal(begun.Add(3*time.Second)) {
			w.Errorf("it was compared from %v to %v", p.Since.Sub(begun), p.Until.Sub(begun))
		}
		if len(p.Examples) != 2 || p.Examples[0].What != "second" || p.Examples[0].Decided != nil || p.Examples[1].What != "third" ||
			p.Examples[1].Decided == nil || p.Examples[1].Decided.Because != "too few Pods" {
			w.Errorf("the examples are %+v", p.Examples)
		}
		all, err = w.record.Parities(w.Context(), []string{replicaSets}, record.Compared{Since: begun.Add(2 * time.Second), Show: []events.Agreement{events.Agreed}, Most: 5})
		w.must(err)
		if len(all) != 1 || all[0].Total() != 2 || len(all[0].Examples) != 1 {
			w.Errorf("since the second finding: %+v", all)
		}
		if none := (record.Parity{}); none.Percent() != 100 {
			w.Errorf("of no findings %v %% are explained", none.Percent())
		}
	})
}
