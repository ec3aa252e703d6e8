package limits

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// window is the window of a controller with these limits.
func window(t interface{ Fatal(...any) }, limits string) *Window {
	s, err := Parse([]byte(head + "limits:\n" + limits))
	if err != nil {
		t.Fatal(err)
	}
	return s.NewWindow("rs")
}

func deletes(namespace string, n int) (all []events.Command) {
	for i := range n {
		all = append(all, events.Command{Verb: events.VerbDelete, Kind: "pods", Namespace: namespace, Name: fmt.Sprint("pod-", i)})
	}
	return all
}

func undecided(string) (a events.Approval, approved, ok bool) { return a, false, false }

// applied are the results of a turn whose commands without a verdict were carried out.
func applied(n int, held map[int]Verdict) (all []events.Result) {
	for i := range n {
		r := events.Result{Command: i, Status: events.Applied}
		if _, is := held[i]; is {
			r.Status = events.Refused
		}
		all = append(all, r)
	}
	return all
}

// play judges a turn at a moment, carries it out, and counts its outcome.
func (w *Window) play(at time.Time, turn uint64, commands []events.Command, decided Decided) (held map[int]Verdict) {
	held = w.Judge(at, turn, commands, decided)
	w.Count(at, events.Outcome{Turn: turn, WriteCounts: w.Counts(turn, applied(len(commands), held))})
	return held
}

func TestALimitHoldsWhatExceedsIt(t *testing.T) {
	w := window(t, "- {name: pods, verbs: [delete], kinds: [pods], per: namespace, max: 5, within: 1m}")
	if held := w.play(noon, 1, deletes("shop", 3), undecided); len(held) != 0 {
		t.Fatalf("of the first three deletes these are held: %v, want none", held)
	}
	held := w.play(noon.Add(20*time.Second), 2, deletes("shop", 3), undecided)
	want := map[int]Verdict{2: {Limit: "pods", Message: `the write limit "pods" is reached: 5 writes within 1m0s in namespace shop, the next at 2026-11-29T12:01:00Z, or after an approval; millrace held shows how`}}
	if !reflect.DeepEqual(held, want) {
		t.Errorf("of the next three deletes these are held: %v, want %v", held, want)
	}
	if held := w.play(noon.Add(20*time.Second), 3, deletes("till", 5), undecided); len(held) != 0 {
		t.Errorf("of another namespace these are held: %v, want none", held)
	}
	if held := w.play(noon.Add(time.Minute), 4, deletes("shop", 4), undecided); len(held) != 1 || !strings.Contains(held[3].Message, "the next at 2026-11-29T12:01:20Z") {
		t.Errorf("a minute after the first three, when two still count, are held %v", held)
	}
}

// Writes of all namespaces count together in a limit for each controller, and a command counts against
// every limit that is about it, or against none.
func TestACommandMustPassEveryLimit(t *testing.T) {
	w := window(t, `- {name: all, verbs: [delete], kinds: [pods], max: 3, within: 1m}
- {name: shop, verbs: [delete], kinds: [pods], namespaces: [shop], max: 1, within: 1m}`)
	commands := append(deletes("shop", 2), deletes("till", 3)...)
	held := w.play(noon, 1, commands, undecided)
	if len(held) != 2 || held[1].Limit != "shop" || held[4].Limit != "all" {
		t.Errorf("held are %v", held)
	}
}

// A turn in flight counts until its outcome is counted; an outcome without its writes gives the room
// back. A turn that is delivered again counts once.
func TestTurnsInFlightCount(t *testing.T) {
	w := window(t, "- {name: pods, verbs: [delete], kinds: [pods], max: 2, within: 1m}")
	if held := w.Judge(noon, 1, deletes("shop", 2), undecided); len(held) != 0 {
		t.Fatal(held)
	}
	if held := w.Judge(noon, 1, deletes("shop", 2), undecided); len(held) != 0 {
		t.Errorf("when the turn is delivered again these are held: %v, want none", held)
	}
	held := w.Judge(noon, 2, deletes("shop", 1), undecided)
	if len(held) != 1 || strings.Contains(held[0].Message, "the next at") {
		t.Errorf("behind it are held %v", held)
	}
	failed := []events.Result{{Command: 0, Status: events.Failed}, {Command: 1, Status: events.Failed, Unsure: true}}
	counts := w.Counts(1, failed)
	if want := []events.WriteCount{{Limit: "pods", Writes: 1}}; !reflect.DeepEqual(counts, want) {
		t.Errorf("one failed delete and one unsure one count as %v, want %v", counts, want)
	}
	w.Count(noon, events.Outcome{Turn: 1, WriteCounts: counts})
	if held := w.Judge(noon, 2, deletes("shop", 2), undecided); len(held) != 1 {
		t.Errorf("after the outcome these are held: %v, want one of two", held)
	}
}

