package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// A create that is carried out twice is unchanged the second time, and may not have been seen
// yet.
func TestUnchangedIsAwaitedToo(t *testing.T) {
	o := begun(t, Settings{})
	found := created("p", "5")
	found.Status = events.Unchanged
	s := o.outcome(events.LaneWrite, 10, found)
	o.none()
	stillWaits(t, "unseen", s)
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	stillWaits(t, "seen, with a report to be stored", s)
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 11, nil)
	served(t, "seen and reported", s)
}

// An earlier version of an object does not count as its next version.
func TestEffectIsAVersionNotAName(t *testing.T) {
	o := open(t, Settings{Pace: -1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.outcome(events.LaneStatus, 1, events.Result{
		Status: events.Applied, UID: "uid-web", Version: "8",
		Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
	})
	o.none()
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 0, 3, ""))
	o.run()
	o.none()
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 8, 0, 2, ""))
	o.run()
	o.take(events.LaneStatus)
}

// A change keeps waiting while only a report is stored and the write is held back.
func TestADroppedPartWaitsOn(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 1, ""))
	o.take(events.LaneStatus) // its creates are held back
	o.answer(events.LaneStatus, 11, nil)
	stillWaits(t, "a change whose creates are held back", s)
}

// A report in flight holds back only decisions that depend on the status.
func TestOnlyWhatRestsOnTheStatusWaitsForAReport(t *testing.T) {
	for how, waits := range map[string]bool{"": true, "overlooks": false} {
		o := open(t, Settings{Pace: -1})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 5, how))
		o.recalled(Past{}, Past{})
		o.take(events.LaneStatus)
		o.answer(events.LaneStatus, 1, nil)
		s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, how))
		if waits {
			o.none()
			o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
		}
		o.take(events.LaneWrite)
		stillWaits(t, "the report of that is to be made", s)
	}
}

// A failure that is reported on the object is not retried because of its own report; a change
// of another client may be the cure.
func TestForeignChangeEndsTheBackoffOnce(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Second, Pace: -1})
	self := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed, Message: "quota"})
	o.none()

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 1, 5, "")) // another client's
	if turn := o.take(events.LaneWrite); turn.Attempt != 2 || turn.ResourceVersion != "2" {
		t.Fatalf("the early try is %+v", turn)
	}
	status := o.take(events.LaneStatus)
	o.answer(events.LaneWrite, 11, nil)
	o.answer(status.Lane, 12, nil)
	o.outcome(events.LaneStatus, 12, events.Result{Status: events.Applied, Ref: self, UID: "uid-web", Version: "3"})
	o.outcome(events.LaneWrite, 11, events.Result{Status: events.Failed, Message: "quota"})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 3, 1, 0, "")) // its own report
	o.none()
	o.change(kinds.Pods.Kind, events.Is, aPod("other", "", 4))
	o.none()

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 5, 1, 0, "")) // the cure
	if turn := o.take(events.LaneWrite); turn.Attempt != 3 || turn.ResourceVersion != "5" {
		t.Fatalf("the second early try is %+v", turn)
	}
	o.answer(events.LaneWrite, 13, nil)
	o.outcome(events.LaneWrite, 13, events.Result{Status: events.Failed, Message: "quota"})
	o.pass(3999 * time.Millisecond)
	o.none() // that version has been tried: 1, 2, 4 s
	o.pass(time.Millisecond)
	o.take(events.LaneWrite)
}

