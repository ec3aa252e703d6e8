package turns_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The writers' consumer passes over a turn, as after an acknowledgement floor that has jumped:
// no writer will ever get it. The reconcilers notice and store it again.
func TestATurnThatTheConsumerHasSkippedIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.open()
	w.decides()
	w.want("a")
	w.eventually("the turn is stored", func() bool { return w.messages(subject.TurnStream(copier)) == 1 })
	w.skip()
	stop := w.writes()
	took := w.eventually("the copy is there", func() bool { return w.creates("a") == 1 })
	t.Logf("served after %v", took)
	w.eventually("the outcome is there", func() bool { return w.messages(subject.OutcomeStream(copier)) == 1 })
	turn, sequence, outcome := w.last("a")
	if turn.Repeats != 1 || sequence != 2 || outcome.Turn != 2 || !outcome.OK() {
		t.Errorf("turn %d repeats turn %d, and has the outcome %+v; want turn 2, which repeats 1 and was carried out", sequence, turn.Repeats, outcome)
	}
	stop()
	w.close()
}

// skip has a worker in the writers' name acknowledge all messages, and do nothing.
func (w *world) skip() {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	defer cancel()
	// However late the acknowledgement is, the turn does not come again.
	job := bus.Work{Stream: subject.TurnStream(copier), Durable: "writer", AckWait: time.Hour, Since: time.Hour}
	w.must(w.bus.Work(ctx, job, func(d bus.Delivery) { d.Ack(); cancel() }))
	w.eventually("the turn is answered", func() bool {
		all, err := w.bus.Consumers(w.Context(), job.Stream)
		w.must(err)
		return len(all) == 1 && all[0].Answered == 1
	})
}

// save copies a stream's messages on disk; the returned function puts them back, as if
// everything stored since had been lost. The bus must be closed both times.
func (w *world) save(name string) (restore func()) {
	w.Helper()
	found, err := filepath.Glob(filepath.Join(w.store, "jetstream", "*", "streams", name, "msgs"))
	if err != nil || len(found) != 1 {
		w.Fatalf("the messages of %s are in %v (%v)", name, found, err)
	}
	copied := filepath.Join(w.TempDir(), "msgs")
	w.must(os.CopyFS(copied, os.DirFS(found[0])))
	return func() {
		w.Helper()
		w.must(os.RemoveAll(found[0]))
		w.must(os.CopyFS(found[0], os.DirFS(copied)))
	}
}

// settle asks for a copy and waits until its outcome is stored.
func (w *world) settle(name string) {
	w.Helper()
	w.want(name)
	w.eventually(name+" is settled", func() bool {
		_, sequence, outcome := w.last(name)
		return sequence > 0 && outcome.Turn == sequence
	})
}

// session runs everything while run does.
func (w *world) session(run func()) {
	w.Helper()
	w.open()
	decided, written := w.decides(), w.writes()
	run()
	decided()
	written()
	w.close()
}

// The power fails. The outcomes of the last turns are lost, although the writers had
// acknowledged them: these turns seem to be in flight for ever.
func TestLostOutcomesDoNotBlockTheirKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.session(func() { w.settle("a") })
	lose := w.save(subject.OutcomeStream(copier))
	w.session(func() { w.settle("b") })
	lose()
	w.session(func() {
		w.remove("a")
		took := w.eventually("the copy of a is made anew", func() bool { return w.creates("a") == 2 })
		t.Logf("a, whose outcome is there, after %v", took)
		w.remove("b")
		took = w.eventually("the copy of b is made anew", func() bool { return w.creates("b") == 2 })
		t.Logf("b, whose outcome was lost, after %v", took)
		w.settle("c")
	})
	for name, want := range map[string]int{"a": 2, "b": 2, "c": 1} {
		if got := w.creates(name); got != want {
			t.Errorf("the copy of %s was created %d times, want %d", name, got, want)
		}
	}
}

// The power fails. The last turns are lost, although they were acknowledged, and the writers'
// consumer is beyond the end of its stream.
func TestLostTurnsAreMadeAgainAndServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.session(func() { w.settle("a") })
	lose := w.save(subject.TurnStream(copier))
	w.session(func() {
		w.settle("b")
		w.settle("c")
	})
	lose()
	w.session(func() {
		w.want("d")
		w.remove("b")
		took := w.eventually("both are there", func() bool { return w.creates("b") == 2 && w.creates("d") == 1 })
		t.Logf("served after %v", took)
		for _, name := range []string{"b", "d"} {
			took := w.eventually("the outcome of "+name+" is its own", func() bool {
				_, sequence, outcome := w.last(name)
				return outcome.Turn == sequence && sequence > 0
			})
			t.Logf("settled after %v", took)
		}
	})
	for name, want := range map[string]int{"a": 1, "b": 2, "c": 1, "d": 1} {
		if got := w.creates(name); got != want {
			t.Errorf("the copy of %s was created %d times, want %d", name, got, want)
		}
	}
}

// The answer to a create is lost, a user deletes the created object, and the watcher lags: the
// API server has no object of that name, and the record has never had one. The object is not
// created again before the record has caught up, and then by a new turn; nor if the record
// never has it, because it was created and deleted within a gap.
func TestACreateThatNoReaderHeardOfIsNotMadeAgain(t *testing.T) {
	for name, tell := range map[string]func(*world){"it is told late": (*world).speak, "it is never told": (*world).relist} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			createdForNothing(t, tell)
		})
	}
}

func createdForNothing(t *testing.T, tell func(*world)) {
	w := newWorld(t)
	w.session(func() {
		w.settle("a")
		w.undo("c")
		w.want("c")
		w.eventually("the writer has looked again and again", func() bool { return w.asks() >= 7 || w.creates("c") > 1 })
		if n := w.creates("c"); n != 1 {
			t.Errorf("c was created %d times, want once: the record did not have it yet", n)
		}
		tell(w)
		w.eventually("the copy of c is made anew", func() bool { return w.creates("c") == 2 })
		w.settle("d")
	})
	w.open()
	var unsure, applied int
	for _, o := range w.outcomes("c") {
		if r := o.Results[0]; r.Unsure && r.Status == events.Conflict {
			unsure++
		} else if r.OK() {
			applied++
		}
	}
	if unsure != 1 || applied != 1 {
		t.Errorf("of the turns about c, %d have an unsure outcome and %d were carried out; want one of each", unsure, applied)
	}
	w.close()
}

// outcomes are the outcomes about a name.
func (w *world) outcomes(name string) (all []events.Outcome) {
	w.Helper()
	at, err := w.bus.StreamState(w.Context(), subject.OutcomeStream(copier))
	w.must(err)
	for sequence := at.First; sequence <= at.Last; sequence++ {
		m, there, err := w.bus.At(w.Context(), subject.OutcomeStream(copier), sequence)
		w.must(err)
		var o events.Outcome
		if there && m.Subject == subject.Outcome(copier, events.LaneWrite, events.Key{Namespace: "ns", Name: name}) {
			w.must(events.DecodeJSON(m, &o))
			all = append(all, o)
		}
	}
	return all
}
