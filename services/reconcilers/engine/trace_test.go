package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

func caused(n int) events.Trace {
	return events.Trace{Parent: fmt.Sprintf("00-%032x-%016x-01", n, n)}
}

// traced folds a version of the set that a client traced.
func (o *office) traced(version int, replicas int32, by int) uint64 {
	kind := kinds.ReplicaSets.Kind
	o.sequence[kind.Name]++
	at := o.sequence[kind.Name]
	m := delta(kind, events.Is, aSet("web", version, replicas, 0, ""), at)
	m.Header[events.HeaderTraceParent] = []string{caused(by).Parent}
	o.memory.Fold(kind.Name, []events.Message{m})
	o.engine.Folded(kind.Name)
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
	o.in(t, "the turn", o.take(events.LaneWrite).Turn, 3)
	if got, want := r.Tree(), "(orphan) r: process EV_replicasets_apps [2 links]\n  r: reconcile toy\n"; got != want {
		t.Errorf("the traces are\n%swant\n%s", got, want)
	}
	if s := r.Named("process EV_replicasets_apps")[0]; s.Attributes["messaging.batch.message_count"] != "3" {
		t.Errorf("the span is %+v", s)
	}
}

// TestATurnNamesWhatItRestsOn, even if the engine has not been told of the newest change.
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
	turn := o.take(events.LaneWrite)
	if o.in(t, "the turn", turn.Turn, 2); len(turn.Triggers) != 2 {
		t.Errorf("the turn names the causes %+v, want 2", turn.Triggers)
	}
	o.answer(events.LaneWrite, 10, nil)
	o.engine.Folded(kind.Name)
	o.run()
	if got := len(r.Named("reconcile toy")); got != 1 {
		t.Errorf("%d decisions, want 1:\n%s", got, r.Tree())
	}
}

// TestAChangeIsTheCauseOfOneTurn: a later turn without a traced change is in no trace.
func TestAChangeIsTheCauseOfOneTurn(t *testing.T) {
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.traced(1, 1, 1)
	o.run()
	o.recalled(Past{}, Past{})
	o.in(t, "the turn", o.take(events.LaneWrite).Turn, 1)
	// This change comes while the turn is being stored.
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 0, ""))
	o.answer(events.LaneWrite, 10, nil)
	o.outcome(events.LaneWrite, 10, created("web-0", "20"))
	o.change(kinds.Pods.Kind, events.Is, aPod("web-0", "web", 20))
	o.pass(time.Second)
	turn := o.take(events.LaneStatus)
	for _, trigger := range turn.Triggers {
		if trigger.Ref.Kind == kinds.ReplicaSets.Name && trigger.Sequence == 1 {
			t.Errorf("the second turn names %v, which had its turn", trigger)
		}
	}
	if turn.Trace != (events.Trace{}) {
		t.Errorf("the second turn is in %v", turn.Trace)
	}
}

// TestAnOutcomeLeadsToNoTurnOfAChange: an outcome only ends the wait of a turn that a change
// asked for. It is the cause of a turn that nothing else asked for.
func TestAnOutcomeLeadsToNoTurnOfAChange(t *testing.T) {
	o := open(t, Settings{Trace: tracetest.New().Tracer("r", trace.Options{})})
	outcome := func(turn uint64, results ...events.Result) {
		o.heard(events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: turn, Results: results, Trace: caused(9)})
		o.pass(time.Second)
	}
	o.traced(1, 1, 1)
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.traced(2, 2, 2)
	o.run()
	o.none()
	made := created("web-1-0", "20")
	made.UID = "uid-web-1-0"
	o.fold(kinds.Pods.Kind, events.Is, aPod("web-1-0", "web", 20))
	outcome(10, made)
	o.in(t, "what waited for the outcome", o.take(events.LaneWrite).Turn, 2)

	o = open(t, Settings{Trace: tracetest.New().Tracer("r", trace.Options{})})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 10, nil)
	o.fold(kinds.Pods.Kind, events.Is, aPod("web-1-0", "web", 20))
	outcome(10, made)
	o.in(t, "what the outcome alone asked for", o.take(events.LaneStatus).Turn, 9)
}

