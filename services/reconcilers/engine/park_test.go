package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestPoisonIsParkedAndDelaysNoOtherKey(t *testing.T) {
	for annotation, reason := range map[string]string{"panics": "a set that breaks", "lies": "not among what"} {
		o := open(t, Settings{})
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, annotation))
		served(t, "another key", o.change(kinds.ReplicaSets.Kind, events.Is, aSet("good", 2, 0, 0, "")))
		o.pass(time.Second)
		o.pass(time.Second)
		o.pass(time.Second)
		o.pass(time.Second)
		if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LanePark}) {
			t.Fatalf("recalls are %v", got)
		}
		o.engine.Recalled(web, events.LanePark, Past{Sequence: 3}, nil)
		park := o.take(events.LanePark)
		if park.expect != 3 || !strings.Contains(park.Because, reason) {
			t.Errorf("the record of the park is %+v", park)
		}
		if p := o.engine.Parked(); len(p) > 0 {
			t.Errorf("before the record is stored these keys are parked: %+v", p)
		}
		o.answer(events.LanePark, 4, nil)
		if p := o.engine.Parked(); len(p) != 1 || p[0].Key != web {
			t.Errorf("parked are %+v", p)
		}
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 9, 0, 0, ""))
		if p := o.engine.Parked(); len(p) != 0 {
			t.Errorf("still parked after a change: %+v", p)
		}
	}
}

func TestDamagedBodyIsParked(t *testing.T) {
	o := open(t, Settings{})
	m := delta(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""), 1)
	m.Data = []byte("k8s\x00garbage")
	o.memory.Fold(kinds.ReplicaSets.Name, []events.Message{m})
	o.sequence[kinds.ReplicaSets.Name] = 1
	ref := events.Ref{Kind: kinds.ReplicaSets.Name, Namespace: "default", Name: "web"}
	o.engine.Folded(kinds.ReplicaSets.Name)
	o.run()
	o.engine.Recalled(events.Key(ref), events.LanePark, Past{}, nil)
	o.take(events.LanePark)
	o.engine.Stored(events.Key(ref), events.LanePark, 1, nil)
	if p := o.engine.Parked(); len(p) != 1 || !strings.HasPrefix(p[0].Reason, "decode") {
		t.Errorf("parked are %+v", p)
	}
	served(t, "a good version", o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, "")))
	if p := o.engine.Parked(); len(p) != 0 {
		t.Errorf("still parked: %+v", p)
	}
}

func TestBrokenMappingIsParked(t *testing.T) {
	o := open(t, Settings{})
	pod := aPod("p", "web", 1)
	pod.Annotations = map[string]string{"toy": "maps-badly"}
	o.change(kinds.Pods.Kind, events.Is, pod)
	key := events.Key{Kind: kinds.Pods.Name, Namespace: "default", Name: "p"}
	o.engine.Recalled(key, events.LanePark, Past{}, nil)
	o.take(events.LanePark)
	o.engine.Stored(key, events.LanePark, 1, nil)
	if p := o.engine.Parked(); len(p) != 1 || !strings.Contains(p[0].Reason, "a mapping that breaks") {
		t.Errorf("the parked keys are %+v, want one because of its mapping", p)
	}
	if !o.engine.Unpark(key) {
		t.Error("Unpark does not try the key again")
	}
	if got := o.takeRecalls(); !cmp.Equal(got[len(got)-1], events.LanePark) {
		t.Errorf("a key that still breaks is not parked again: recalls are %v", got)
	}
	o.engine.Recalled(key, events.LanePark, Past{Sequence: 1}, nil)
	o.take(events.LanePark)
	o.engine.Stored(key, events.LanePark, 2, nil)
	pod = aPod("p", "web", 2)
	pod.Annotations = map[string]string{"toy": "maps-badly"}
	o.fold(kinds.Pods.Kind, events.Gone, pod)
}

func TestTooLargeTurnIsParked(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	for range 5 {
		o.recalled(Past{}, Past{})
		o.take(events.LaneWrite)
		o.answer(events.LaneWrite, 0, bus.ErrTooLarge)
		o.pass(time.Second)
	}
	o.engine.Recalled(web, events.LanePark, Past{}, nil)
	o.take(events.LanePark)
	o.answer(events.LanePark, 1, nil)
	if p := o.engine.Parked(); len(p) != 1 || !strings.HasPrefix(p[0].Reason, "store a turn: ") {
		t.Errorf("parked are %+v", p)
	}
	o.none()
}

