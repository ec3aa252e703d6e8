package shell

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// attend lets time pass while a writer says what it has in hand.
func (o *office) attend(d time.Duration, turns ...uint64) {
	for ; d > 0; d -= time.Second {
		o.pass(time.Second)
		o.desk.Beat(events.Beat{Writer: "w", Turns: map[string][]uint64{"toy": turns}})
	}
}

// underWay is what the streams hold of the turn that [begun] has stored.
func underWay(sequence uint64) Past {
	return Past{Sequence: sequence, Turn: &events.Turn{
		Controller: "toy", Key: web, Lane: events.Act, Now: epoch, Because: "0 of 1", ResourceVersion: "1",
		Commands: []events.Command{{Verb: events.VerbCreate, Kind: kinds.Pods.Name, Name: "p"}},
	}}
}

// A turn that has no outcome, and that no writer has in hand, is stored again,
// word for word; its key goes on when that one has its outcome.
func TestAnOrphanedTurnIsRepeated(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(9 * time.Second)
	if got := o.takeRecalls(); len(got) > 0 {
		t.Fatalf("suspected too early: %v", got)
	}
	o.attend(3 * time.Second)
	o.recalled(underWay(10), Past{})
	again := o.take(events.Act)
	want := *underWay(10).Turn
	want.Repeats = 10
	if diff := cmp.Diff(want, again.Turn); diff != "" || again.expect != 10 {
		t.Fatalf("behind %d, (-want +got)\n%s", again.expect, diff)
	}
	o.answer(events.Act, 11, nil)
	o.none()
	o.outcome(events.Act, 11, events.Result{Status: events.Unchanged})
	o.run()
	if turn := o.take(events.Act); turn.expect != 11 || turn.Repeats != 0 {
		t.Errorf("the next turn is %+v", turn)
	}
}

// What a writer has in hand is no orphan, however long it takes; when the writer
// has gone and nobody else took it, it is.
func TestATurnInHandIsNoOrphan(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(time.Minute, 10)
	if got := o.takeRecalls(); len(got) > 0 {
		t.Fatalf("suspected although it is in hand: %v", got)
	}
	o.attend(21*time.Second, 9)
	o.recalled(underWay(10), Past{})
	o.take(events.Act)
}

// While there is no writer at all, nothing is gained by asking again.
func TestWithoutWritersNothingIsRepeated(t *testing.T) {
	o := begun(t, Settings{})
	o.pass(time.Hour)
	if got := o.takeRecalls(); len(got) > 0 {
		t.Fatalf("suspected without a writer: %v", got)
	}
	o.attend(21 * time.Second)
	o.recalled(underWay(10), Past{})
	o.take(events.Act)
}

// An outcome that only this desk has not heard of is found in the stream.
func TestAnOutcomeThatWasMissedIsFound(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	past := underWay(10)
	past.Outcome = &events.Outcome{Key: web, Lane: events.Act, Turn: 10, Results: []events.Result{{Status: events.Unchanged}}}
	o.recalled(past, Past{})
	o.none()
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	if turn := o.take(events.Act); turn.expect != 10 || turn.Repeats != 0 {
		t.Errorf("the next turn is %+v", turn)
	}
}

// Of a turn that nobody can read an empty repetition is stored, so that the key
// goes on.
func TestAnOrphanThatCannotBeRead(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	o.recalled(Past{Sequence: 10}, Past{})
	again := o.take(events.Act)
	if again.Repeats != 10 || len(again.Commands) != 0 || again.Key != web || again.Controller != "toy" {
		t.Errorf("stored %+v", again)
	}
}

// Of many desks one repeats. The others recall what it stored and look after
// that; a repetition that is not served either is repeated more and more rarely.
func TestRepetitionsOfManyDesks(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	o.take(events.Act)
	o.answer(events.Act, 0, bus.ErrOvertaken)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.recalled(underWay(12), Past{})
	o.none()
	for turn, wait := uint64(12), 10*time.Second; turn < 15; turn++ {
		o.attend(wait - time.Second)
		if got := o.takeRecalls(); len(got) > 0 {
			t.Fatalf("turn %d: suspected before %v", turn, wait)
		}
		o.attend(12 * time.Second)
		o.recalled(underWay(turn), Past{})
		if again := o.take(events.Act); again.Repeats != turn {
			t.Fatalf("stored %+v", again)
		}
		o.answer(events.Act, turn+1, nil)
		wait *= 2
	}
}

// A desk that comes new finds the orphan as soon as the key wants something.
func TestAnOrphanOfThePastIsRepeated(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(underWay(10), Past{})
	o.none()
	o.attend(12 * time.Second)
	o.recalled(underWay(10), Past{})
	if again := o.take(events.Act); again.Repeats != 10 {
		t.Errorf("stored %+v", again)
	}
}

// What has not come to a writer yet, because it has as much in hand as it is given, is no
// orphan; nor is what it has in hand and has not looked at.
func TestWhatWaitsBehindOthersIsNoOrphan(t *testing.T) {
	for name, c := range map[string]struct {
		beat  events.Beat
		waits bool
	}{
		"behind a crowd":          {events.Beat{Turns: map[string][]uint64{"toy": {8}}, Waiting: map[string][]uint64{"toy": {9}}, Full: []string{"toy"}}, true},
		"waiting in hand":         {events.Beat{Waiting: map[string][]uint64{"toy": {10}}}, true},
		"passed over by a crowd":  {events.Beat{Turns: map[string][]uint64{"toy": {8, 11}}, Full: []string{"toy"}}, false},
		"another one has a crowd": {events.Beat{Turns: map[string][]uint64{"other": {8}}, Full: []string{"other"}}, false},
	} {
		o := begun(t, Settings{})
		for range 21 {
			o.pass(time.Second)
			o.desk.Beat(c.beat)
		}
		if got := o.takeRecalls(); (len(got) == 0) != c.waits {
			t.Errorf("%s: %d recalls, and it waits: %t", name, len(got), c.waits)
		}
		if !c.waits {
			continue
		}
		o.attend(21*time.Second, 8) // until the writers have room, and do not have it
		if got := o.takeRecalls(); len(got) == 0 {
			t.Errorf("%s: it is an orphan by now, and nobody asks", name)
		}
	}
}

// However many turns are said to be in flight, what is remembered of that is bounded, and there is
// room again when they are not said any more.
func TestMadeUpTurnsInHandAreBounded(t *testing.T) {
	o := begun(t, Settings{})
	turns := make([]uint64, 30_000)
	for from := range 10 {
		for i := range turns {
			turns[i] = uint64(1000 + from*len(turns) + i)
		}
		o.desk.Beat(events.Beat{Writer: "ghost", Turns: map[string][]uint64{"toy": turns}})
	}
	if got := len(o.desk.inHand); got > mostInHand {
		t.Errorf("%d turns are remembered, want %d at most", got, mostInHand)
	}
	o.attend(time.Minute, 10)
	if got := o.desk.inHand[10]; len(o.desk.inHand) > crowd || got.IsZero() {
		t.Errorf("a minute later %d turns are remembered, and that of a writer since %v", len(o.desk.inHand), got)
	}
}