// An outcome may arrive before any of its kinds is followed: the engine awaits its effects all
// the same.
func TestOutcomeBeforeItsKind(t *testing.T) {
	o := &office{t: t, memory: cache.New(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Register(toy().Describe())
	o.engine = New(toy(), o.memory, o, Settings{}, o.now)
	o.engine.Shut(kinds.ReplicaSets.Name)
	o.engine.Shut(kinds.Pods.Name)
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.memory.Follow(kinds.ReplicaSets.Kind)
	o.memory.Follow(kinds.Pods.Kind)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.engine.Open(kinds.ReplicaSets.Name)
	o.engine.Open(kinds.Pods.Name)
	o.run()
	o.recalled(Past{
		Sequence: 10, Turn: &events.Turn{},
		Outcome: &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{created("p", "5")}},
	}, Past{})
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	o.answer(o.take(events.LaneStatus).Lane, 11, nil)
	o.none()
}

// When the turn stream has lost its end, sequences are used again. The outcome of the first
// turn with a sequence says nothing about the second.
func TestTurnStreamThatLostItsEnd(t *testing.T) {
	o := begun(t, Settings{})
	first := o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.run()
	status := o.take(events.LaneStatus)
	o.answer(status.Lane, 11, nil)
	o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 5, 1, 1, ""))
	o.outcome(events.LaneStatus, 11, events.Result{Status: events.Unchanged})
	o.none()
	served(t, "the first outcome", first)

	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 2, 1, ""))
	if turn := o.take(events.LaneWrite); turn.expect != 10 {
		t.Fatalf("stored behind %d, want 10", turn.expect)
	}
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	lost := Past{Sequence: 3, Turn: &events.Turn{}, Outcome: &events.Outcome{
		Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{created("p", "5")},
	}}
	o.recalled(lost, Past{Sequence: 11, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.LaneStatus, Turn: 11}})
	if turn := o.take(events.LaneWrite); turn.expect != 3 {
		t.Fatalf("stored behind %d, want 3", turn.expect)
	}
	o.answer(events.LaneWrite, 4, nil)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 3, 1, ""))
	o.none() // turn 4 has no outcome
	o.outcome(events.LaneWrite, 4, created("q", "8"))
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("q", "web", 8))
	o.run()
	o.take(events.LaneWrite)
}

// The engine waits to see the object that a command conflicted with before the next try: on the
// same view the controller would decide the same again, and the API server would refuse it
// again.
func TestAConflictIsSeenBeforeTheNextTry(t *testing.T) {
	for _, status := range []events.Status{events.Conflict, events.Failed} {
		o := begun(t, Settings{Pace: -1})
		o.outcome(events.LaneWrite, 10, events.Result{
			Status: status, UID: "uid-web", Version: "7",
			Ref: events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"},
		})
		o.pass(time.Second)
		o.none()
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 2, 0, ""))
		o.run()
		if turn := o.take(events.LaneWrite); turn.ResourceVersion != "7" || len(turn.Commands) != 2 {
			t.Errorf("after a %s the turn is %+v, want one of version 7 with two commands", status, turn.Turn)
		}
	}
}

// An outcome in the lane of parked keys belongs to no lane in which turns are decided.
func TestAnOutcomeOfNoLaneOfTurnsSaysNothing(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LanePark, 10, events.Result{Status: events.Failed})
	if e := o.engine.entries[web]; e.write.outcome != 0 || e.status.outcome != 0 || e.dirty {
		t.Errorf("an outcome of a park counts for the write lane %+v, or the status lane %+v", e.write, e.status)
	}
}

// The failure of another replica's turn asks for the next turn.
func TestAFailureIsWhatAsksForTheNextTurn(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Outcome(7, events.Outcome{Key: web, Lane: events.LaneStatus, Turn: 10, Results: []events.Result{{Status: events.Failed}}, Trace: caused(3)})
	e := o.engine.entries[web]
	want := events.Trigger{Stream: subject.OutcomeStream("toy"), Sequence: 7, Trace: caused(3)}
	if e == nil || !e.dirty || e.newest() != want || e.status.outcome != 0 {
		t.Errorf("the key is %+v, want one that %v asks for", e, want)
	}
}

// Only the outcome of the last report tells how long reports take.
func TestWhatTellsHowLongAReportTakes(t *testing.T) {
	for what, c := range map[string]struct {
		lane events.Lane
		turn uint64
		want time.Duration
	}{
		"the last report":   {events.LaneStatus, 9, 3 * time.Second},
		"one before it":     {events.LaneStatus, 8, time.Minute},
		"a write":           {events.LaneWrite, 9, time.Minute},
		"a write before it": {events.LaneWrite, 8, time.Minute},
		"one that took all": {events.LaneStatus, 9, 2 * time.Second},
	} {
		o := open(t, Settings{Progress: time.Hour})
		if what == "one that took all" {
			o.engine.settings.Progress = 2 * time.Second
		}
		e := o.engine.entry(web)
		e.known, e.took, e.lastReport, e.write.turn, e.status.turn = true, time.Minute, epoch, 9, 9
		o.pass(3 * time.Second)
		o.engine.Outcome(1, events.Outcome{Key: web, Lane: c.lane, Turn: c.turn})
		if e.took != c.want {
			t.Errorf("%s: reports take %v, want %v", what, e.took, c.want)
		}
	}
}

