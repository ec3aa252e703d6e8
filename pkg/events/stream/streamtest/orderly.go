package streamtest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Orderly tests that appended, stored and put messages exist once, in order, and that every
// lookup finds them, on a bus that has the streams of pods and of a controller.
func Orderly(t *testing.T, b bus.Bus, controller string, rounds int) {
	k := &kit{T: t, bus: b, ctx: t.Context()}
	a := k.appender(kinds.Pods.Kind)
	turns, outcomes := subject.TurnStream(controller), subject.OutcomeStream(controller)
	last := uint64(0)
	for i := 1; i <= rounds; i++ {
		k.append(a, k.pod("a", i))
		body := fmt.Sprint("round ", i)
		m := events.Message{Subject: subject.Turn(controller, events.LaneWrite, key("a")), Data: []byte(body)}
		n, err := b.Store(k.ctx, m, last)
		k.must(err)
		other := m
		other.Data = []byte("another")
		if _, err := b.Store(k.ctx, other, last); !errors.Is(err, bus.ErrOvertaken) {
			t.Fatalf("round %d: another turn is stored in the same place: %v", i, err)
		}
		last = n
		m.Subject = subject.Outcome(controller, events.LaneWrite, key("a"))
		first, err := b.Put(k.ctx, m, body)
		k.must(err)
		if again, err := b.Put(k.ctx, m, body); err != nil || again != first {
			t.Fatalf("round %d: the outcome is at %d, and stored again at %d (%v)", i, first, again, err)
		}
		for stream, on := range map[string]string{turns: subject.Turn(controller, events.LaneWrite, key("a")), outcomes: m.Subject} {
			found, err := b.LastOf(k.ctx, stream, []string{on, on + "-which-has-none"})
			k.must(err)
			if got := found[on]; string(got.Data) != body || len(found) != 1 {
				t.Fatalf("round %d: the last of %s is %q of %d", i, on, got.Data, len(found))
			}
			if one, there, err := b.Last(k.ctx, stream, on); err != nil || !there || one.Sequence != found[on].Sequence {
				t.Fatalf("round %d: alone the last of %s is at %d: %t, %v", i, on, one.Sequence, there, err)
			}
		}
	}
	for _, stream := range []string{turns, outcomes, subject.LogStream("pods")} {
		if s := k.state(stream); s.Messages != uint64(rounds) || s.Last != uint64(rounds) {
			t.Errorf("after %d rounds %s stands at %+v", rounds, stream, s)
		}
	}
	for i := 1; i <= rounds; i++ {
		m, there, err := b.At(k.ctx, subject.LogStream("pods"), uint64(i))
		if want := fmt.Sprintf(`{"version":%d}`, i); err != nil || !there || string(m.Data) != want {
			t.Errorf("message %d of the log is %s (%t, %v), want %s", i, m.Data, there, err, want)
		}
	}
}
