package shell

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// office is a desk with a door whose answers the test gives.
type office struct {
	t        *testing.T
	memory   *Memory
	desk     *Desk
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

// slip is a Handle that remembers its answer.
type slip struct {
	answer  string
	working int
}

func (s *slip) Done()                  { s.set("done") }
func (s *slip) Later(time.Duration)    { s.set("later") }
func (s *slip) Hopeless(reason string) { s.set("hopeless: " + reason) }
func (s *slip) Working()               { s.working++ }
func (s *slip) set(answer string) {
	if s.answer != "" {
		answer = s.answer + " and " + answer
	}
	s.answer = answer
}

func open(t *testing.T, settings Settings) *office {
	o := &office{t: t, memory: NewMemory(), now: epoch, sequence: map[kinds.Name]uint64{}}
	o.memory.Follow(kinds.ReplicaSets.Kind)
	o.memory.Follow(kinds.Pods.Kind)
	o.memory.Register(toy().Describe())
	o.desk = NewDesk(toy(), o.memory, o, settings, o.now)
	return o
}

// fold puts a message into the memory and gives its sequence.
func (o *office) fold(kind kinds.Kind, op events.Op, obj object) uint64 {
	o.sequence[kind.Name]++
	at := o.sequence[kind.Name]
	o.memory.Fold(kind.Name, []events.Message{delta(kind, op, obj, at)})
	o.desk.Folded(kind.Name)
	return at
}

// change folds an object and hands in its ticket.
func (o *office) change(kind kinds.Kind, op events.Op, obj object) *slip {
	at := o.fold(kind, op, obj)
	s := &slip{}
	o.desk.Ticket(events.Ref{Kind: kind.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}, at, events.Trace{}, s)
	o.run()
	return s
}

func (o *office) run() {
	for n := 0; o.desk.Step(); n++ {
		if n > 1000 {
			o.t.Fatal("the desk does not come to rest")
		}
	}
}

func (o *office) pass(d time.Duration) {
	o.now = o.now.Add(d)
	o.desk.Advance(o.now)
	o.run()
}

var web = events.Key{Namespace: "default", Name: "web"}

// recalled answers both recalls of a key with what the streams hold.
func (o *office) recalled(act, tell Past) {
	o.t.Helper()
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.Act, events.Tell}) {
		o.t.Fatalf("recalls are %v", got)
	}
	o.desk.Recalled(web, events.Act, act, nil)
	o.desk.Recalled(web, events.Tell, tell, nil)
	o.run()
}

func (o *office) takeRecalls() []events.Lane {
	r := o.recalls
	o.recalls = nil
	return r
}

// take gives the one turn that was stored since the last call.
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
	o.desk.Stored(web, lane, sequence, err)
	o.run()
}

func (o *office) outcome(lane events.Lane, turn uint64, results ...events.Result) *slip {
	s := &slip{}
	o.desk.OutcomeTicket(turn, events.Outcome{Controller: "toy", Key: web, Lane: lane, Turn: turn, Results: results}, s)
	o.run()
	return s
}

func want(t *testing.T, what string, s *slip, answer string) {
	t.Helper()
	if s.answer != answer {
		t.Errorf("%s: answered %q, want %q", what, s.answer, answer)
	}
}

func born(name, version string) events.Result {
	return events.Result{
		Status: events.Applied, UID: "uid-" + "x", Version: version,
		Ref: events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name},
	}
}

// begun is an office whose key web has an act turn, number 10, under way: one
// pod is to be born.
func begun(t *testing.T, settings Settings) *office {
	o := open(t, settings)
	first := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	if turn := o.take(events.Act); turn.expect != 0 || len(turn.Commands) != 1 {
		t.Fatalf("the first turn is %+v", turn)
	}
	want(t, "before the turn is stored", first, "")
	o.answer(events.Act, 10, nil)
	want(t, "after the turn is stored", first, "done")
	return o
}

func TestTicketWaitsForTheFold(t *testing.T) {
	o := open(t, Settings{})
	s := &slip{}
	set := aSet("web", 1, 0, 0, "")
	o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}, 1, events.Trace{}, s)
	o.run()
	want(t, "before the fold", s, "")
	o.fold(kinds.ReplicaSets.Kind, events.Is, set)
	o.run()
	want(t, "after the fold", s, "done")
	o.none()
}