// One object of ten thousand always panics its controller. All others have their turns in one
// go, as early as without it. The engine parks it after a few attempts, visibly, and from then
// on spends one attempt on it whenever it changes.
func TestOnePoisonAmongTenThousand(t *testing.T) {
	const healthy, poison = 10_000, 5_000
	o := open(t, Settings{})
	round := func(version int) (steps int) {
		var batch []events.Message
		for i := range healthy + 1 {
			name, annotation := fmt.Sprint("set-", i), ""
			if i == poison {
				name, annotation = "web", "panics"
			}
			o.sequence[kinds.ReplicaSets.Name]++
			set := aSet(name, version*100_000+i, 0, 0, annotation)
			batch = append(batch, delta(kinds.ReplicaSets.Kind, events.Is, set, o.sequence[kinds.ReplicaSets.Name]))
		}
		o.memory.Fold(kinds.ReplicaSets.Name, batch)
		o.engine.Folded(kinds.ReplicaSets.Name)
		for o.engine.Step() {
			steps++
		}
		return steps
	}
	served := func() {
		t.Helper()
		if b, waits := o.engine.Backlog()[kinds.ReplicaSets.Name]; waits && b.Sequence%(healthy+1) != poison+1 {
			t.Fatalf("change %d has had no turn", b.Sequence)
		}
	}
	steps := round(1)
	if served(); steps != healthy+1 {
		t.Errorf("%d looks for %d keys", steps, healthy+1)
	}
	for range 4 {
		o.pass(time.Second)
	}
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LanePark}) {
		t.Fatalf("recalls are %v", got)
	}
	o.engine.Recalled(web, events.LanePark, Past{}, nil)
	if park := o.take(events.LanePark); !strings.Contains(park.Because, "a set that breaks") {
		t.Errorf("the record is %+v", park)
	}
	o.answer(events.LanePark, 1, nil)
	broken := o.engine.Tally().Broken
	if p := o.engine.Parked(); len(p) != 1 || p[0].Key != web || broken != 5 {
		t.Errorf("parked are %+v after %d attempts", p, broken)
	}
	steps = round(2)
	if served(); steps != healthy+1 || o.engine.Tally().Broken != broken+1 {
		t.Errorf("%d looks for %d keys, %d attempts at the poisoned one", steps, healthy+1, o.engine.Tally().Broken-broken)
	}
}

// poisoned is an office whose key web is about to be parked after its first break.
func poisoned(t *testing.T, settings Settings) *office {
	settings.Attempts = 1
	o := open(t, settings)
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, "panics"))
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LanePark}) {
		t.Fatalf("recalls are %v", got)
	}
	return o
}

// setAside answers the recall and the store of a key that is being parked.
func (o *office) setAside(at uint64) {
	o.t.Helper()
	o.engine.Recalled(web, events.LanePark, Past{Sequence: at - 1}, nil)
	o.take(events.LanePark)
	o.answer(events.LanePark, at, nil)
}

// A reason longer than 4 KiB is cut in the record.
func TestALongReasonIsCut(t *testing.T) {
	for length, want := range map[int]int{4096: 4096, 5000: 4096} {
		o := open(t, Settings{})
		o.engine.park(o.engine.entry(web), strings.Repeat("x", length))
		o.engine.Recalled(web, events.LanePark, Past{}, nil)
		if park := o.take(events.LanePark); len(park.Because) != want {
			t.Errorf("of a reason of %d bytes %d are recorded", length, len(park.Because))
		}
	}
}

// If another replica stores its parking record first, this one is stored behind it, at once. No
// second record is made meanwhile, and a change that asks for the key then has its turn
// afterwards.
func TestARecordThatIsOvertakenIsStoredBehindTheOther(t *testing.T) {
	o := poisoned(t, Settings{})
	o.engine.park(o.engine.entry(web), "another reason")
	if got := o.takeRecalls(); len(got) != 0 {
		t.Errorf("a key that is being parked recalls %v, want nothing", got)
	}
	o.engine.Recalled(web, events.LanePark, Past{Sequence: 3}, nil)
	o.take(events.LanePark)
	o.answer(events.LanePark, 0, bus.ErrOvertaken)
	if got := o.takeRecalls(); !cmp.Equal(got, []events.Lane{events.LanePark}) {
		t.Fatalf("overtaken, it recalls %v", got)
	}
	o.engine.Recalled(web, events.LanePark, Past{Sequence: 5}, nil)
	if park := o.take(events.LanePark); park.expect != 5 || !strings.Contains(park.Because, "a set that breaks") {
		t.Errorf("the record is %+v", park)
	}
	nothing := o.engine.Tally().Nothing
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 2, 0, 0, ""))
	if o.engine.Tally().Nothing != nothing {
		t.Error("a key has a turn while it is being parked")
	}
	o.answer(events.LanePark, 6, nil)
	if got := o.engine.Tally(); got.Nothing != nothing+1 || got.Parked != 0 {
		t.Errorf("a change that came meanwhile has had no turn: %+v", got)
	}
}

