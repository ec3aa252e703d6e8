package consistency

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// told is a log as its watcher writes it, and the findings about it.
type told struct {
	Checker
	tally events.Tally
	after events.Link
	found []string
}

func log(state bus.State) *told { return &told{Checker: New(state, true)} }

func (l *told) find(sequence uint64, format string, args ...any) {
	l.found = append(l.found, fmt.Sprintf("%d: %s", sequence, fmt.Sprintf(format, args...)))
}

// object is a delta of an object at a version.
func object(op events.Op, name, version string) events.Delta {
	return events.Delta{
		Kind: "pods", Op: op, Ref: events.Ref{Kind: "pods", Namespace: "shop", Name: name}, UID: types.UID("uid-" + name), ResourceVersion: version, At: time.Unix(1, 0).UTC(),
	}
}

// say stores a delta with its links, and with its census if counted is true.
func (l *told) say(sequence uint64, d events.Delta, counted bool) {
	l.tally.Fold(d)
	if d.After = l.after; counted {
		d.Census = l.tally.Census()
	}
	m := subject.Message(d)
	m.Sequence = sequence
	m = events.Seal(m)
	l.after = events.Link{Sequence: sequence, Sum: m.Get(events.HeaderSum)}
	l.Message(m, l.find)
}

func (l *told) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	l.Conclude(l.find)
	if len(l.found) != len(want) {
		t.Errorf("%s: found is %q, want %q", what, l.found, want)
		return
	}
	for i, f := range l.found {
		if !strings.HasPrefix(f, want[i]) {
			t.Errorf("%s: found is %q, want %q", what, l.found, want)
		}
	}
}

// A message is checked by its own sums and its form: in a log, it must be a delta, and elsewhere
// JSON.
func TestWhatAMessageSaysOfItself(t *testing.T) {
	good := events.Seal(events.Message{Subject: "turn.c.x", Sequence: 3, Header: map[string][]string{"A": {"b"}}, Data: []byte("{}")})
	damaged := good
	damaged.Data = []byte("[]")
	text := events.Seal(events.Message{Subject: "turn.c.x", Sequence: 3, Header: map[string][]string{"A": {"b"}}, Data: []byte("{")})
	stranger := events.Seal(events.Message{Subject: "ev.pods.x", Sequence: 3, Header: map[string][]string{"A": {"b"}}, Data: []byte("{}")})
	ref := events.Ref{Kind: "pods", Namespace: "shop", Name: "a"}
	empty := events.Seal(events.Message{Subject: subject.Delta(ref), Sequence: 3, Header: map[string][]string{"A": {"b"}}})
	for name, c := range map[string]struct {
		m     events.Message
		isLog bool
		want  []string
	}{
		"a turn": {good, false, nil}, "one that is damaged": {damaged, false, []string{"3: message 3"}}, "one that is no JSON": {text, false, []string{"3: its body is not JSON"}},
		"a subject that is none of a log": {stranger, true, []string{"3: "}}, "a delta that says nothing": {empty, true, []string{"3: decode delta of pods:shop/a"}}, "damage in a log": {damaged, true, []string{"3: message 3"}},
	} {
		l := log(bus.State{First: 1})
		l.isLog = c.isLog
		l.Message(c.m, l.find)
		l.expect(t, name, c.want...)
	}
}

// A log that differs from its own census is reported, once. A census before the first match does
// not count, because the log may begin in the middle.
func TestALogIsHeldAgainstItsCounts(t *testing.T) {
	whole := log(bus.State{First: 1})
	whole.say(1, object(events.Is, "a", "1"), true)
	whole.say(2, object(events.Is, "b", "2"), false)
	whole.say(3, object(events.Gone, "a", "3"), true)
	whole.expect(t, "as it should be")

	lacking := log(bus.State{First: 1})
	lacking.say(1, object(events.Is, "a", "1"), true)
	lacking.tally.Fold(object(events.Is, "lost", "2"))
	lacking.say(2, object(events.Is, "b", "3"), false)
	lacking.say(3, object(events.Is, "b", "4"), true)
	lacking.say(4, object(events.Is, "b", "5"), true)
	lacking.expect(t, "with one that is lost", "3: it counts 3 objects, and the log up to here has 2, or others")

	later := log(bus.State{First: 1})
	later.tally.Fold(object(events.Is, "before", "1"))
	later.say(1, object(events.Is, "a", "2"), true)
	later.say(2, object(events.Is, "a", "3"), true)
	later.expect(t, "from the middle on")

	gap := events.Delta{Kind: "pods", Op: events.Gap, ResourceVersion: "4", At: time.Unix(1, 0).UTC(), Body: []byte(`{"reason":"away"}`)}
	after := log(bus.State{First: 1})
	after.say(1, object(events.Is, "a", "1"), true)
	after.tally.Fold(object(events.Is, "unseen", "2"))
	after.say(2, gap, false)
	after.say(3, object(events.Is, "a", "5"), true)
	after.expect(t, "behind a gap")
	if after.Gaps != 1 {
		t.Errorf("%d gaps are counted", after.Gaps)
	}
}