func TestTicketWithoutKeysIsDone(t *testing.T) {
	o := open(t, Settings{})
	want(t, "a pod of nobody", o.change(kinds.Pods.Kind, events.Is, aPod("alone", "", 1)), "done")
}

func TestTicketKeepsFormerOwner(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.Act, 10, born("p", "5"))
	o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	o.recallTellNothing()
	released := o.change(kinds.Pods.Kind, events.Is, aPod("p", "", 6))
	if len(o.stored) == 0 {
		t.Fatal("the former owner has had no turn")
	}
	want(t, "released", released, "")
}

// recallTellNothing lets a report of the key through.
func (o *office) recallTellNothing() {
	for at := uint64(20); len(o.stored) > 0; at++ {
		s := o.stored[0]
		o.stored = o.stored[1:]
		o.answer(s.Lane, at, nil)
		o.outcome(s.Lane, at, events.Result{Status: events.Unchanged})
		o.pass(time.Second)
		if s.Lane == events.Tell {
			o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 7, 1, 1, ""))
		}
	}
}

func TestManyTicketsMakeOneTurn(t *testing.T) {
	o := open(t, Settings{})
	var slips []*slip
	for i := range 5 {
		at := o.fold(kinds.ReplicaSets.Kind, events.Is, aSet("web", i+1, 1, 0, ""))
		s := &slip{}
		slips = append(slips, s)
		o.desk.Ticket(events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}, at, events.Trace{}, s)
	}
	o.run()
	o.recalled(Past{}, Past{})
	turn := o.take(events.Act)
	o.none()
	if len(turn.Triggers) != 5 || turn.ResourceVersion != "5" || turn.Seen[kinds.ReplicaSets.Name] != 5 {
		t.Errorf("the turn does not name what it rests on: %+v", turn.Turn)
	}
	o.answer(events.Act, 1, nil)
	for _, s := range slips {
		want(t, "each ticket", s, "done")
	}
}

// The fence needs both halves: the outcome, and its effects.
func TestActWaitsForOutcomeAndEffect(t *testing.T) {
	o := begun(t, Settings{})
	more := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	o.none()
	late := o.outcome(events.Act, 10, born("p", "5"))
	o.none()
	o.fold(kinds.Pods.Kind, events.Is, aPod("other", "", 9))
	o.run()
	o.none()
	want(t, "a change while the fence is shut", more, "")
	want(t, "the outcome while the fence is shut", late, "")

	o.fold(kinds.Pods.Kind, events.Is, aPod("p", "web", 10))
	o.run()
	turn := o.take(events.Act)
	if turn.expect != 10 || len(turn.Commands) != 1 {
		t.Errorf("the second turn is %+v", turn)
	}
	tell := o.take(events.Tell)
	o.answer(events.Act, 11, nil)
	o.desk.Stored(tell.Key, events.Tell, 12, nil)
	o.run()
	want(t, "the change", more, "done")
	want(t, "the outcome", late, "done")
}

func TestReportsGoOnWhileActing(t *testing.T) {
	o := begun(t, Settings{Pace: -1})
	s := o.change(kinds.Pods.Kind, events.Is, aPod("p", "web", 5))
	if tell := o.take(events.Tell); len(tell.Commands) != 1 {
		t.Errorf("the report is %+v", tell)
	}
	o.none()
	o.answer(events.Tell, 11, nil)
	want(t, "a change whose turn was whole", s, "done")
	o.change(kinds.Pods.Kind, events.Is, aPod("q", "web", 6))
	o.none() // the report is under way
}

func TestReportsArePaced(t *testing.T) {
	o := open(t, Settings{Pace: time.Second})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Tell)
	o.answer(events.Tell, 1, nil)
	o.outcome(events.Tell, 1, events.Result{Status: events.Unchanged})
	o.none()
	o.pass(999 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.Tell)
}