// Each outcome is reported once, with its status and how long the turn took.
func TestEachOutcomeIsTold(t *testing.T) {
	var told []string
	o := begun(t, Settings{Answered: func(code int, took time.Duration) { told = append(told, fmt.Sprint(code, " ", took)) }})
	o.pass(3 * time.Second)
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed, Code: 409})
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed, Code: 409})
	if want := []string{"409 3s"}; !cmp.Equal(told, want) {
		t.Errorf("the outcomes were reported as %q, want %q", told, want)
	}
}

// The outcome of the last turn ends its repetitions; that of an earlier one does not.
func TestAnOutcomeEndsRepetitions(t *testing.T) {
	for turn, want := range map[uint64]int{8: 3, 9: 0, 10: 0} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.write.turn, e.write.repeats = 9, 3
		o.engine.inFlight = map[uint64]time.Time{8: epoch, 9: epoch, 10: epoch}
		o.engine.applyOutcome(e, &e.write, events.Outcome{Key: web, Lane: events.LaneWrite, Turn: turn}, 1)
		if _, has := o.engine.inFlight[turn]; e.write.repeats != want || has || len(o.engine.inFlight) != 2 || !o.engine.heardAt.Equal(o.now) {
			t.Errorf("after the outcome of turn %d there were %d repetitions, and writers have %v in flight", turn, e.write.repeats, o.engine.inFlight)
		}
	}
}

// An outcome of the last turn that does not say when that turn was decided keeps the known
// moment.
func TestWhenTheLastTurnWasDecided(t *testing.T) {
	for what, c := range map[string]struct {
		turn    uint64
		decided time.Time
		want    lane
	}{
		"of the last turn":  {9, time.Time{}, lane{turn: 9, decided: epoch}},
		"of an earlier one": {8, earlier, lane{turn: 9, decided: epoch}},
		"of a later one":    {10, earlier, lane{turn: 10, decided: earlier}},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.write.turn, e.write.decided = 9, epoch
		o.engine.applyOutcome(e, &e.write, cameOf(c.turn, c.decided, nothing), 1)
		if l := e.write; l.turn != c.want.turn || !l.decided.Equal(c.want.decided) || l.outcome != c.turn {
			t.Errorf("%s: the last is %d of %v", what, l.turn, l.decided)
		}
	}
}

// The engine knows the version of the key's own object that the controller wrote last.
func TestWhichVersionTheControllerWrote(t *testing.T) {
	own := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}
	for what, c := range map[string]struct {
		result events.Result
		want   string
	}{
		"its own object":       {events.Result{Status: events.Applied, Ref: own, Version: "7"}, "7"},
		"found as it should":   {events.Result{Status: events.Unchanged, Ref: own, Version: "7"}, "7"},
		"of no version":        {events.Result{Status: events.Applied, Ref: own}, "3"},
		"not written":          {events.Result{Status: events.Conflict, Ref: own, Version: "7"}, "3"},
		"another object":       {events.Result{Status: events.Applied, Ref: podOf("web"), Version: "7"}, "3"},
		"another, not written": {events.Result{Status: events.Failed, Ref: podOf("web"), Version: "7"}, "3"},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.wrote = "3"
		o.engine.applyOutcome(e, &e.write, cameOf(9, epoch, c.result), 1)
		if e.wrote != c.want {
			t.Errorf("%s: version %s, want %s", what, e.wrote, c.want)
		}
	}
}