// tracedAs folds a version of the set with an annotation, traced or not.
func (o *office) tracedAs(version int, annotation string, by int) {
	kind := kinds.ReplicaSets.Kind
	o.sequence[kind.Name]++
	set := aSet("web", version, 1, 0, annotation)
	set.Labels = map[string]string{"app": "web"}
	m := delta(kind, events.Is, set, o.sequence[kind.Name])
	if by > 0 {
		m.Header[events.HeaderTraceParent] = []string{caused(by).Parent}
	}
	o.memory.Fold(kind.Name, []events.Message{m})
	o.engine.Folded(kind.Name)
	o.run()
}

// An answer without commands is one span, in which its wake is. A question without an answer is
// a failed span. A decision's span has its reason and the number of its commands.
func TestWhatTheSpansOfAnswersSay(t *testing.T) {
	const question = "process EV_replicasets_apps"
	r := tracetest.New()
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.tracedAs(1, "wakes", 1)
	if s := r.Named(question); len(s) != 1 || s[0].Attributes[trace.Because] != "an hour" || s[0].Attributes[trace.Outcome] != "nothing" || s[0].Failure != "" {
		t.Errorf("the spans are %+v", r.Spans())
	} else if got := trace.Context(o.wakes[0].Trace); got.SpanID() != s[0].Context.SpanID() || s[0].Attributes[trace.ObjectName] != "web" {
		t.Errorf("the wake is in %v", got)
	}
	r.Reset()
	o = open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.tracedAs(1, "panics", 1)
	if s := r.Named(question); len(s) != 1 || s[0].Failure != "broken" {
		t.Errorf("the spans are %+v", r.Spans())
	}
	r.Reset()
	o = open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.tracedAs(1, "lies", 1)
	if s := r.Named(question); len(s) != 1 || s[0].Failure != "broken" {
		t.Errorf("with a broken promise the spans are %+v, want one that says so", r.Spans())
	}
	r.Reset()
	o = open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.tracedAs(1, "", 1)
	o.recalled(Past{}, Past{})
	turn := o.take(events.LaneWrite)
	if s := r.Named("reconcile toy"); len(s) != 1 || s[0].Attributes[trace.Because] != "0 of 1" || s[0].Attributes[trace.Commands] != "1" {
		t.Errorf("the spans are %+v", r.Spans())
	} else if trace.Context(turn.Trace).SpanID() != s[0].Context.SpanID() {
		t.Errorf("the turn is in %v", turn.Trace)
	}
}

// Untraced changes make no spans, and neither does an outcome that leads to no commands.
func TestWhatMakesNoSpans(t *testing.T) {
	r := tracetest.New()
	for _, annotation := range []string{"", "panics", "retries", "wakes"} {
		o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
		o.tracedAs(1, annotation, 0)
	}
	o := begun(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, ""))
	o.heard(events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Trace: caused(1), Results: []events.Result{{Status: events.Unchanged}}})
	if got := r.Tree(); got != "" || o.engine.Tally().Nothing == 0 {
		t.Errorf("the spans are\n%s", got)
	}
}

// The labels of an object decide whether its first look is traced.
func TestAFirstLookIsSampledByItsLabels(t *testing.T) {
	r := tracetest.New()
	var causes []trace.Cause
	r.Sample = func(c trace.Cause) bool { causes = append(causes, c); return false }
	o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
	o.sequence[kinds.ReplicaSets.Name]++
	set := aSet("web", 1, 1, 0, "")
	set.Labels = map[string]string{"app": "web"}
	o.memory.Dealt(kinds.ReplicaSets.Name, 1)
	o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{delta(kinds.ReplicaSets.Kind, events.Is, set, 1)})
	o.engine.AskAll()
	o.run()
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	if len(causes) != 1 || causes[0].Labels["app"] != "web" || causes[0].Kind != string(kinds.ReplicaSets.Name) {
		t.Errorf("the question is sampled by %+v, want by the labels of web", causes)
	}
}

// If a cause is named twice, served drops the first one.
func TestWhatARoundHadIsDropped(t *testing.T) {
	a, b := events.Trigger{Sequence: 1}, events.Trigger{Sequence: 2}
	e := &entry{Causes: cache.Causes{Triggers: []events.Trigger{a, a, b}}}
	if e.dropServed(a); len(e.Triggers) != 2 || e.Triggers[0] != a {
		t.Errorf("left are %v", e.Triggers)
	}
}
