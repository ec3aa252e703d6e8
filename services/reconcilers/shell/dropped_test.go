package shell

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// tellOutcome stores what became of a turn of a key.
func tellOutcome(t *testing.T, b *memory.Bus, key events.Key, turn uint64, message string) {
	t.Helper()
	m, err := events.EncodeJSON(events.Outcome{
		Controller: "toy", Key: key, Lane: events.Act, Turn: turn,
		Results: []events.Result{{Status: events.Unchanged, Message: message}},
	}, events.Trace{})
	if err != nil {
		t.Fatal(err)
	}
	m.Subject = subject.Outcome("toy", events.Act, key)
	if _, err := b.Put(t.Context(), m, fmt.Sprint(key, turn)); err != nil {
		t.Fatal(err)
	}
}

// TestATurnWhoseOutcomeWasDropped: outcomes are bounded by size, and may be dropped
// before their turns are. A key that has been quiet for long must not wait for one
// then; but one that was asked for just now must, and so must one that has none although
// the stream reaches back to its turn.
func TestATurnWhoseOutcomeWasDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{LogBytes: 4096})
		defer b.Close()
		if err := b.EnsureController(t.Context(), "toy"); err != nil {
			t.Fatal(err)
		}
		store := func(key events.Key) uint64 {
			sequence, err := storeTurn(t.Context(), b, events.Turn{Controller: "toy", Key: key, Lane: events.Act, Now: time.Now()}, 0)
			if err != nil {
				t.Fatal(err)
			}
			return sequence
		}
		is := func(key events.Key, when string, want bool) {
			t.Helper()
			past, err := recall(t.Context(), b, "toy", key, events.Act)
			if err != nil {
				t.Fatal(err)
			}
			if past.Sequence == 0 || past.Dropped != want {
				t.Errorf("%s the outcome of turn %d of %v is dropped: %t, want %t", when, past.Sequence, key, past.Dropped, want)
			}
		}
		quiet, orphan, other := events.Key{Name: "quiet"}, events.Key{Name: "orphan"}, events.Key{Name: "other"}
		tellOutcome(t, b, quiet, store(quiet), "")
		is(quiet, "while it is there", false)
		time.Sleep(outcomesSince)
		flood := func() {
			for i := range 8 {
				tellOutcome(t, b, other, uint64(100+i), strings.Repeat("x", 512))
			}
		}
		flood()
		is(quiet, "when it has been pushed out", true)
		store(orphan)
		is(orphan, "at once", false)
		time.Sleep(2 * outcomesSince)
		is(orphan, "when it never came, and older ones are there,", false)
		flood()
		flood()
		is(orphan, "when nobody can tell any more", true)
	})
}

// A key of which the outcome has been dropped has its next turn at once, behind the
// last.
func TestAKeyWhoseOutcomeWasDroppedGoesOn(t *testing.T) {
	o := open(t, Settings{})
	o.change(kinds.ReplicaSets.Kind, events.Is, aSet("web", 1, 1, 0, ""))
	past := underWay(10)
	past.Dropped = true
	o.recalled(past, Past{})
	if turn := o.take(events.Act); turn.expect != 10 || turn.Repeats != 0 {
		t.Errorf("the next turn is %+v", turn)
	}
}
