package shell

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
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
		o.traced(n, 1, n)
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

// TestATurnNamesWhatItRestsOn, although the desk has not been told of the newest change.
func TestATurnNamesWhatItRestsOn(t *testing.T) {
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.traced(1, 0, 1)
	kind := kinds.ReplicaSets.Kind
	m := delta(kind, events.Is, aSet("web", 2, 1, 0, ""), 2)
	m.Header[events.HeaderTraceParent] = []string{caused(2).Parent}
	o.memory.Fold(kind.Name, []events.Message{m})
	o.run()
	o.recalled(Past{}, Past{})
	turn := o.take(events.Act)
	if o.in(t, "the turn", turn.Turn, 2); len(turn.Triggers) != 2 {
		t.Errorf("it names %+v", turn.Triggers)
	}
	o.answer(events.Act, 10, nil)
	o.desk.Folded(kind.Name)
	o.run()
	if got := len(r.Named("reconcile toy")); got != 1 {
		t.Errorf("%d decisions, want 1:\n%s", got, r.Tree())
	}
}

// TestAChangeIsTheCauseOfOneTurn: what comes after it without a trace has none.
func TestAChangeIsTheCauseOfOneTurn(t *testing.T) {
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.traced(1, 1, 1)
	o.run()
	o.recalled(Past{}, Past{})
	o.in(t, "the turn", o.take(events.Act).Turn, 1)
	// This one comes while the turn is being stored.
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
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

// TestAnOutcomeLeadsToNoTurnOfAChange: it ends the wait of what the change asked for, and
// is the cause only of what nothing else has asked for.
func TestAnOutcomeLeadsToNoTurnOfAChange(t *testing.T) {
	o := open(t, Settings{Trace: tracetest.New().Tracer("r", trace.Options{})})
	outcome := func(turn uint64, results ...events.Result) {
		o.heard(events.Outcome{Controller: "toy", Key: web, Lane: events.Act, Turn: turn, Results: results, Trace: caused(9)})
		o.pass(time.Second)
	}
	o.traced(1, 1, 1)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 10, nil)
	o.traced(2, 2, 2)
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
