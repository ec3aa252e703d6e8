package engine

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// office is an engine with a door whose answers the test gives.
type office struct {
	t        *testing.T
	memory   *cache.Cache
	engine   *Engine
	now      time.Time
	stored   []storedTurn
	recalls  []events.Lane
	wakes    []events.Wake
	reaches  []kinds.Name
	sequence map[kinds.Name]uint64
}

type storedTurn struct {
	events.Turn
	expect uint64
}

func (o *office) Store(t events.Turn, expect uint64) {
	o.stored = append(o.stored, storedTurn{t, expect})
}
func (o *office) Recall(_ events.Key, lane events.Lane) { o.recalls = append(o.recalls, lane) }
func (o *office) Schedule(w events.Wake)                { o.wakes = append(o.wakes, w) }
func (o *office) Reach(kind kinds.Name)                 { o.reaches = append(o.reaches, kind) }

// wish is a change or an outcome that asks for a turn of a key.
type wish struct{ waits func() bool }

func open(t *testing.T, settings Settings) *office {
	o := &office{t: t, memory: cache.New(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Follow(kinds.ReplicaSets.Kind)
	o.memory.Follow(kinds.Pods.Kind)
	o.memory.Register(toy().Describe())
	o.engine = New(toy(), o.memory, o, settings, o.now)
	return o
}

// fold folds a message and returns its sequence.
func (o *office) fold(kind kinds.Kind, op events.Op, obj object) uint64 {
	o.sequence[kind.Name]++
	at := o.sequence[kind.Name]
	o.memory.Fold(kind.Name, []events.Message{delta(kind, op, obj, at)})
	o.engine.Folded(kind.Name)
	return at
}

// change folds an object, and lets the engine work.
func (o *office) change(kind kinds.Kind, op events.Op, obj object) wish {
	made := o.wish(kind, o.fold(kind, op, obj))
	o.run()
	return made
}

// wish is the wish of a change.
func (o *office) wish(kind kinds.Kind, sequence uint64) wish {
	asks := func(t events.Trigger) bool { return t.Ref.Kind == kind.Name && t.Sequence == sequence }
	return wish{func() bool {
		return slices.ContainsFunc(o.engine.sorted(), func(e *entry) bool {
			return (e.dirty || e.round != nil) && slices.ContainsFunc(e.Triggers, asks)
		})
	}}
}

func (o *office) run() {
	for n := 0; o.engine.Step(); n++ {
		if n > 1000 {
			o.t.Fatal("the engine does not come to rest")
		}
	}
}

func (o *office) pass(d time.Duration) {
	o.now = o.now.Add(d)
	o.engine.Advance(o.now)
	o.run()
}

var web = events.Key{Namespace: "default", Name: "web"}

// recalled answers both recalls of a key with the past of each lane.
func (o *office) recalled(write, status Past) {
	o.t.Helper()
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LaneWrite, events.LaneStatus}) {
		o.t.Fatalf("recalls are %v", got)
	}
	o.engine.Recalled(web, events.LaneWrite, write, nil)
	o.engine.Recalled(web, events.LaneStatus, status, nil)
	o.run()
}

func (o *office) takeRecalls() []events.Lane {
	r := o.recalls
	o.recalls = nil
	return r
}

// take returns the oldest stored turn that has not been taken, and checks its lane.
func (o *office) take(lane events.Lane) storedTurn {
	o.t.Helper()
	if len(o.stored) == 0 || o.stored[0].Lane != lane {
		o.t.Fatalf("want a turn in lane %s, have %+v", lane, o.stored)
	}
	s := o.stored[0]
	o.stored = o.stored[1:]
	return s
}

func (o *office) none() {
	o.t.Helper()
	if len(o.stored) > 0 {
		o.t.Fatalf("want no turn, have %+v", o.stored)
	}
}

func (o *office) answer(lane events.Lane, sequence uint64, err error) {
	o.engine.Stored(web, lane, sequence, err)
	o.run()
}

func (o *office) outcome(lane events.Lane, turn uint64, results ...events.Result) wish {
	return o.heard(events.Outcome{Controller: "toy", Key: web, Lane: lane, Turn: turn, Results: results})
}

func (o *office) heard(came events.Outcome) wish {
	o.engine.Outcome(came.Turn, came)
	o.run()
	return wish{func() bool {
		e, ok := o.engine.entries[web]
		if !ok {
			return false
		}
		l := e.lane(came.Lane)
		return e.dirty || e.round != nil || l.turn == came.Turn && !l.settled()
	}}
}

func served(t *testing.T, what string, w wish) {
	t.Helper()
	if w.waits() {
		t.Errorf("%s: the key waits for its turn", what)
	}
}