// When the API server is slow, reports do not take up more than half of the time.
func TestAfterASlowReportIsARest(t *testing.T) {
	o := open(t, Settings{Pace: 50 * time.Millisecond})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Tell)
	o.answer(events.Tell, 1, nil)
	o.pass(200 * time.Millisecond)
	o.outcome(events.Tell, 1, events.Result{Status: events.Unchanged})
	o.pass(199 * time.Millisecond)
	o.none()
	o.pass(time.Millisecond)
	o.take(events.Tell)
}

// What is reported on the way to something else rests for longer.
func TestWhatPassesRestsForLonger(t *testing.T) {
	for took, rest := range map[time.Duration]time.Duration{
		time.Millisecond: 200 * time.Millisecond, 100 * time.Millisecond: 400 * time.Millisecond, time.Second: 2 * time.Second,
	} {
		o := open(t, Settings{Pace: 50 * time.Millisecond})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 3, "passes"))
		o.recalled(Past{}, Past{})
		o.take(events.Tell)
		o.answer(events.Tell, 1, nil)
		o.pass(took)
		o.outcome(events.Tell, 1, events.Result{Status: events.Unchanged})
		o.pass(rest - took - time.Millisecond)
		o.none()
		o.pass(time.Millisecond)
		o.take(events.Tell)
	}
}

func TestOvertakenRecallsAndLooksAgain(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 0, bus.ErrOvertaken)
	want(t, "overtaken", s, "")
	o.recalled(Past{Sequence: 7, Turn: &events.Turn{}}, Past{})
	o.none() // the other's turn has no outcome yet
	o.desk.Outcome(events.Outcome{Key: web, Lane: events.Act, Turn: 7, Results: []events.Result{{Status: events.Refused}}})
	o.pass(time.Second)
	if turn := o.take(events.Act); turn.expect != 7 {
		t.Errorf("stored behind %d, want 7", turn.expect)
	}
}

func TestStoreErrorIsTriedAgain(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 0, errors.New("the bus is away"))
	o.none()
	want(t, "not stored", s, "")
	o.pass(time.Second)
	o.recalled(Past{}, Past{})
	o.take(events.Act)
	o.answer(events.Act, 3, nil)
	want(t, "stored", s, "done")
}

func TestFailureBacksOff(t *testing.T) {
	o := begun(t, Settings{})
	failed := events.Result{Status: events.Failed, Message: "quota"}
	turn, wait := uint64(10), 5*time.Millisecond
	for attempt := 2; attempt < 8; attempt++ {
		s := o.outcome(events.Act, turn, failed)
		o.pass(wait - time.Millisecond)
		o.none()
		want(t, "during the backoff", s, "")
		o.pass(time.Millisecond)
		next := o.take(events.Act)
		if next.Attempt != attempt {
			t.Errorf("attempt %d, want %d", next.Attempt, attempt)
		}
		turn++
		o.answer(events.Act, turn, nil)
		want(t, "after the backoff", s, "done")
		wait *= 2
	}
	if last, ok := o.desk.last(web, events.Act); !ok || last.OK() {
		t.Errorf("the failure is forgotten: %+v", last)
	}
}

func TestLongBackoffBecomesAWake(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Minute})
	s := o.outcome(events.Act, 10, events.Result{Status: events.Failed})
	if len(o.wakes) != 1 || !o.wakes[0].At.Equal(o.now.Add(time.Minute)) {
		t.Fatalf("the wakes are %+v", o.wakes)
	}
	want(t, "before the wake is stored", s, "")
	o.desk.Scheduled(web, o.wakes[0].At, nil)
	want(t, "after the wake is stored", s, "done")
	o.pass(time.Minute)
	o.take(events.Act)
}

func TestConflictLooksAgainAtOnce(t *testing.T) {
	o := begun(t, Settings{Backoff: time.Second})
	o.outcome(events.Act, 10, events.Result{Status: events.Conflict})
	o.take(events.Act)
	o.answer(events.Act, 11, nil)
	o.outcome(events.Act, 11, events.Result{Status: events.Conflict})
	o.none()
	o.pass(time.Second)
	o.take(events.Act)
}

