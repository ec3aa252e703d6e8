package shell

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// witnessed is a bus with one stream, which counts how often it is read.
type witnessed struct {
	tape
	state bus.State
	reads int
}

func (c *witnessed) StreamState(context.Context, string) (bus.State, error) { return c.state, nil }

func (c *witnessed) At(ctx context.Context, stream string, at uint64) (events.Message, bool, error) {
	c.reads++
	return c.tape.At(ctx, stream, at)
}

// TestAWitnessAtRestIsNotReadAgainAndAgain, except when the stream has changed, the witness is
// another one, a loss is suspected, or long enough has passed.
func TestAWitnessAtRestIsNotReadAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := subject.TurnStream("toy")
		b := &witnessed{
			tape:  tape{held: map[uint64]string{5: "c", 6: "d"}},
			state: bus.State{First: 3, Last: 5, Messages: 3, Bytes: 100, Created: epoch},
		}
		l := &Loop{bus: b, witnesses: newWitnesses("toy")}
		l.witnesses.observe(stream, 5, "c")
		look := func(why string, reads int) {
			t.Helper()
			before := b.reads
			now, lost, err := l.checkWitness(t.Context(), stream)
			if err != nil || lost != nil {
				t.Errorf("%s: the check finds the loss %v (%v), want none", why, lost, err)
			}
			l.witnesses.record(stream, now, false)
			if got := b.reads - before; got != reads {
				t.Errorf("%s: the witness was read %d times, want %d", why, got, reads)
			}
		}
		look("the first time", 1)
		look("at rest", 0)
		b.state.Bytes++
		look("other bytes", 1)
		l.witnesses.observe(stream, 6, "d")
		b.state.Last, b.state.Messages = 6, 4
		look("another witness", 1)
		l.witnesses.reread()
		look("in doubt", 1)
		time.Sleep(restRead)
		look("much later", 1)
		b.held = nil
		b.state.Bytes--
		if _, lost, err := l.checkWitness(t.Context(), stream); lost == nil || err != nil {
			t.Errorf("a witness that is gone is the loss %v (%v), want one", lost, err)
		}
	})
}