// The engine awaits the applied results of an outcome, in the epoch that it names, and the
// version on which a write was decided.
func TestWhatAnOutcomeLeavesToBeSeen(t *testing.T) {
	for of, want := range map[events.Lane]string{events.LaneWrite: "pods 5 in 4, replicasets.apps 9 in 2", events.LaneStatus: "pods 5 in 4"} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.lane(of).effects = []effect{{Effect: cache.Effect{Result: events.Result{Ref: podOf("old")}}}, {Effect: cache.Effect{Result: events.Result{Ref: podOf("")}, Seen: 4}}}
		o.engine.discoveries = 6
		came := events.Outcome{
			Key: web, Lane: of, Turn: 9, ResourceVersion: "9", Results: []events.Result{created("p", "5"), {Status: events.Applied, Ref: events.Ref{Kind: "configmaps"}, Version: "5"}, {Status: events.Refused, Ref: podOf("q")}},
			Epochs: events.Epochs{"pods": 4, kinds.ReplicaSets.Name: 2},
		}
		o.engine.applyOutcome(e, e.lane(of), came, 1)
		var got []string
		for _, u := range e.lane(of).effects[1:] {
			if got = append(got, fmt.Sprint(u.Result.Ref.Kind, " ", u.Result.Version, " in ", u.Epoch)); u.discovery != 7 || !u.Dated || !u.since.Equal(o.now) {
				t.Errorf("awaited is %+v", u)
			}
		}
		if all := strings.Join(got, ", "); all != want || e.lane(of).effects[0].Seen != 4 {
			t.Errorf("behind the view of the turn are awaited %q, want %q", all, want)
		}
	}
}

// A turn that failed because its view was stale is retried at once, and then backs off as
// others do, one step later. One that a write limit holds is retried at least every 30 seconds.
func TestHowATurnBacksOff(t *testing.T) {
	const s = time.Second
	const refused = events.Refused // by a write limit
	for status, waits := range map[events.Status][]time.Duration{
		events.Failed: {s, 2 * s, 4 * s, 8 * s}, events.Conflict: {0, s, 2 * s, 4 * s}, refused: {s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s},
	} {
		o := open(t, Settings{Backoff: s})
		e := o.engine.entry(web)
		e.write.saw = events.Position{"pods": 1}
		for i, want := range waits {
			o.pass(time.Minute)
			r := events.Result{Status: status}
			if status == refused {
				r.Code, r.Reason, r.Cause = 429, events.Held, "pods"
			}
			o.engine.applyOutcome(e, &e.write, cameOf(uint64(i+1), epoch, r), i+1)
			if l := e.write; !l.notBefore.Equal(o.now.Add(want)) || l.failures != i+1 || !l.failed.Equal(o.now) || l.saw == nil || o.engine.tally.Retries != i+1 {
				t.Errorf("%s, %d times: it waits for %v, want %v; %+v", status, i+1, l.notBefore.Sub(o.now), want, l)
			}
		}
		o.engine.applyOutcome(e, &e.write, cameOf(9, epoch, events.Result{Status: events.Applied}), 5)
		if l := e.write; l.failures != 0 || !l.notBefore.IsZero() || l.saw != nil || o.engine.tally.Retries != len(waits) {
			t.Errorf("after a success the lane is %+v, want no failure, and no back-off", l)
		}
	}
}

// An answer about a key that was dismissed counts as an answer, and changes nothing.
func TestAnswersAboutKeysThatAreGone(t *testing.T) {
	o := open(t, Settings{})
	o.engine.storing = 4
	o.now = o.now.Add(time.Second)
	o.engine.Advance(o.now)
	refused := errors.New("the disk is full")
	o.engine.Recalled(web, events.LaneWrite, underWay(10), nil)
	o.engine.Stored(web, events.LaneWrite, 11, nil)
	o.engine.Recalled(web, events.LaneWrite, Past{}, refused)
	o.engine.Stored(web, events.LaneWrite, 0, refused)
	if d := o.engine; d.storing != 0 || len(d.entries) != 0 || !d.repliedAt.Equal(o.now) || d.recallRefusal.err == nil || d.storeRefusal.err == nil {
		t.Errorf("%d answers are to come, %d keys are known, the bus refuses because of %v and %v", d.storing, len(d.entries), d.recallRefusal.err, d.storeRefusal.err)
	}
	for _, err := range []error{bus.ErrOvertaken, bus.ErrTooLarge, ErrStale} {
		if o.engine.Stored(web, events.LaneWrite, 0, err); !errors.Is(o.engine.storeRefusal.err, refused) {
			t.Errorf("%v says something of the bus", err)
		}
	}
}

