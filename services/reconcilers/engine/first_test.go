package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// TestTheFirstLookBeginsATrace, because no trace led to the objects that it finds. The trace's
// id derives from the turn, and a decision without commands makes no trace.
func TestTheFirstLookBeginsATrace(t *testing.T) {
	r := tracetest.New()
	look := func(replicas int32) *office {
		o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, replicas, 0, ""))
		o.engine.AskAll()
		o.run()
		return o
	}
	look(0)
	if got := r.Tree(); got != "" {
		t.Errorf("a look that finds nothing to do made spans:\n%s", got)
	}
	var ids []string
	for range 2 {
		o := look(1)
		o.recalled(Past{}, Past{})
		turn := o.take(events.LaneWrite)
		ids = append(ids, trace.Context(turn.Trace).TraceID().String())
		// A later report without a trace is no first look.
		o.answer(events.LaneWrite, 10, nil)
		o.outcome(events.LaneWrite, 10, created("web-0", "20"))
		o.change(kinds.Pods.Kind, events.Is, aPod("web-0", "web", 20))
		o.pass(time.Second)
		if told := o.take(events.LaneStatus); told.Trace != (events.Trace{}) {
			t.Errorf("the report is in %v", told.Trace)
		}
	}
	if got, want := r.Tree(), "r: reconcile toy ×2\n"; got != want || ids[0] != ids[1] {
		t.Errorf("the traces are %v\n%swant\n%s", ids, got, want)
	}
}

// TestAWakeIsInTheTraceThatSetIt, also where the local timer fires before its message comes; a
// wake that was set in no trace begins one.
func TestAWakeIsInTheTraceThatSetIt(t *testing.T) {
	for _, by := range []int{1, 0} {
		r := tracetest.New()
		o := open(t, Settings{Trace: r.Tracer("r", trace.Options{})})
		set := kinds.ReplicaSets.Kind
		if by > 0 {
			m := delta(set, events.Is, aSet("web", 1, 0, 0, "wakes"), 1)
			m.Header[events.HeaderTraceParent] = []string{caused(by).Parent}
			o.sequence[set.Name]++
			o.memory.Fold(set.Name, []events.Message{m})
			o.engine.Folded(set.Name)
			o.run()
		} else {
			o.change(set, events.Is, aSet("web", 1, 0, 0, "wakes"))
		}
		o.engine.Scheduled(web, o.wakes[0].At, nil)
		o.fold(set, events.Is, aSet("web", 2, 1, 0, "")) // its ticket is another replica's
		o.pass(time.Hour)
		o.recalled(Past{}, Past{})
		turn := o.take(events.LaneWrite)
		if by > 0 {
			o.in(t, "what it was time for", turn.Turn, by)
		} else if got := len(r.Named("reconcile toy")); got != 1 || turn.Trace == (events.Trace{}) {
			t.Errorf("%d traces begin with what it was time for, and the turn is in %v", got, turn.Trace)
		}
		if got := len(r.Named("process WAKE")); got != by {
			t.Errorf("a wake that was set in %d traces is in %d:\n%s", by, got, r.Tree())
		}
	}
}