func stillWaits(t *testing.T, what string, w wish) {
	t.Helper()
	if !w.waits() {
		t.Errorf("%s: the key does not wait for its turn", what)
	}
}

func created(name, version string) events.Result {
	return events.Result{
		Status: events.Applied, UID: "uid-" + "x", Version: version,
		Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name},
	}
}

// begun is an office whose key web has a turn of the write lane, number 10, in flight: it creates one pod.
func begun(t *testing.T, settings Settings) *office {
	o := open(t, settings)
	first := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	if turn := o.take(events.LaneWrite); turn.expect != 0 || len(turn.Commands) != 1 {
		t.Fatalf("the first turn is %+v", turn)
	}
	stillWaits(t, "before the turn is stored", first)
	o.answer(events.LaneWrite, 10, nil)
	served(t, "after the turn is stored", first)
	return o
}

func TestAChangeWithoutKeysAsksForNothing(t *testing.T) {
	o := open(t, Settings{})
	served(t, "a pod of no set", o.change(kinds.Pods.Kind, events.Is, aPod("alone", "", 1)))
	if len(o.engine.entries) > 0 {
		t.Errorf("%d keys are known", len(o.engine.entries))
	}
}

func TestAChangeAsksForTheFormerOwner(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.recallTellNothing()
	released := o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 6))
	if len(o.stored) == 0 {
		t.Fatal("the former owner has had no turn")
	}
	stillWaits(t, "released", released)
}

// recallTellNothing completes the stored turns, and folds the status that a report has written.
func (o *office) recallTellNothing() {
	for at := uint64(20); len(o.stored) > 0; at++ {
		s := o.stored[0]
		o.stored = o.stored[1:]
		o.answer(s.Lane, at, nil)
		o.outcome(s.Lane, at, events.Result{Status: events.Unchanged})
		o.pass(time.Second)
		if s.Lane == events.LaneStatus {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 1, 1, ""))
		}
	}
}

func TestManyChangesMakeOneTurn(t *testing.T) {
	o := open(t, Settings{})
	var all []wish
	for i := range 5 {
		all = append(all, o.wish(kinds.ReplicaSets.Kind, o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", i+1, 1, 0, ""))))
	}
	o.run()
	o.recalled(Past{}, Past{})
	turn := o.take(events.LaneWrite)
	o.none()
	if len(turn.Triggers) != 5 || turn.ResourceVersion != "5" || turn.Seen[kinds.ReplicaSets.Name] != 5 {
		t.Errorf("the turn does not name what it rests on: %+v", turn.Turn)
	}
	o.answer(events.LaneWrite, 1, nil)
	for _, w := range all {
		served(t, "each change", w)
	}
}

// The fence needs both halves: the outcome, and its effects.
func TestActWaitsForOutcomeAndEffect(t *testing.T) {
	o := begun(t, Settings{})
	more := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.none()
	late := o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("other", "", 9))
	o.run()
	o.none()
	stillWaits(t, "a change while the fence is shut", more)
	stillWaits(t, "the outcome while the fence is shut", late)

	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 10))
	o.run()
	turn := o.take(events.LaneWrite)
	if turn.expect != 10 || len(turn.Commands) != 1 {
		t.Errorf("the second turn is %+v", turn)
	}
	status := o.take(events.LaneStatus)
	o.answer(events.LaneWrite, 11, nil)
	o.engine.Stored(status.Key, events.LaneStatus, 12, nil)
	o.run()
	served(t, "the change", more)
	served(t, "the outcome", late)
}

func TestReportsGoOnWhileActing(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	s := o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	if status := o.take(events.LaneStatus); len(status.Commands) != 1 {
		t.Errorf("the report is %+v", status)
	}
	o.none()
	o.answer(events.LaneStatus, 11, nil)
	served(t, "a change whose turn was whole", s)
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "web", 6))
	o.none() // the report is under way
}

func TestReportsArePaced(t *testing.T) {
	o := open(t, Settings{Pace: time.Second})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
	o.none()
	o.pass(999 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.LaneStatus)
}

// When the API server is slow, reports do not take more than half of the time.
func TestAfterASlowReportIsARest(t *testing.T) {
	o := open(t, Settings{Pace: 50 * time.Millisecond})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneStatus)
	o.answer(events.LaneStatus, 1, nil)
	o.pass(200 * time.Millisecond)
	o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
	o.pass(199 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.LaneStatus)
}

