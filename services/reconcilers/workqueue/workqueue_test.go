package workqueue

import (
	"slices"
	"testing"
	"time"
)

var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

type entry struct{ Place }

// A key is queued once, however often it is asked for, and the queue drops it when it is
// served.
func TestAKeyStandsInALineOnce(t *testing.T) {
	var q Queue[*entry]
	e := &entry{}
	if !q.Push(e, epoch, AfterChange) || q.Push(e, epoch.Add(time.Hour), AfterChange) || q.Push(e, epoch, WhenIdle) {
		t.Error("Push takes a key for new twice, or never")
	}
	if !e.QueuedAt.Equal(epoch) || q.Len() != 1 || len(q.lines[AfterChange]) != 1 || len(q.lines[WhenIdle]) != 0 {
		t.Errorf("the key is queued since %v, of %d; the lines are %v", e.QueuedAt, q.Len(), q.lines)
	}
	line := q.lines[AfterChange]
	if q.Pop() != e || line[0] != nil || e.Queued || q.Len() != 0 || q.Pop() != nil {
		t.Error("the queue keeps a key that was popped")
	}
	if !q.Push(e, epoch.Add(time.Minute), WhenIdle) || !e.QueuedAt.Equal(epoch.Add(time.Minute)) {
		t.Errorf("later it stands there since %v", e.QueuedAt)
	}
}

// Timers fire in the order of their moments, those of one moment in the order in which they
// were set, and are dropped when they have fired.
func TestTimersFireInOrder(t *testing.T) {
	var set Timers
	var fired []int
	for n, after := range []time.Duration{2, 1, 1, 3, 1} {
		set.Set(epoch.Add(after), func() { fired = append(fired, n) })
	}
	if _, due := set.Due(epoch); due {
		t.Error("one fires before its time")
	}
	all := set.list
	for {
		fire, due := set.Due(epoch.Add(2))
		if !due {
			break
		}
		fire()
	}
	if !slices.Equal(fired, []int{1, 2, 4, 0}) || len(set.list) != 1 || all[4].fire != nil {
		t.Errorf("fired are %v, and %d are to come", fired, len(set.list))
	}
}

// A key that a message asks for goes before one that no message asks for, and one that only had
// to be recalled goes before both.
func TestTheUrgentGoFirst(t *testing.T) {
	var q Queue[*entry]
	unasked, asked, known, risen := &entry{}, &entry{}, &entry{}, &entry{}
	q.Push(unasked, epoch, WhenIdle)
	q.Push(risen, epoch, WhenIdle)
	q.Push(asked, epoch, AfterChange)
	q.Push(known, epoch, AfterChange)
	q.Push(risen, epoch, AfterChange)
	q.Push(known, epoch, AfterRecall)
	q.Push(known, epoch, WhenIdle)
	for i, want := range []*entry{known, asked, risen, unasked, nil} {
		if got := q.Pop(); got != want {
			t.Errorf("number %d is another one", i)
		}
	}
	if q.Len() != 0 {
		t.Errorf("the depth of an empty queue is %d", q.Len())
	}
}
