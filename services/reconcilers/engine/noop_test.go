package engine

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// haunted is an office whose set wants no pod and sees one that, by the API server, is gone.
func haunted(t *testing.T, leaving bool) (o *office, suspicions *[]string) {
	suspicions = new([]string)
	o = open(t, Settings{Suspect: func(d report.Damage) { *suspicions = append(*suspicions, string(d.Kind)+": "+d.Hole.Reason) }})
	ghost := aPod("ghost", "web", 1)
	if leaving {
		at := metav1.NewTime(epoch)
		ghost.DeletionTimestamp = &at
	}
	o.change(kinds.Pods.Kind, events.Is, ghost)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 1, ""))
	o.recalled(Past{}, Past{})
	return o, suspicions
}

var ghostIsGone = events.Result{
	Status: events.Unchanged, Removed: true, UID: "uid-ghost", Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: "ghost"},
}

// haunt lets time pass, with a writer that finds nothing to do each time. It returns the number
// of turns.
func (o *office) haunt(d time.Duration, sequence *uint64) (turns int) {
	for end := o.now.Add(d); o.now.Before(end); o.pass(20 * time.Millisecond) {
		for _, w := range o.wakes {
			o.engine.Scheduled(web, w.At, nil)
		}
		o.wakes = nil
		for len(o.stored) > 0 && turns < 1000 {
			o.take(events.LaneWrite)
			*sequence++
			turns++
			o.answer(events.LaneWrite, *sequence, nil)
			o.outcome(events.LaneWrite, *sequence, ghostIsGone)
		}
	}
	return turns
}

// TestWhatChangesNothingIsNotDecidedAgainAtOnce, but less and less often, until the controller
// decides something else on another view.
func TestWhatChangesNothingIsNotDecidedAgainAtOnce(t *testing.T) {
	o, suspicions := haunted(t, true)
	sequence := uint64(0)
	if turns := o.haunt(time.Minute, &sequence); turns < 5 || turns > 20 {
		t.Errorf("%d turns in the first minute, want at least 5 and at most 20", turns)
	}
	if turns := o.haunt(time.Minute, &sequence); turns > 2 {
		t.Errorf("%d turns in the second minute, want at most 2", turns)
	}
	if n := len(*suspicions); n == 0 || n > 5 {
		t.Errorf("suspected %d times: %v", n, *suspicions)
	}
	o.change(kinds.Pods.Kind, events.Is, aPod("other", "web", 2)) // to be deleted, too
	if turn := o.take(events.LaneWrite); len(turn.Commands) != 2 {
		t.Errorf("the new decision is %+v", turn)
	}
}

// TestAGhostIsReported, and nothing is decided about it meanwhile.
func TestAGhostIsReported(t *testing.T) {
	o, suspicions := haunted(t, false)
	sequence := uint64(0)
	if turns := o.haunt(suspectAfter-time.Second, &sequence); turns != 1 || len(*suspicions) > 0 {
		t.Errorf("%d turns, want one; suspected already: %v", turns, *suspicions)
	}
	o.haunt(4*time.Second, &sequence)
	if len(*suspicions) != 1 || !strings.HasPrefix((*suspicions)[0], "pods: the API server says that ") {
		t.Fatalf("suspected: %v, want one suspicion of pods", *suspicions)
	}
	o.change(kinds.Pods.Kind, events.Gone, aPod("ghost", "web", 1))
	o.take(events.LaneStatus) // the report of no pods
	if turns := o.haunt(time.Minute, &sequence); turns > 0 || len(*suspicions) != 1 {
		t.Errorf("after the repair there were %d turns, and the suspicions are %v; want none and one", turns, *suspicions)
	}
}

// The engine suspects a disagreement that has lasted for ten seconds about one object. A
// disagreement about another object starts anew, and an agreement in between ends it.
func TestWhenADisagreementIsSuspected(t *testing.T) {
	var told int
	o := open(t, Settings{Suspect: func(report.Damage) { told++ }})
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "", 1))
	o.fold(kinds.Pods.Kind, events.Is, aPod("b", "", 2))
	gone := func(called string) events.Outcome {
		return events.Outcome{Results: []events.Result{{
			Status: events.Unchanged, Removed: true, Ref: podOf(called), UID: aPod(called, "", 1).UID,
		}}}
	}
	l := &lane{}
	weigh := func(what string, after time.Duration, came events.Outcome, want int) {
		t.Helper()
		o.engine.now = o.engine.now.Add(after)
		if o.engine.countNoOps(l, came); told != want {
			t.Errorf("%s: the engine suspected damage %d times, want %d", what, told, want)
		}
	}
	weigh("at first", 0, gone("a"), 0)
	weigh("before ten seconds", 10*time.Second-1, gone("a"), 0)
	weigh("another object", 1, gone("b"), 0)
	weigh("which is young", 9*time.Second, gone("b"), 0)
	weigh("after ten seconds", time.Second, gone("b"), 1)
	weigh("what agrees", 0, gone("none"), 1)
	weigh("and again", 0, gone("b"), 1)
	weigh("which is young again", 10*time.Second-1, gone("b"), 1)
	weigh("for long", 1, gone("b"), 2)
	o.engine.Shut(kinds.Pods.Name)
	weigh("of a kind that is not read", 0, gone("b"), 2)
	if l.noOps.divergent != "" {
		t.Errorf("of a kind that is not read %s counts as divergent", l.noOps.divergent)
	}
}

// An overdue effect is suspected when the memory contradicts it.
func TestWhichOverdueEffectsAreSuspected(t *testing.T) {
	var told []string
	o := open(t, Settings{Suspect: func(d report.Damage) { told = append(told, d.About.Name) }})
	o.fold(kinds.Pods.Kind, events.Is, aPod("a", "", 1))
	o.fold(kinds.Pods.Kind, events.Is, aPod("b", "", 2))
	o.engine.now = o.engine.now.Add(time.Hour)
	at := func(called string, age time.Duration) effect {
		u := of("pods", called, aPod(called, "", 1).UID, "", true)
		u.since = o.engine.now.Add(-age)
		return u
	}
	o.engine.reportOverdue([]effect{at("a", 10*time.Second-1), at("none", time.Minute)})
	if len(told) != 0 {
		t.Errorf("suspected are %v", told)
	}
	if o.engine.reportOverdue([]effect{at("a", 10*time.Second-1), at("b", 10*time.Second)}); len(told) != 1 || told[0] != "b" {
		t.Errorf("suspected are %v", told)
	}
}