// A report that is passing waits for longer.
func TestWhatPassesRestsForLonger(t *testing.T) {
	for took, rest := range map[time.Duration]time.Duration{
		time.Millisecond: 200 * time.Millisecond, 100 * time.Millisecond: 400 * time.Millisecond, time.Second: 2 * time.Second,
	} {
		o := open(t, Settings{Pace: 50 * time.Millisecond})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, "passes"))
		o.recalled(Past{}, Past{})
		o.take(events.LaneStatus)
		o.answer(events.LaneStatus, 1, nil)
		o.pass(took)
		o.outcome(events.LaneStatus, 1, events.Result{Status: events.Unchanged})
		o.pass(rest - took - time.Millisecond)
		o.none()
		o.pass(time.Millisecond)
		o.take(events.LaneStatus)
	}
}

func TestOvertakenRecallsAndLooksAgain(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 0, bus.ErrOvertaken)
	stillWaits(t, "overtaken", s)
	o.recalled(Past{Sequence: 7, Turn: &events.Turn{}}, Past{})
	o.none() // the other's turn has no outcome yet
	o.engine.Outcome(1, events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 7, Results: []events.Result{{Status: events.Refused}}})
	o.pass(time.Second)
	if turn := o.take(events.LaneWrite); turn.expect != 7 {
		t.Errorf("stored behind %d, want 7", turn.expect)
	}
}

// A turn that was not stored since its decision was too old is decided again at once.
func TestAStaleDecisionIsMadeAgain(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.now = o.now.Add(time.Hour)
	o.engine.Advance(o.now)
	o.answer(events.LaneWrite, 0, ErrStale)
	stillWaits(t, "stale", s)
	o.recalled(Past{}, Past{})
	if turn := o.take(events.LaneWrite); !turn.Now.Equal(o.now) {
		t.Errorf("decided at %v, want %v", turn.Now, o.now)
	}
}

func TestStoreErrorIsTriedAgain(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 0, errors.New("the bus is away"))
	o.none()
	stillWaits(t, "not stored", s)
	o.pass(time.Second)
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 3, nil)
	served(t, "stored", s)
}

func TestFailureBacksOff(t *testing.T) {
	o := begun(t, Settings{})
	failed := events.Result{Status: events.Failed, Message: "quota"}
	turn, wait := uint64(10), 5*time.Millisecond
	for attempt := 2; attempt < 8; attempt++ {
		s := o.outcome(events.LaneWrite, turn, failed)
		o.pass(wait - time.Millisecond)
		o.none()
		stillWaits(t, "during the backoff", s)
		o.pass(time.Millisecond)
		next := o.take(events.LaneWrite)
		if next.Attempt != attempt {
			t.Errorf("attempt %d, want %d", next.Attempt, attempt)
		}
		turn++
		o.answer(events.LaneWrite, turn, nil)
		served(t, "after the backoff", s)
		wait *= 2
	}
	if last, ok := o.engine.last(web, events.LaneWrite); !ok || last.OK() {
		t.Errorf("the failure is forgotten: %+v", last)
	}
}

func TestConflictLooksAgainAtOnce(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Second})
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Conflict})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 11, nil)
	o.outcome(events.LaneWrite, 11, events.Result{Status: events.Conflict})
	o.none()
	o.pass(time.Second)
	o.take(events.LaneWrite)
}

func TestSuccessForgetsFailures(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, events.Result{Status: events.Failed})
	o.pass(time.Second)
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 11, nil)
	o.outcome(events.LaneWrite, 11, events.Result{Status: events.Unchanged})
	if _, ok := o.engine.last(web, events.LaneWrite); ok {
		t.Error("a settled success is remembered")
	}
	if turn := o.take(events.LaneWrite); turn.Attempt != 1 {
		t.Errorf("attempt %d after a success", turn.Attempt)
	}
}

func TestRecallKnowsFailures(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{
		Sequence: 9, Turn: &events.Turn{Attempt: 4, ResourceVersion: "1"},
		Outcome: &events.Outcome{Key: web, Lane: events.LaneWrite, Turn: 9, Results: []events.Result{{Status: events.Failed}}},
	}, Past{})
	o.none()
	o.pass(40 * time.Millisecond)
	if turn := o.take(events.LaneWrite); turn.Attempt != 5 || turn.expect != 9 {
		t.Errorf("attempt %d behind %d", turn.Attempt, turn.expect)
	}
}

// A pod that was created and deleted while no watcher ran never comes back.
func TestLostEffectIsGivenUpOnlyWithProof(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.LaneWrite, 10, created("p", "5"))
	o.pass(10 * time.Second)
	if len(o.reaches) > 0 {
		t.Fatal("asked where the stream ends before it was known to be beyond the effect")
	}
	o.memory.Fold(kinds.Pods.Name, []events.Message{markAt(kinds.Pods.Kind, "6", 1)})
	o.engine.Folded(kinds.Pods.Name)
	o.pass(10 * time.Second)
	if !cmp.Equal(o.reaches, []kinds.Name{kinds.Pods.Name}) {
		t.Fatalf("reaches are %v", o.reaches)
	}
	o.engine.Reached(kinds.Pods.Name, 2, nil)
	o.run()
	o.none() // the stream goes on to 2
	o.memory.Fold(kinds.Pods.Name, []events.Message{markAt(kinds.Pods.Kind, "7", 2)})
	o.engine.Folded(kinds.Pods.Name)
	o.run()
	o.take(events.LaneWrite)
}