func TestSuccessForgetsFailures(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.Act, 10, events.Result{Status: events.Failed})
	o.pass(time.Second)
	o.take(events.Act)
	o.answer(events.Act, 11, nil)
	o.outcome(events.Act, 11, events.Result{Status: events.Unchanged})
	if _, ok := o.desk.last(web, events.Act); ok {
		t.Error("a settled success is remembered")
	}
	if turn := o.take(events.Act); turn.Attempt != 1 {
		t.Errorf("attempt %d after a success", turn.Attempt)
	}
}

func TestRecallKnowsFailures(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{
		Sequence: 9, Turn: &events.Turn{Attempt: 4, ResourceVersion: "1"},
		Outcome: &events.Outcome{Key: web, Lane: events.Act, Turn: 9, Results: []events.Result{{Status: events.Failed}}},
	}, Past{})
	o.none()
	o.pass(40 * time.Millisecond)
	if turn := o.take(events.Act); turn.Attempt != 5 || turn.expect != 9 {
		t.Errorf("attempt %d behind %d", turn.Attempt, turn.expect)
	}
}

// A pod that was born and died while nobody looked never comes back.
func TestLostEffectIsGivenUpOnlyWithProof(t *testing.T) {
	o := begun(t, Settings{})
	o.outcome(events.Act, 10, born("p", "5"))
	o.pass(10 * time.Second)
	if len(o.reaches) > 0 {
		t.Fatal("asked where the stream ends before it was known to be beyond the effect")
	}
	o.memory.Fold(kinds.Pods.Name, []events.Message{markAt(kinds.Pods.Kind, "6", 1)})
	o.desk.Folded(kinds.Pods.Name)
	o.pass(10 * time.Second)
	if !cmp.Equal(o.reaches, []kinds.Name{kinds.Pods.Name}) {
		t.Fatalf("reaches are %v", o.reaches)
	}
	o.desk.Reached(kinds.Pods.Name, 2, nil)
	o.run()
	o.none() // the stream goes on to 2
	o.memory.Fold(kinds.Pods.Name, []events.Message{markAt(kinds.Pods.Kind, "7", 2)})
	o.desk.Folded(kinds.Pods.Name)
	o.run()
	o.take(events.Act)
}

func TestWakeIsScheduledOnceAndFiresHere(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "wakes"))
	want(t, "before the wake is stored", s, "")
	if len(o.wakes) != 1 || !o.wakes[0].At.Equal(epoch.Add(time.Hour)) {
		t.Fatalf("the wakes are %+v", o.wakes)
	}
	o.desk.Scheduled(web, o.wakes[0].At, nil)
	want(t, "after the wake is stored", s, "done")
	want(t, "again", o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, "wakes")), "done")
	if len(o.wakes) != 1 {
		t.Errorf("scheduled again: %+v", o.wakes)
	}
	before := o.desk.Tally().Nothing
	o.pass(time.Hour)
	if o.desk.Tally().Nothing == before {
		t.Error("the wake did not fire")
	}
}

func TestRetryComesBackLater(t *testing.T) {
	o := open(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, "retries"))
	for wait := 5 * time.Millisecond; wait < time.Second; wait *= 2 {
		before := o.desk.Tally().Nothing
		o.pass(wait)
		if got := o.desk.Tally().Nothing; got != before+1 {
			t.Fatalf("%d turns after %v, want 1", got-before, wait)
		}
	}
	want(t, "while it retries", s, "")
}

func TestTicketsInHandAreRenewed(t *testing.T) {
	o := begun(t, Settings{})
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 2, 0, ""))
	for range 10 {
		o.pass(500 * time.Millisecond)
	}
	if s.working < 8 {
		t.Errorf("renewed %d times in 5 s", s.working)
	}
	o.desk.Leave()
	want(t, "left behind", s, "later")
}

func TestNothingIsDecidedWhileShut(t *testing.T) {
	o := open(t, Settings{})
	o.desk.Shut(kinds.Pods.Name)
	s := o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 0, 0, ""))
	want(t, "shut", s, "")
	o.desk.Open(kinds.Pods.Name)
	o.run()
	want(t, "open", s, "done")
}

func TestSameInputsSameTurns(t *testing.T) {
	play := func() []byte {
		o := begun(t, Settings{})
		o.outcome(events.Act, 10, born("p", "5"))
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
