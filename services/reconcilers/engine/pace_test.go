package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Every step of a write could be reported. That would delay the next step, and the end is
// reported anyway.
func TestReportsAreRareWhileActing(t *testing.T) {
	o := begun(t, Settings{Pace: time.Millisecond, Progress: time.Second})
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.pass(999 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 11, nil)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 1, 1, ""))
	o.outcome(events.LaneStatus, 11, events.Result{Status: events.Unchanged})
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "web", 7))
	o.pass(time.Millisecond)
	o.none()
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Unchanged})
	o.run()
	o.take(events.LaneWrite) // two are one too many
	o.take(events.LaneStatus)
}

// A write that depends on no report goes ahead of the report, which is stored when the write's
// effects have been seen.
func TestWhatIsDoneGoesAheadOfItsReport(t *testing.T) {
	for how, ahead := range map[string]bool{"overlooks": true, "": false} {
		o := told(t, how)
		create := o.create(3, how)
		if !ahead {
			o.take(events.LaneStatus)
			continue
		}
		o.none()
		o.created(create, 4, 2)
		o.take(events.LaneStatus)
	}
}

// When one write follows another, reports are not passed over for ever.
func TestReportsAreNotPassedOverForEver(t *testing.T) {
	o := told(t, "overlooks")
	create := o.create(3, "overlooks")
	for n := range 2 {
		o.pass(500 * time.Millisecond)
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 10+n, int32(2+n), 5, "overlooks"))
		o.created(create, 20+n, uint64(2+n))
		create = o.take(events.LaneWrite).Commands[0]
		if n == 0 {
			o.none()
			o.answer(events.LaneWrite, 3, nil)
		}
	}
	o.take(events.LaneStatus)
}

// told is an office whose set was reported on long ago.
func told(t *testing.T, how string) *office {
	o := open(t, Settings{Pace: time.Millisecond, Progress: time.Second})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 5, how))
	o.recalled(Past{}, Past{})
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.outcome(events.LaneStatus, 1, events.Result{Status: events.Absent})
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, how))
	o.run()
	o.pass(time.Hour)
	o.none()
	return o
}

// create has the set want another pod, which is stored as turn 2.
func (o *office) create(version int, how string) events.Command {
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 1, 5, how))
	created := o.take(events.LaneWrite).Commands[0]
	o.answer(events.LaneWrite, 2, nil)
	return created
}

// created reports the outcome of a turn's create, and folds the pod.
func (o *office) created(create events.Command, version int, turn uint64) {
	p := aPod(create.Name, "web", version)
	o.outcome(events.LaneWrite, turn, events.Result{Status: events.Applied, Ref: create.Ref(), UID: p.UID, Version: p.ResourceVersion})
	o.none()
	o.change(kinds.Pods.Kind, events.Is, p)
}