// Missing messages within a log are reported unless a gap covers them; those before the first
// stored one are not.
func TestHolesInALog(t *testing.T) {
	hole := func(from, to uint64) events.Delta {
		return events.Delta{Kind: "pods", Op: events.Gap, ResourceVersion: "9", At: time.Unix(1, 0).UTC(), Body: fmt.Appendf(nil, `{"reason":"lost","from":%d,"to":%d}`, from, to)}
	}
	for name, c := range map[string]struct {
		first uint64
		gap   *events.Delta
		want  []string
	}{
		"unknown": {1, nil, []string{"3: messages of the log are lost or damaged: 3 to 4"}},
		"known":   {1, new(hole(3, 4)), nil}, "another is known": {1, new(hole(3, 5)), []string{"3: messages of the log are lost or damaged: 3 to 4"}},
		"expired": {5, nil, nil}, "the end of it is kept": {4, nil, []string{"4: messages of the log are lost or damaged: 3 to 4"}},
	} {
		l := log(bus.State{First: c.first})
		l.say(1, object(events.Is, "a", "1"), false)
		l.say(2, object(events.Is, "a", "2"), false)
		l.after = events.Link{Sequence: 4, Sum: "another"}
		l.say(5, object(events.Is, "a", "5"), false)
		if c.gap != nil {
			l.say(6, *c.gap, false)
		}
		l.expect(t, name, c.want...)
	}
}

// The versions of an object occur once and in order, except repeated ones and those of a later
// epoch; an object of the same name with another uid is another one.
func TestVersionsComeInOrder(t *testing.T) {
	changed := func(d events.Delta, change func(*events.Delta)) events.Delta { change(&d); return d }
	for name, c := range map[string]struct {
		deltas []events.Delta
		found  int
	}{
		"in order":             {[]events.Delta{object(events.Is, "a", "1"), object(events.Is, "a", "2")}, 0},
		"twice":                {[]events.Delta{object(events.Is, "a", "2"), object(events.Is, "a", "2")}, 1},
		"back":                 {[]events.Delta{object(events.Is, "a", "2"), object(events.Is, "a", "1")}, 1},
		"of two objects":       {[]events.Delta{object(events.Is, "a", "2"), object(events.Is, "b", "1")}, 0},
		"said again":           {[]events.Delta{object(events.Is, "a", "2"), changed(object(events.Is, "a", "2"), func(d *events.Delta) { d.Sync = true })}, 0},
		"in a later epoch":     {[]events.Delta{object(events.Is, "a", "2"), changed(object(events.Is, "a", "1"), func(d *events.Delta) { d.Epoch = 1 })}, 0},
		"behind its end":       {[]events.Delta{object(events.Is, "a", "2"), object(events.Gone, "a", "3"), object(events.Is, "a", "1")}, 0},
		"an end is no version": {[]events.Delta{object(events.Is, "a", "2"), object(events.Gone, "a", "2")}, 0},
	} {
		l := log(bus.State{First: 1})
		for i, d := range c.deltas {
			l.say(uint64(i+1), d, false)
		}
		if len(l.found) != c.found || c.found > 0 && !strings.HasPrefix(l.found[0], "2: pods:shop/a is at version "+c.deltas[1].ResourceVersion+", and was at 2 before") {
			t.Errorf("%s: found is %q", name, l.found)
		}
	}
}

// The base of a stretch counts for the census and is not checked otherwise.
func TestAStretchOfALog(t *testing.T) {
	l := log(bus.State{First: 1, Whole: 3})
	left := object(events.Is, "a", "2")
	left.Left = events.Left{Versions: 5}
	l.say(1, left, false)
	l.say(2, object(events.Is, "a", "1"), false) // about which nothing is reported
	l.say(3, object(events.Is, "b", "3"), true)
	left.ResourceVersion = "4"
	l.say(4, left, true)
	l.tally.Fold(object(events.Is, "lost", "1"))
	l.say(5, object(events.Is, "b", "6"), true)
	l.expect(t, "a stretch", "5: it counts 3 objects, and the log up to here has 2, or others")
	if l.Left != 5 {
		t.Errorf("%d versions are left out, want 5", l.Left)
	}
}
