package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// announcing has just reported on a set that now asks for a pod, whose create depends on a
// report that has to come first.
func announcing(t *testing.T) *office {
	o := open(t, Settings{Pace: 5 * time.Second, Backoff: time.Second})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 5, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, "says-why"))
	return o
}

// A report that comes first waits for no earlier one, and the write is decided on a view that
// includes the report.
func TestAReportThatComesFirstIsSeenBeforeTheAct(t *testing.T) {
	o := announcing(t)
	o.take(events.LaneStatus)
	o.none()
	o.answer(events.LaneStatus, 2, nil)
	o.none()
	o.outcome(events.LaneStatus, 2, events.Result{
		Status: events.Applied, UID: "uid-web", Version: "3", Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
	})
	o.none() // it has not come back
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, "says-why"))
	o.run()
	o.take(events.LaneWrite)
}

// No write replaces a report that was refused, or that another replica stored first.
func TestNothingIsDoneBeforeAReportThatComesFirst(t *testing.T) {
	o := announcing(t)
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 2, nil)
	o.outcome(events.LaneStatus, 2, events.Result{Status: events.Failed, Message: "a webhook is down"})
	o.none()
	o.pass(time.Second)
	o.take(events.LaneStatus)
	o.none()
	o.answer(events.LaneStatus, 0, bus.ErrOvertaken)
	o.recalled(Past{}, Past{Sequence: 3, Turn: &events.Turn{}})
	o.none() // report 3 of the other replica has no outcome
	o.outcome(events.LaneStatus, 3, events.Result{
		Status: events.Applied, UID: "uid-web", Version: "3", Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
	})
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, "says-why"))
	o.run()
	o.take(events.LaneWrite)
}
