package engine

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

func TestWhatAResultLeavesToBeSeen(t *testing.T) {
	for _, c := range []struct {
		result events.Result
		some   bool
	}{
		{events.Result{Status: events.Applied}, true},
		{events.Result{Status: events.Unchanged}, false},
		{events.Result{Status: events.Unchanged, Version: "5"}, true},
		{events.Result{Status: events.Unchanged, Removed: true}, true},
		{events.Result{Status: events.Conflict}, false},
		{events.Result{Status: events.Conflict, Version: "5"}, true},
		{events.Result{Status: events.Failed}, false},
		{events.Result{Status: events.Failed, Version: "5"}, true},
		{events.Result{Status: events.Refused, Version: "5"}, false},
		{events.Result{Status: events.Answered, Version: "5"}, false},
	} {
		if becomesVisible(c.result) != c.some {
			t.Errorf("%+v: %t", c.result, !c.some)
		}
	}
}

// An outcome is stale when all failed commands would succeed on the present view.
func TestWhichOutcomesAreStale(t *testing.T) {
	applied, conflict, skipped := events.Result{Status: events.Applied}, events.Result{Status: events.Conflict}, events.Result{Status: events.Skipped}
	old, refused, failed := events.Result{Status: events.Refused, Reason: "Stale"}, events.Result{Status: events.Refused, Reason: "Forbidden"}, events.Result{Status: events.Failed, Reason: "Stale"}
	for _, c := range []struct {
		results []events.Result
		is      bool
	}{
		{nil, true}, {[]events.Result{applied}, true}, {[]events.Result{applied, conflict, skipped, old}, true},
		{[]events.Result{refused}, false}, {[]events.Result{conflict, refused}, false}, {[]events.Result{failed}, false}, {[]events.Result{old, failed}, false},
	} {
		if stale(events.Outcome{Results: c.results}) != c.is {
			t.Errorf("%+v: %t", c.results, !c.is)
		}
	}
}

func TestOutcomesThatChangedNothing(t *testing.T) {
	same, applied := events.Result{Status: events.Unchanged}, events.Result{Status: events.Applied}
	answered := events.Result{Status: events.Answered}
	noted := events.Result{Status: events.Unchanged, Answer: &events.Answer{}}
	for _, c := range []struct {
		results       []events.Result
		none, answers bool
	}{
		{nil, false, false}, {[]events.Result{same}, true, false}, {[]events.Result{same, same}, true, false},
		{[]events.Result{same, applied}, false, false}, {[]events.Result{answered}, false, true}, {[]events.Result{same, answered}, false, true},
		{[]events.Result{same, noted}, true, true},
	} {
		o := events.Outcome{Results: c.results}
		if changedNothing(o) != c.none || hasAnswer(o) != c.answers {
			t.Errorf("%+v: it changed nothing: %t, it answers: %t", c.results, changedNothing(o), hasAnswer(o))
		}
	}
}

// A part of a decision passes when it has commands, its lane is open, and its wait is over.
func TestWhichPartsOfADecisionPass(t *testing.T) {
	some := reconcile.Do("so", events.Command{Verb: events.VerbCreate})
	for what, c := range map[string]struct {
		part      reconcile.Decision
		open      bool
		notBefore time.Time
		pass      bool
		until     time.Time
	}{
		"at once":        {some, true, time.Time{}, true, time.Time{}},
		"nothing":        {reconcile.Decision{}, true, epoch.Add(1), false, time.Time{}},
		"a lane is shut": {some, false, epoch.Add(1), false, time.Time{}},
		"too early":      {some, true, epoch.Add(1), false, epoch.Add(1)},
		"in time":        {some, true, epoch, true, time.Time{}},
	} {
		if pass, until := laneMayStore(c.part, c.open, c.notBefore, epoch); pass != c.pass || !until.Equal(c.until) {
			t.Errorf("%s: the lane may store: %t, or waits until %v", what, pass, until)
		}
	}
	record := events.Command{Verb: events.VerbRecord}
	if !onlyEvents(reconcile.Do("so", record, record)) || onlyEvents(reconcile.Do("so", record, events.Command{Verb: events.VerbUpdate})) {
		t.Error("onlyEvents is wrong about Events alone, or about Events and an update")
	}
}

// The known outcome of a lane is outlived when the stream has another turn at that sequence, or
// none.
func TestALaneThatIsOutlived(t *testing.T) {
	at := func(decided time.Time) *events.Turn { return &events.Turn{Now: decided} }
	for what, c := range map[string]struct {
		turn, outcome uint64
		decided       time.Time
		past          Past
		is            bool
	}{
		"an earlier outcome":      {7, 6, epoch, Past{Sequence: 7, Turn: at(epoch)}, false},
		"the same turn":           {7, 7, epoch, Past{Sequence: 7, Turn: at(epoch)}, false},
		"another in its place":    {7, 7, epoch, Past{Sequence: 7, Turn: at(epoch.Add(1))}, true},
		"one that cannot be read": {7, 7, epoch, Past{Sequence: 7}, false},
		"an earlier turn is last": {7, 7, epoch, Past{Sequence: 6, Turn: at(epoch)}, true},
		"an outcome of no turn":   {6, 7, epoch, Past{Sequence: 7, Turn: at(epoch)}, true},
		"nothing is there":        {0, 0, time.Time{}, Past{}, false},
	} {
		l := lane{turn: c.turn, outcome: c.outcome, decided: c.decided}
		if l.outlived(c.past) != c.is {
			t.Errorf("%s: the lane was outlived: %t, want %t", what, !c.is, c.is)
		}
	}
}

// An entry names the newest triggers.
func TestTriggersAreBounded(t *testing.T) {
	e := &entry{}
	for i := range events.MaxTriggers + 2 {
		e.addTrigger(events.Trigger{Sequence: uint64(i)})
	}
	if len(e.Triggers) != events.MaxTriggers || e.Triggers[0].Sequence != 2 {
		t.Errorf("an entry has %d causes, the first %v", len(e.Triggers), e.Triggers[0])
	}
}

func TestMomentsInOrder(t *testing.T) {
	zero, a, b := time.Time{}, epoch, epoch.Add(time.Second)
	for _, c := range []struct{ x, y, earliest, latest time.Time }{
		{a, b, a, b}, {b, a, a, b}, {zero, a, a, a}, {a, zero, a, a}, {zero, zero, zero, zero}, {a, a, a, a},
	} {
		if got := earliest(c.x, c.y); !got.Equal(c.earliest) {
			t.Errorf("the earliest of %v and %v is %v", c.x, c.y, got)
		}
		if got := latest(c.x, c.y); !got.Equal(c.latest) {
			t.Errorf("the latest of %v and %v is %v", c.x, c.y, got)
		}
	}
	for _, c := range []struct {
		x, y time.Time
		same bool
	}{{a, a, true}, {a, b, false}, {zero, b, true}, {a, zero, true}} {
		if sameMoment(c.x, c.y) != c.same {
			t.Errorf("%v and %v are the same: %t", c.x, c.y, !c.same)
		}
	}
	if timeOrNil(zero) != nil || timeOrNil(a) == nil || !timeOrNil(a).Equal(a) {
		t.Error("no moment is not told from one")
	}
}