// The waits for a bus that refuses the record grow, and start anew when the bus has accepted
// one.
func TestTheWaitsForARecordGrow(t *testing.T) {
	o := poisoned(t, Settings{Backoff: time.Second, MaxBackoff: time.Hour})
	for _, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		o.engine.Recalled(web, events.LanePark, Past{}, bus.ErrClosed)
		if o.pass(wait - 1); len(o.recalls) != 0 {
			t.Errorf("the record is tried again before %v", wait)
		}
		if o.pass(1); len(o.takeRecalls()) != 1 {
			t.Errorf("the record is not tried again after %v", wait)
		}
	}
	if o.setAside(4); o.engine.entries[web].retries != 0 {
		t.Errorf("after the record there are %d retries, want 0", o.engine.entries[web].retries)
	}
}

// A key that another replica takes over while it is being parked is dropped when that is done.
// The new owner reports a parked key.
func TestAParkedKeyThatIsGivenAway(t *testing.T) {
	o := poisoned(t, Settings{})
	o.engine.Own(0)
	if len(o.engine.entries) != 1 {
		t.Fatalf("%d keys are known while the record is on its way", len(o.engine.entries))
	}
	if o.setAside(4); len(o.engine.entries) != 0 || len(o.engine.Parked()) != 0 {
		t.Errorf("%d keys are known, and it says that %v are parked", len(o.engine.entries), o.engine.Parked())
	}
	o = poisoned(t, Settings{})
	o.setAside(4)
	if o.engine.Own(0); len(o.engine.Parked()) != 0 || len(o.engine.entries) != 0 {
		t.Errorf("of a key of another replica these are parked: %v, want none", o.engine.Parked())
	}
}

// A key that did not break in between has all its attempts again; Unpark gives a key its turn
// at once.
func TestAKeyThatIsMendedHasItsAttempts(t *testing.T) {
	o := open(t, Settings{})
	version := 0
	breaks := func(times int) {
		t.Helper()
		version++
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 1, 0, "panics"))
		for range times - 1 {
			o.pass(time.Second)
		}
	}
	for range 3 {
		if breaks(4); len(o.recalls) != 0 {
			t.Fatalf("after %d breaks the key is being parked, want 4 in a row", o.engine.Tally().Broken)
		}
		version++
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", version, 0, 0, ""))
		o.pass(time.Second)
	}
	if e := o.engine.entries[web]; e != nil {
		t.Errorf("the key has %d broken attempts and waits until %v, want nothing to be known of it", e.broken, e.until)
	}
	breaks(5)
	o.takeRecalls()
	o.setAside(1)
	before := o.engine.Tally().Broken
	if !o.engine.Unpark(web) {
		t.Error("Unpark does not try the key again")
	}
	if o.run(); o.engine.Tally().Broken != before+1 || len(o.engine.Parked()) != 0 {
		t.Errorf("the key was tried %d times, want once", o.engine.Tally().Broken-before)
	}
}

// Parked keys are sorted, and their changes do not count as waiting, even if a key broke while
// its turn was being stored.
func TestWhatIsSetAsideWaitsForNoTurn(t *testing.T) {
	o := open(t, Settings{Attempts: 1})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	o.recalled(Past{}, Past{})
	o.take(events.LaneWrite)
	o.answer(events.LaneWrite, 0, bus.ErrTooLarge)
	o.takeRecalls()
	o.setAside(1)
	if b := o.engine.Backlog(); len(b) != 0 || o.engine.Dealt()[kinds.ReplicaSets.Name] != 1 {
		t.Errorf("waiting are %+v, dealt with is up to %v", b, o.engine.Dealt())
	}
	for i, called := range []string{"c", "a", "d", "b"} {
		o.change(kinds.ReplicaSets.Kind, events.Is, aSet(called, i+2, 1, 0, "panics"))
		key := events.Key{Namespace: "default", Name: called}
		o.engine.Recalled(key, events.LanePark, Past{}, nil)
		o.take(events.LanePark)
		o.engine.Stored(key, events.LanePark, uint64(i+2), nil)
	}
	var keys []string
	for _, p := range o.engine.Parked() {
		keys = append(keys, p.Key.Name)
	}
	if !cmp.Equal(keys, []string{"a", "b", "c", "d", "web"}) {
		t.Errorf("parked are %v", keys)
	}
}
