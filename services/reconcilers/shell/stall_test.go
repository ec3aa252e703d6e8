package shell

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// stalls demands that the desk names a condition after [events.Standstill] and not
// before; lasted is how long the wait has gone on already.
func (o *office) stalls(lasted time.Duration, condition events.Condition, detail string) {
	o.t.Helper()
	o.pass(events.Standstill - lasted - 1)
	o.flows()
	o.pass(1)
	s, stalled := o.desk.Stall()
	if !stalled || s.Condition != condition || s.Detail != detail || s.Controller != "toy" || !s.Since.Equal(o.now.Add(-events.Standstill)) {
		o.t.Errorf("at %v it says %+v (stalled: %t), want %s about %q since 30 s ago", o.now, s, stalled, condition, detail)
	}
	if !o.desk.Working() {
		o.t.Error("it says that it has no work")
	}
}

// flows demands that the desk names nothing.
func (o *office) flows() {
	o.t.Helper()
	if s, stalled := o.desk.Stall(); stalled {
		o.t.Errorf("at %v it says that it stalls: %+v", o.now, s)
	}
}

func TestADeskAtRestDoesNotStall(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.pass(time.Hour)
	o.flows()
	if o.desk.Working() {
		t.Error("it says that it has work")
	}
}

// A key that wants a turn has not waited for it since the one before, whether or not
// a look came in between.
func TestAKeyWaitsSinceItWantsSomething(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.pass(time.Hour)
	o.desk.Ask(web)
	o.flows()
	o.now = o.now.Add(events.Standstill)
	o.desk.Advance(o.now)
	if s, stalled := o.desk.Stall(); !stalled || s.Condition != events.KeysWait {
		t.Errorf("a key has waited for %v, and it says %+v (stalled: %t)", events.Standstill, s, stalled)
	}
}

// No writer runs: the turn is stored, and no outcome comes.
func TestATurnWithoutAnOutcomeStalls(t *testing.T) {
	o := begun(t, Settings{})
	o.stalls(0, events.NoOutcome, "no writer says that it is there")
	o.outcome(events.Act, 10, born("p", "5"))
	o.flows()
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.desk.Recalled(web, events.Tell, Past{}, nil)
	o.flows()
}

// A writer that has the turn in hand is at work, however long that takes.
func TestATurnInAWritersHandDoesNotStall(t *testing.T) {
	o := begun(t, Settings{})
	for range 100 {
		o.desk.Beat(events.Beat{Turns: map[string][]uint64{"toy": {10}}})
		o.pass(time.Second)
		o.flows()
	}
}

// The writer has done it, and no watcher tells of what was done.
func TestAnEffectThatIsNotSeenStalls(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.Act, 10, born("p", "5"))
	o.stalls(0, events.NotSeen, "pods")
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.flows()
}

// A kind whose watcher may not list it is never told to its end. Until everything has
// been looked at once there is work.
func TestAKindThatIsNeverReadStalls(t *testing.T) {
	o := open(t, Settings{})
	o.desk.Shut(kinds.Pods.Name)
	o.stalls(0, events.NotRead, "pods")
	o.desk.Open(kinds.Pods.Name)
	o.flows()
	o.desk.Shut(kinds.Pods.Name)
	o.pass(time.Hour)
	o.flows() // nothing asks for a turn
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.stalls(0, events.NotRead, "pods")
}

// A kind begins to be told in a new epoch, and does not end.
func TestAnEpochThatIsNotToldToItsEndStalls(t *testing.T) {
	o := open(t, Settings{})
	o.desk.askedAll = true
	o.tell(kinds.Pods.Kind, delta(kinds.Pods.Kind, events.Is, aPod("p", "web", 1), 0), 1)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.stalls(0, events.EpochNotTold, "pods")
	o.tell(kinds.Pods.Kind, markAt(kinds.Pods.Kind, "2", 0), 1)
	o.flows()
}

// What is held of a kind is damaged, and no watcher mends it.
func TestADamagedKindStalls(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	o.desk.Shut(kinds.Pods.Name)
	o.desk.Forgot(kinds.Pods.Name, []events.Key{web})
	o.stalls(0, events.CacheInconsistent, "pods")
}

// The bus takes no turns.
func TestABusThatRefusesTurnsStalls(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	full := errors.New("the disk is full")
	for end := o.now.Add(events.Standstill); o.now.Before(end); {
		o.flows()
		if len(o.stored) > 0 {
			o.take(events.Act)
			o.answer(events.Act, 0, full)
		}
		if len(o.recalls) > 0 {
			o.recalled(Past{}, Past{})
		}
		o.pass(time.Second)
	}
	if s, stalled := o.desk.Stall(); !stalled || s.Condition != events.BusRefuses || s.Detail != full.Error() {
		t.Errorf("it says %+v (%t)", s, stalled)
	}
}

// A key that panics is parked, which is said elsewhere; so is one that waits for its
// back-off or its hour no stall.
func TestWhatIsParkedOrWaitsForATimeDoesNotStall(t *testing.T) {
	for _, annotation := range []string{"panics", "wakes", "lies"} {
		o := open(t, Settings{})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, annotation))
		for range 120 {
			for _, lane := range o.takeRecalls() {
				o.desk.Recalled(web, lane, Past{}, nil)
			}
			for _, s := range o.stored {
				o.desk.Stored(web, s.Lane, 1, nil)
			}
			o.stored = nil
			for _, w := range o.wakes {
				o.desk.Scheduled(w.Key, w.At, nil)
			}
			o.wakes = nil
			o.pass(time.Second)
			o.flows()
		}
		if parked := len(o.desk.Parked()) == 1; parked != (annotation != "wakes") {
			t.Errorf("%s: parked is %t", annotation, parked)
		}
	}
}

// A key that broke is tried again at a known time, however late that is.
func TestABackOffDoesNotStall(t *testing.T) {
	o := open(t, Settings{Backoff: time.Minute})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	o.pass(time.Minute - 1)
	o.flows()
}

// A decision that does not end keeps the desk from saying so: the loop does.
func TestADecisionThatDoesNotEndStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := NewMemory()
		memory.Register(toy().Describe())
		l := NewLoop(&torn{}, toy(), memory, Settings{}, nil)
		l.publish()
		ask := func() (events.Stall, bool) {
			s, stalled, _ := l.stalled()
			return s, stalled
		}
		l.mark(time.Now())
		time.Sleep(events.Standstill - 1) // virtual
		if s, stalled := ask(); stalled {
			t.Errorf("too early: %+v", s)
		}
		time.Sleep(1)
		if s, stalled := ask(); !stalled || s.Condition != events.Deciding {
			t.Errorf("it says %+v (%t)", s, stalled)
		}
		l.publish()
		for range 200 { // as a stream that cannot be read, again and again
			l.fail(errors.New("no such stream"))
			time.Sleep(200 * time.Millisecond)
		}
		if s, stalled := ask(); !stalled || s.Condition != events.BusRefuses || s.Detail != "no such stream" {
			t.Errorf("it says %+v (%t)", s, stalled)
		}
		time.Sleep(recent)
		if s, stalled := ask(); stalled {
			t.Errorf("it still says %+v", s)
		}
	})
}
