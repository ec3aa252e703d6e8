package engine

import (
	"slices"
	"testing"
	"time"
)

// A key is queued once, however often it is asked for, and the queue drops it when it is
// served.
func TestAKeyStandsInALineOnce(t *testing.T) {
	var q queue
	e := &entry{}
	if !q.push(e, epoch, afterChange) || q.push(e, epoch.Add(time.Hour), afterChange) || q.push(e, epoch, whenIdle) {
		t.Error("it is new, and then it is not")
	}
	if !e.queuedAt.Equal(epoch) || q.depth != 1 || len(q.lines[afterChange]) != 1 || len(q.lines[whenIdle]) != 0 {
		t.Errorf("it stands there since %v, of %d; lines are %v", e.queuedAt, q.depth, q.lines)
	}
	line := q.lines[afterChange]
	if q.pop() != e || line[0] != nil || e.queued || q.depth != 0 || q.pop() != nil {
		t.Error("it is kept when it has been served")
	}
	if !q.push(e, epoch.Add(time.Minute), whenIdle) || !e.queuedAt.Equal(epoch.Add(time.Minute)) {
		t.Errorf("later it stands there since %v", e.queuedAt)
	}
}

// Timers fire in the order of their moments, those of one moment in the order in which they
// were set, and are dropped when they have fired.
func TestTimersFireInOrder(t *testing.T) {
	var set timers
	var fired []int
	for n, after := range []time.Duration{2, 1, 1, 3, 1} {
		set.set(epoch.Add(after), func() { fired = append(fired, n) })
	}
	if _, due := set.due(epoch); due {
		t.Error("one fires before its time")
	}
	all := set.list
	for {
		timer, due := set.due(epoch.Add(2))
		if !due {
			break
		}
		timer.fire()
	}
	if !slices.Equal(fired, []int{1, 2, 4, 0}) || len(set.list) != 1 || all[4].fire != nil {
		t.Errorf("fired are %v, and %d are to come", fired, len(set.list))
	}
}

// The engine reports how long each key was queued.
func TestHowLongAKeyWasQueued(t *testing.T) {
	var waited []time.Duration
	o := open(t, Settings{Waited: func(d time.Duration) { waited = append(waited, d) }})
	o.engine.Ask(web)
	o.now = o.now.Add(3 * time.Second)
	o.engine.Advance(o.now)
	if o.run(); !slices.Equal(waited, []time.Duration{3 * time.Second}) {
		t.Errorf("it has waited for %v", waited)
	}
}

// A key that a message asks for goes before one that no message asks for, and one that only had
// to be recalled goes before both.
func TestTheUrgentGoFirst(t *testing.T) {
	var q queue
	unasked, asked, known, risen := &entry{}, &entry{}, &entry{}, &entry{}
	q.push(unasked, epoch, whenIdle)
	q.push(risen, epoch, whenIdle)
	q.push(asked, epoch, afterChange)
	q.push(known, epoch, afterChange)
	q.push(risen, epoch, afterChange)
	q.push(known, epoch, afterRecall)
	q.push(known, epoch, whenIdle)
	for i, want := range []*entry{known, asked, risen, unasked, nil} {
		if got := q.pop(); got != want {
			t.Errorf("number %d is another one", i)
		}
	}
	if q.depth != 0 {
		t.Errorf("the depth of an empty queue is %d", q.depth)
	}
}
