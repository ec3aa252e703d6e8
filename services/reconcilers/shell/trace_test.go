package shell

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func caused(n int) events.Trace {
	return events.Trace{Parent: fmt.Sprintf("00-%032x-%016x-01", n, n)}
}

// traced folds a version of the set that somebody traced.
func (o *office) traced(version int, replicas int32, by int) uint64 {
	kind := kinds.ReplicaSets.Kind
	o.sequence[kind.Name]++
	at := o.sequence[kind.Name]
	m := delta(kind, events.Is, aSet("web", version, replicas, 0, ""), at)
	m.Header[events.HeaderTraceParent] = []string{caused(by).Parent}
	o.memory.Fold(kind.Name, []events.Message{m})
	o.desk.Folded(kind.Name)
	return at
}

func (o *office) tracedTicket(at uint64, by int) *slip {
	s := &slip{}
	o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: web.Namespace, Name: web.Name}, at, caused(by), s)
	return s
}

func (o *office) in(t *testing.T, what string, turn events.Turn, by int) {
	t.Helper()
	if got, want := trace.Context(turn.Trace).TraceID(), trace.Context(caused(by)).TraceID(); got != want {
		t.Errorf("%s is in trace %v, want %v", what, got, want)
	}
}

// TestManyCausesAreOneSpan: in the trace of the newest, with links to the others.
func TestManyCausesAreOneSpan(t *testing.T) {
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	for n := 1; n <= 3; n++ {
		o.tracedTicket(o.traced(n, 1, n), n)
	}
	o.run()
	o.recalled(Past{}, Past{})
	o.in(t, "the turn", o.take(events.Act).Turn, 3)
	if got, want := r.Tree(), "(orphan) r: process STATE_replicasets_apps [2 links]\n  r: reconcile toy\n"; got != want {
		t.Errorf("the traces are\n%swant\n%s", got, want)
	}
	if s := r.Named("process STATE_replicasets_apps")[0]; s.Attributes["messaging.batch.message_count"] != "3" {
		t.Errorf("the span is %+v", s)
	}
}

// TestAnAnswerIsOfTheChangeThatItRestsOn, although the ticket of an earlier one
// asked for it; the later ticket has nothing to do, and says so.
func TestAnAnswerIsOfTheChangeThatItRestsOn(t *testing.T) {
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	first := o.traced(1, 0, 1)
	second := o.traced(2, 1, 2)
	o.tracedTicket(first, 1)
	o.run()
	o.recalled(Past{}, Past{})
	turn := o.take(events.Act)
	o.in(t, "the turn", turn.Turn, 2)
	o.answer(events.Act, 10, nil)
	o.tracedTicket(second, 2)
	o.run()
	if got := len(r.Named("reconcile toy")); got != 1 {
		t.Errorf("%d decisions, want 1:\n%s", got, r.Tree())
	}
}

// TestAChangeIsTheCauseOfOneTurn: what comes after it without a trace has none.
func TestAChangeIsTheCauseOfOneTurn(t *testing.T) {
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.tracedTicket(o.traced(1, 1, 1), 1)
	o.run()
	o.recalled(Past{}, Past{})
	o.in(t, "the turn", o.take(events.Act).Turn, 1)
	// This one comes while the turn is being stored.
	o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: web.Namespace, Name: web.Name},
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, "")), events.Trace{}, &slip{})
	o.answer(events.Act, 10, nil)
	o.outcome(events.Act, 10, born("web-0", "20"))
	o.change(kinds.Pods.Kind, events.Is, aPod("web-0", "web", 20))
	o.pass(time.Second)
	turn := o.take(events.Tell)
	for _, trigger := range turn.Triggers {
		if trigger.Ref.Kind == kinds.ReplicaSets.Name && trigger.Sequence == 1 {
			t.Errorf("the second turn names %v, which had its turn", trigger)
		}
	}
	if turn.Trace != (events.Trace{}) {
		t.Errorf("the second turn is in %v", turn.Trace)
	}
}

// TestWhatAControllerOverlooksIsNoCause: its turns rest on changes that ask for
// them, until the tickets of those have come.
func TestWhatAControllerOverlooksIsNoCause(t *testing.T) {
	set := kinds.ReplicaSets.Kind
	ref := events.Ref{Kind: set.Name, Namespace: web.Namespace, Name: web.Name}
	r := newReader(reconcile.Description{Inputs: []reconcile.Input{{Kind: set, Keys: func(_ reconcile.Snapshot, _, now reconcile.Object) []events.Key {
		if now.GetGeneration() == 0 {
			return nil
		}
		return []events.Key{events.Key(ref)}
	}}}})
	changed := func(sequence uint64, generation int64) {
		o := aSet(web.Name, int(sequence), 1, 0, "")
		o.Generation = generation
		r.owe(scene{}, []change{{ref: ref, sequence: sequence, trace: caused(int(sequence)), now: reconcile.Object{Kind: set, Object: o}}})
	}
	is := func(what string, want uint64) {
		t.Helper()
		got := uint64(0)
		if c := r.causeOf(ref); c != nil {
			got = c.sequence
		}
		if got != want {
			t.Errorf("%s: the cause is change %d, want %d", what, got, want)
		}
	}
	is("nothing changed", 0)
	changed(1, 0)
	is("a change that is overlooked", 0)
	changed(2, 1)
	changed(3, 0)
	is("one that is not, and another", 2)
	r.take(ref, 1)
	is("the ticket of one before", 2)
	r.take(ref, 2)
	is("its ticket", 0)
}

// TestAnOutcomeLeadsToNoTurnOfAChange: it ends the wait of what the change asked for, and
// is the cause only of what nothing else has asked for.
func TestAnOutcomeLeadsToNoTurnOfAChange(t *testing.T) {
	o := open(t, Settings{Trace: tracetest.New().Tracer("r", trace.Options{})})
	outcome := func(turn uint64, results ...events.Result) {
		o.desk.OutcomeTicket(turn, events.Outcome{Controller: "toy", Key: web, Lane: events.Act, Turn: turn, Results: results, Trace: caused(9)}, &slip{})
		o.pass(time.Second)
	}
	o.tracedTicket(o.traced(1, 1, 1), 1)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 10, nil)
	o.tracedTicket(o.traced(2, 2, 2), 2)
	o.run()
	o.none()
	made := born("web-1-0", "20")
	made.UID = "uid-web-1-0"
	o.fold(kinds.Pods.Kind, events.Is, aPod("web-1-0", "web", 20))
	outcome(10, made)
	o.in(t, "what waited for the outcome", o.take(events.Act).Turn, 2)

	o = open(t, Settings{Trace: tracetest.New().Tracer("r", trace.Options{})})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 10, nil)
	o.fold(kinds.Pods.Kind, events.Is, aPod("web-1-0", "web", 20))
	outcome(10, made)
	o.in(t, "what the outcome alone asked for", o.take(events.Tell).Turn, 9)
}