// A turn that is delivered again may find room for fewer of its writes than the first time. Those that
// the first delivery has made count all the same, and those that it has not made do not.
func TestWhatAnEarlierDeliveryMadeCounts(t *testing.T) {
	w := window(t, "- {name: pods, verbs: [delete], kinds: [pods], max: 1, within: 1m}")
	if held := w.Judge(noon, 1, deletes("shop", 3), undecided); len(held) != 2 {
		t.Fatal(held)
	}
	found := []events.Result{{Command: 0, Status: events.Unchanged}, {Command: 1, Status: events.Unchanged}, {Command: 2, Status: events.Refused, Unsure: true}}
	if counts := w.Counts(1, found); len(counts) != 1 || counts[0].Writes != 2 {
		t.Errorf("two deletes that were made and one that was not count as %v, want 2", counts)
	}
}

// A person's decision is about the limits that it names. What is approved does not count, and what is
// denied is held also when there is room.
func TestAPersonDecides(t *testing.T) {
	decide := func(approved bool) Decided {
		return func(limit string) (events.Approval, bool, bool) {
			return events.Approval{By: "alice", Because: "a mistake"}, approved, limit == "pods"
		}
	}
	w := window(t, "- {name: pods, verbs: [delete], kinds: [pods], max: 0}")
	held := w.play(noon, 1, deletes("shop", 2), undecided)
	if len(held) != 2 || !strings.HasPrefix(held[0].Message, `the write limit "pods" requires an approval`) {
		t.Errorf("without an approval these are held: %v, want both, with a message that says so", held)
	}
	if held := w.play(noon, 2, deletes("shop", 2), decide(true)); len(held) != 0 || len(w.made) != 0 {
		t.Errorf("with an approval these are held: %v, and %v count; want none of either", held, w.made)
	}
	w = window(t, "- {name: pods, verbs: [delete], kinds: [pods], max: 9, within: 1m}\n- {name: more, verbs: [delete], kinds: [pods], max: 1, within: 1m}")
	if held := w.play(noon, 1, deletes("shop", 1), decide(false)); held[0] != (Verdict{"pods", true, "denied by alice: a mistake"}) {
		t.Errorf("a denied delete is held as %v, want as denied by alice", held)
	}
	if held := w.play(noon, 2, deletes("shop", 2), decide(true)); len(held) != 1 || held[1].Limit != "more" {
		t.Errorf("beyond a limit that the approval does not name are held %v", held)
	}
}

func TestWhatAWindowIsAbout(t *testing.T) {
	w := window(t, "- {name: a, verbs: [delete], kinds: [pods], max: 2, within: 1m}\n- {name: b, verbs: [delete], kinds: [nodes], max: 2, within: 3m}")
	if w.Reach() != 3*time.Minute || !reflect.DeepEqual(w.Names(), []string{"a", "b"}) {
		t.Errorf("the window reaches back %v, and its limits are %v; want 3m, a and b", w.Reach(), w.Names())
	}
	if w.Concerns([]events.Command{{Verb: events.VerbCreate, Kind: "pods"}}) || !w.Concerns(deletes("shop", 1)) || (*Window)(nil).Concerns(deletes("shop", 1)) {
		t.Error("the window concerns other commands than those of its limits")
	}
	w.play(noon, 1, deletes("shop", 2), undecided)
	w.Judge(noon, 2, []events.Command{{Verb: events.VerbDelete, Kind: "nodes"}}, undecided)
	w.Forget()
	if len(w.made) != 0 || len(w.inFlight) != 1 {
		t.Errorf("after Forget %v are counted and %v are in flight, want none and one", w.made, w.inFlight)
	}
	w.Judge(noon.Add(abandoned), 3, nil, undecided)
	if _, there := w.inFlight[2]; there {
		t.Error("a turn that nothing came of is in flight for ever")
	}
}

// However turns are spread over time and over two writers that follow each other, no stretch as long as
// the limit has more writes than it allows.
func TestALimitIsNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most, within = 7, time.Minute
		w := window(t, fmt.Sprintf("- {name: pods, verbs: [delete], kinds: [pods], max: %d, within: 1m}", most))
		var made []time.Time
		var record []events.Outcome
		var stored []time.Time
		now := noon
		for turn := range uint64(rapid.IntRange(1, 60).Draw(t, "turns")) {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "pause")) * time.Second)
			if rapid.IntRange(0, 9).Draw(t, "another writer") == 0 { // it counts what is on record
				w = window(t, fmt.Sprintf("- {name: pods, verbs: [delete], kinds: [pods], max: %d, within: 1m}", most))
				for i, o := range record {
					w.Count(stored[i], o)
				}
			}
			commands := deletes("shop", rapid.IntRange(1, 10).Draw(t, "deletes"))
			held := w.Judge(now, turn+1, commands, undecided)
			for range len(commands) - len(held) {
				made = append(made, now)
			}
			o := events.Outcome{Turn: turn + 1, WriteCounts: w.Counts(turn+1, applied(len(commands), held))}
			w.Count(now, o)
			record, stored = append(record, o), append(stored, now)
		}
		for i := range made {
			if i >= most && made[i].Sub(made[i-most]) < within {
				t.Fatalf("%d writes within %v", most+1, made[i].Sub(made[i-most]))
			}
		}
	})
}