// A failed recall ends the suspicion that began it: a later recall for another reason must not
// act on it.
func TestARecallThatFailsLeavesNoSuspicion(t *testing.T) {
	o := begun(t, Settings{})
	o.attend(12 * time.Second)
	if got := o.takeRecalls(); len(got) != 2 {
		t.Fatalf("recalls are %v", got)
	}
	o.engine.Recalled(web, events.LaneStatus, Past{}, nil)
	o.engine.Recalled(web, events.LaneWrite, Past{}, errors.New("away"))
	e := o.engine.entries[web]
	if e.write.suspected || e.write.past != nil || !e.write.watched || e.retries != 1 || e.recallFailed {
		t.Errorf("the lane is %+v after %d retries", e.write, e.retries)
	}
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.engine.Invalidate()
	o.pass(time.Second)
	o.recalled(underWay(10), Past{})
	o.none()
}

// A key that another replica takes over during its recall is dropped, whether or not the recall
// succeeds.
func TestAKeyThatIsGivenAwayIsForgottenAfterItsRecall(t *testing.T) {
	for _, err := range []error{nil, errors.New("away")} {
		o := open(t, Settings{})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		o.engine.Own(0)
		o.engine.Recalled(web, events.LaneWrite, Past{}, err)
		if len(o.engine.entries) != 1 {
			t.Error("the key is forgotten while an answer is to come")
		}
		if o.engine.Recalled(web, events.LaneStatus, Past{}, nil); len(o.engine.entries) != 0 {
			t.Errorf("the key is still known after a recall (%v), want it forgotten", err)
		}
	}
}

// A recall that finds a missed outcome asks for a turn at once, of a key that wants nothing
// else.
func TestAMissedOutcomeAsksForATurn(t *testing.T) {
	for what, c := range map[string]struct {
		write, status Past
		want          bool
	}{
		"a write's":              {settledAt(10), Past{Sequence: 9, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.LaneStatus, Turn: 9}}, true},
		"a write's, and more":    {settledAt(10), Past{Sequence: 9, Turn: &events.Turn{}}, false},
		"none":                   {Past{Sequence: 10, Turn: &events.Turn{}}, Past{}, false},
		"a report's, no write's": {Past{Sequence: 10, Turn: &events.Turn{}}, Past{Sequence: 9, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.LaneStatus, Turn: 9}}, false},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.write.turn, e.status.turn = 10, 9
		o.engine.recall(e)
		o.engine.Recalled(web, events.LaneWrite, c.write, nil)
		o.engine.Recalled(web, events.LaneStatus, c.status, nil)
		if e.dirty != c.want || c.want && (!e.Queued || e.Rank != workqueue.AfterRecall) || !e.known {
			t.Errorf("%s: the key asks for a turn: %t, with rank %d", what, e.dirty, e.Rank)
		}
	}
	for of, before := range map[events.Lane]lane{events.LaneWrite: {turn: 10}, events.LaneStatus: {turn: 9}} { // of one lane alone
		o := open(t, Settings{})
		e := o.engine.entry(web)
		*e.lane(of) = before
		o.engine.recall(e)
		o.engine.Recalled(web, events.LaneWrite, settledAt(10), nil)
		if o.engine.Recalled(web, events.LaneStatus, Past{}, nil); !e.dirty {
			t.Errorf("a missed outcome of lane %s asks for no turn", of)
		}
	}
	o := open(t, Settings{})
	e := o.engine.entry(web)
	o.engine.recall(e)
	o.engine.Recalled(web, events.LaneWrite, settledAt(10), nil)
	if o.engine.Recalled(web, events.LaneStatus, Past{}, nil); e.dirty {
		t.Error("an outcome that is no news asks for a turn")
	}
	if _, kept := o.engine.last(web, events.LaneWrite); kept {
		t.Error("a success is remembered that nothing asks for")
	}
}

// settledAt is the past of a turn that succeeded.
func settledAt(turn uint64) Past {
	return Past{Sequence: turn, Turn: &events.Turn{}, Outcome: &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: turn}}
}

