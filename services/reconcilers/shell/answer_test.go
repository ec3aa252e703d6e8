package shell

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// A change that concerns two keys is answered when both have had their turns.
func TestATicketOfTwoKeysWaitsForBoth(t *testing.T) {
	o := open(t, Settings{})
	db := events.Key{Namespace: "default", Name: "db"}
	at := epoch.Add(time.Hour)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	o.desk.Scheduled(web, at, nil)
	want(t, "a pod of one", o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 2)), "done")
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("db", 3, 0, 0, "wakes"))
	both := o.change(kinds.Pods.Kind, events.Is, aPod("p", "db", 4))
	if len(o.wakes) != 2 || o.wakes[1].Key != db {
		t.Fatalf("the wakes are %+v", o.wakes)
	}
	want(t, "after the turn of the former owner", both, "")
	o.desk.Scheduled(db, at, nil)
	want(t, "after both turns", both, "done")
}

// A ticket is let in by its own message, not by the one before it.
func TestATicketWaitsForItsOwnMessage(t *testing.T) {
	o := open(t, Settings{})
	s := &slip{}
	o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}, 2, events.Trace{}, s)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("db", 1, 0, 0, ""))
	o.run()
	want(t, "one message too early", s, "")
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, ""))
	o.run()
	want(t, "at its message", s, "done")
}

// The last wake that is set is the one that fires, so a later one must not replace
// an earlier one that is still to come.
func TestALaterWakeReplacesNoEarlierOne(t *testing.T) {
	o := open(t, Settings{})
	begun := func(version int, at time.Time) *slip {
		set := aSet("web", version, 0, 0, "wakes")
		set.CreationTimestamp = metav1.NewTime(at)
		return o.change(kinds.ReplicaSets.Kind, events.Is, set)
	}
	begun(1, epoch)
	o.desk.Scheduled(web, epoch.Add(time.Hour), nil)
	want(t, "a later wake", begun(2, epoch.Add(time.Hour)), "done")
	if len(o.wakes) != 1 {
		t.Fatalf("the later wake was set: %+v", o.wakes)
	}
	begun(3, epoch.Add(-time.Minute))
	if len(o.wakes) != 2 || !o.wakes[1].At.Equal(epoch.Add(59*time.Minute)) {
		t.Errorf("the earlier wake was not set: %+v", o.wakes)
	}
}

// What is set aside is answered only when the reason is on record.
func TestParkingThatFailsIsRepeated(t *testing.T) {
	o := open(t, Settings{Attempts: 1})
	bad := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	away := errors.New("the bus is away")
	parks := func(what string) {
		t.Helper()
		if got := o.takeRecalls(); len(got) != 1 || got[0] != events.Park {
			t.Fatalf("%s: recalls are %v", what, got)
		}
	}
	parks("at first")
	o.desk.Recalled(web, events.Park, Past{}, away)
	o.pass(time.Second)
	parks("after a recall that failed")
	o.desk.Recalled(web, events.Park, Past{}, nil)
	o.take(events.Park)
	o.answer(events.Park, 0, away)
	want(t, "while nothing is stored", bad, "")
	o.pass(time.Second)
	parks("after a record that failed")
	o.desk.Recalled(web, events.Park, Past{Sequence: 7}, nil)
	if park := o.take(events.Park); park.expect != 7 {
		t.Errorf("stored behind %d, want 7", park.expect)
	}
	o.answer(events.Park, 8, nil)
	if !strings.HasPrefix(bad.answer, "hopeless: ") {
		t.Errorf("the ticket was answered %q", bad.answer)
	}
}

// A change whose ticket went to another replica has a turn here, too, a little
// later; one that has had its turn has no second.
func TestAChangeWithoutATicketIsLookedAt(t *testing.T) {
	o := open(t, Settings{Second: time.Second})
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.pass(999 * time.Millisecond)
	if len(o.recalls) > 0 {
		t.Fatalf("looked at too early: recalls are %v", o.recalls)
	}
	o.pass(time.Millisecond)
	o.recalled(Past{}, Past{})
	o.take(events.Act)

	other := open(t, Settings{Second: time.Second})
	other.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	before := other.desk.Tally().Nothing
	other.pass(time.Minute)
	if got := other.desk.Tally().Nothing; got != before {
		t.Errorf("looked at %d times after its turn", got-before)
	}
}

// A key that had its turn and changed again is not looked at before its time: the
// ticket of the new change is what its turn is because of.
func TestASecondLookIsNotTooEarly(t *testing.T) {
	o := open(t, Settings{Second: time.Second})
	set := kinds.ReplicaSets.Kind
	o.fold(set, events.Is, aSet("web", 1, 0, 0, "")) // to be looked at in a second
	o.pass(500 * time.Millisecond)
	o.change(set, events.Is, aSet("web", 2, 0, 0, "")) // has its turn at once
	before := o.desk.Tally().Nothing
	o.pass(400 * time.Millisecond)
	o.fold(set, events.Is, aSet("web", 3, 0, 0, "")) // its ticket is on its way
	o.pass(100 * time.Millisecond)                   // a second after the first change
	if got := o.desk.Tally().Nothing; got != before {
		t.Error("looked at because of a change that had its turn")
	}
	o.pass(900 * time.Millisecond)
	if got := o.desk.Tally().Nothing; got != before+1 {
		t.Errorf("looked at %d times a second after the second change, want once", got-before)
	}
}

// The ends of objects are remembered for a while, and not for ever.
func TestEndsAreForgotten(t *testing.T) {
	m := NewMemory()
	m.Register(toy().Describe())
	m.Follow(kinds.Pods.Kind)
	end := func(name string, at uint64, passed time.Duration) {
		message := delta(kinds.Pods.Kind, events.Gone, aPod(name, "web", int(at)), at)
		ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
		d, err := events.DecodeDelta(ref, message)
		if err != nil {
			t.Fatal(err)
		}
		d.At = epoch.Add(passed)
		again := events.EncodeDelta(d)
		again.Subject, again.Sequence = message.Subject, at
		m.Fold(kinds.Pods.Name, []events.Message{again})
	}
	end("a", 1, 0)
	end("b", 2, tombstoneAge)
	if n := len(m.kinds[kinds.Pods.Name].gone); n != 2 {
		t.Errorf("%d ends are remembered, want 2", n)
	}
	end("c", 3, tombstoneAge+time.Second)
	if n := len(m.kinds[kinds.Pods.Name].gone); n != 2 {
		t.Errorf("%d ends are remembered, want the last 2", n)
	}
}