func TestWakeIsScheduledOnceAndFiresHere(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	stillWaits(t, "before the wake is stored", s)
	if len(o.wakes) != 1 || !o.wakes[0].At.Equal(epoch.Add(time.Hour)) {
		t.Fatalf("the wakes are %+v", o.wakes)
	}
	o.engine.Scheduled(web, o.wakes[0].At, nil)
	served(t, "after the wake is stored", s)
	served(t, "again", o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, "wakes")))
	if len(o.wakes) != 1 {
		t.Errorf("scheduled again: %+v", o.wakes)
	}
	before := o.engine.Tally().Nothing
	o.pass(time.Hour)
	if o.engine.Tally().Nothing == before {
		t.Error("the wake did not fire")
	}
}

func TestRetryComesBackLater(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "retries"))
	for wait := 5 * time.Millisecond; wait < time.Second; wait *= 2 {
		before := o.engine.Tally().Nothing
		o.pass(wait)
		if got := o.engine.Tally().Nothing; got != before+1 {
			t.Fatalf("%d turns after %v, want 1", got-before, wait)
		}
	}
	stillWaits(t, "while it retries", s)
}

func TestNothingIsDecidedWhileShut(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut(kinds.Pods.Name)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if n := o.engine.Tally().Nothing; n > 0 {
		t.Errorf("%d turns while it is shut", n)
	}
	o.engine.Open(kinds.Pods.Name)
	o.run()
	if n := o.engine.Tally().Nothing; n != 1 {
		t.Errorf("%d turns when it is open, want 1", n)
	}
}

// The objects of a kind that is found while the engine is open come as no changes if they were
// stored before its log was followed. The engine asks about the keys of that kind when it has
// been read, and not about those of other kinds.
func TestAKindThatIsFoundLaterIsAskedAbout(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut(unfound)
	o.engine.Open(unfound)
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "other", 1))
	before := o.engine.Tally().Nothing
	o.engine.Shut(kinds.ReplicaSets.Name)
	o.memory.Dealt(kinds.ReplicaSets.Name, 1)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	if _, asked := o.engine.entries[web]; asked {
		t.Error("the change asks for a turn, although it was dealt with before")
	}
	o.engine.Open(kinds.ReplicaSets.Name)
	o.run()
	if n := o.engine.Tally().Nothing - before; n != 1 {
		t.Errorf("%d turns when the kind has been read, want that of its object", n)
	}
	if o.engine.Open(kinds.ReplicaSets.Name); o.engine.Busy() {
		t.Error("a kind that was open already is asked about again")
	}
}

func TestSameInputsSameTurns(t *testing.T) {
	play := func() []byte {
		o := begun(t, Settings{})
		o.outcome(events.LaneWrite, 10, created("p", "5"))
		o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 6, 3, 0, ""))
		text, err := json.Marshal(o.stored)
		if err != nil || len(o.stored) == 0 {
			t.Fatalf("%d turns, %v", len(o.stored), err)
		}
		return text
	}
	if first := play(); !cmp.Equal(first, play()) {
		t.Error("the same inputs gave other turns")
	}
}

// The clock does not go back, due timers fire in order, and the engine reports how long a key
// waited.
func TestTheTimeOfAnEngine(t *testing.T) {
	var waited []time.Duration
	o := open(t, Settings{Waited: func(d time.Duration) { waited = append(waited, d) }})
	if at, ok := o.engine.Next(); ok || !at.IsZero() {
		t.Errorf("with no timer set the next time is %v, want none", at)
	}
	o.engine.timers.Set(epoch.Add(2*time.Second), func() {})
	o.engine.timers.Set(epoch.Add(time.Second), func() {})
	if at, ok := o.engine.Next(); !ok || !at.Equal(epoch.Add(time.Second)) {
		t.Errorf("the next time is %v, want a second on", at)
	}
	o.engine.Ask(web)
	o.pass(time.Second)
	if at, ok := o.engine.Next(); !ok || !at.Equal(epoch.Add(2*time.Second)) || !slices.Equal(waited, []time.Duration{time.Second}) {
		t.Errorf("the next time is %v, and a key waited for %v; want two seconds on, and one second", at, waited)
	}
	if o.engine.Advance(epoch); !o.engine.now.Equal(epoch.Add(time.Second)) {
		t.Errorf("the time of the engine went back to %v", o.engine.now)
	}
}