// The engine repeats a refused store or recall after a wait that doubles, and that starts anew
// when the bus has accepted one.
func TestABusThatRefusesIsAskedLessAndLess(t *testing.T) {
	away := errors.New("away")
	for _, what := range []string{"turns", "recalls"} {
		o := open(t, Settings{})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
		refuse := func() {
			o.t.Helper()
			if what == "recalls" {
				o.takeRecalls()
				o.engine.Recalled(web, events.LaneWrite, Past{}, away)
				o.engine.Recalled(web, events.LaneStatus, Past{}, away)
				o.run()
				return
			}
			o.recalled(Past{}, Past{})
			o.take(events.LaneWrite)
			o.answer(events.LaneWrite, 0, away)
		}
		waits := func(wait time.Duration) {
			t.Helper()
			if refuse(); !o.engine.entries[web].until.Equal(o.now.Add(wait)) {
				t.Errorf("refused %s wait for %v, want %v", what, o.engine.entries[web].until.Sub(o.now), wait)
			}
			o.pass(wait - 1)
			if o.none(); len(o.recalls) > 0 {
				t.Errorf("refused %s are asked for before %v are over", what, wait)
			}
			o.pass(1)
		}
		for wait := 5 * time.Millisecond; wait < mostRefused; wait *= 2 {
			waits(wait)
		}
		waits(mostRefused)
		waits(mostRefused)
		o.recalled(Past{}, Past{})
		o.take(events.LaneWrite)
		o.answer(events.LaneWrite, 1, nil)
		o.outcome(events.LaneWrite, 1, nothing)
		o.pass(time.Second)
		o.take(events.LaneWrite)
		o.answer(events.LaneWrite, 0, away)
		if got := o.engine.entries[web].until.Sub(o.now); got != 5*time.Millisecond {
			t.Errorf("after one turn was taken, a refused one waits for %v, want 5ms", got)
		}
	}
}

// Doubt also looks at a key that waits for a timer, so that the key is recalled.
func TestInDoubtAKeyThatWaitsIsLookedAt(t *testing.T) {
	o := open(t, Settings{})
	waits, rests := o.engine.entry(web), o.engine.entry(events.Key{Name: "db"})
	waits.dirty = true
	if o.engine.Invalidate(); !waits.Queued || rests.Queued || waits.mustRecall || rests.dirty {
		t.Errorf("a key that waits is looked at: %t, and one that wants nothing: %t", waits.Queued, rests.Queued)
	}
}

// The number of failures is the one known, or the one in the recalled turn, whichever is more.
func TestHowOftenARecalledTurnHasFailed(t *testing.T) {
	failed := func(turn uint64) *events.Outcome {
		return &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: turn, Results: []events.Result{{Status: events.Failed}}}
	}
	known := func(failures int) lane { return lane{turn: 7, outcome: 7, failures: failures} }
	for what, c := range map[string]struct {
		known    lane
		past     Past
		failures int
	}{
		"more than is known":      {known(1), Past{Sequence: 7, Turn: &events.Turn{Attempt: 4}, Outcome: failed(7)}, 4},
		"it went well":            {known(0), Past{Sequence: 7, Turn: &events.Turn{Attempt: 4}, Outcome: failed(7)}, 0},
		"another one is last":     {known(2), Past{Sequence: 8, Turn: &events.Turn{Attempt: 9}, Outcome: failed(7)}, 2},
		"that has no outcome":     {known(2), Past{Sequence: 8, Turn: &events.Turn{Attempt: 9}}, 2},
		"it cannot be read":       {known(2), Past{Sequence: 7, Outcome: failed(7)}, 2},
		"the first, made anew":    {lane{turn: 9, outcome: 9}, Past{Sequence: 1, Turn: &events.Turn{Attempt: 3}, Outcome: failed(1)}, 3},
		"an earlier one's result": {known(2), Past{Sequence: 8, Turn: &events.Turn{Attempt: 9}, Outcome: failed(5)}, 2},
	} {
		o := open(t, Settings{})
		e := o.engine.entry(web)
		e.write = c.known
		if o.engine.merge(e, events.LaneWrite, c.past); e.write.failures != c.failures || e.write.turn != c.past.Sequence {
			t.Errorf("%s: turn %d has failed %d times, want %d", what, e.write.turn, e.write.failures, c.failures)
		}
	}
}
