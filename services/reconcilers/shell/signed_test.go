package shell

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/sign"
)

// The refusal of what a forger put behind a turn that is under way does not open the
// fence: the turn's own outcome does.
func TestARefusedForgeryOpensNoFence(t *testing.T) {
	o := begun(t, Settings{})
	forged := events.Result{Status: events.Refused, Reason: events.BadSignature}
	o.desk.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.Act, Turn: 11, Results: []events.Result{forged}})
	e := o.desk.entries[web]
	if e.act.settled() || e.act.outcome >= 10 {
		t.Error("the fence opened for the refusal of what is no turn of ours")
	}
	if e.known {
		t.Error("the key is not recalled, although something lies behind its turn")
	}
	o.desk.Outcome(1, events.Outcome{Controller: "toy", Key: web, Lane: events.Act, Turn: 10, Results: []events.Result{forged}})
	if e.act.outcome != 10 || e.act.failures != 1 {
		t.Errorf("the refusal of the turn itself is outcome %d with %d failures, want 10 with 1", e.act.outcome, e.act.failures)
	}
}

// What is recalled of a lane: a turn that is not ours has its place and nothing more, its
// refusal tells nothing of the turns before, and an outcome counts only if it is signed.
func TestOnlyWhatIsSignedIsRemembered(t *testing.T) {
	keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	deciding, err := sign.SignerFile(keys.Turns.Private, nil)
	must(err)
	writing, err := sign.SignerFile(keys.Outcomes.Private, nil)
	must(err)
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	must(err)
	refused := 0
	by := Signatures{Sign: deciding, Outcomes: trust, Refused: func(events.Message, error) { refused++ }}
	turn := func(signed bool) events.Message {
		m, err := events.EncodeJSON(events.Turn{Controller: "toy", Key: web, Lane: events.Act}, events.Trace{})
		must(err)
		m.Sequence, m.Time = 7, time.Now()
		m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"3"}
		if signed {
			deciding.Turn(m, 3, m.Time)
		}
		return m
	}
	outcome := func(signed bool, reason string) events.Message {
		m, err := events.EncodeJSON(events.Outcome{Turn: 7, Results: []events.Result{{Status: events.Refused, Reason: reason}}}, events.Trace{})
		must(err)
		m.Sequence, m.Time = 9, time.Now()
		m.Header["Nats-Msg-Id"] = []string{"7"}
		if signed {
			writing.Outcome(m, "7", m.Time)
		}
		return m
	}
	for _, c := range []struct {
		name            string
		turn, outcome   events.Message
		knows, answered bool
	}{
		{"both are signed", turn(true), outcome(true, "Stale"), true, true},
		{"an outcome of nobody", turn(true), outcome(false, "Stale"), true, false},
		{"a turn of nobody", turn(false), outcome(true, "Stale"), false, true},
		{"a turn of nobody, refused", turn(false), outcome(true, events.BadSignature), false, false},
		{"a turn of ours, refused", turn(true), outcome(true, events.BadSignature), true, true},
	} {
		past := by.remembered(c.turn, true, c.outcome)
		if past.Sequence != 7 || (past.Turn != nil) != c.knows || (past.Outcome != nil) != c.answered {
			t.Errorf("%s: %+v", c.name, past)
		}
	}
	if refused != 1 {
		t.Errorf("%d outcomes were an alarm, want 1", refused)
	}
}

// topic is a bus on which something is said.
type topic struct {
	bus.Bus
	said chan []byte
}

func (b topic) Listen(ctx context.Context, _ string, hear func([]byte)) error {
	for {
		select {
		case text := <-b.said:
			hear(text)
		case <-ctx.Done():
			return nil
		}
	}
}

// What a writer has in flight counts where a writer has signed it: or else any user who may
// publish on the topic would keep a turn whose outcome is lost from being stored again.
func TestOnlyAWriterHasATurnInHand(t *testing.T) {
	keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	writing, err := sign.SignerFile(keys.Outcomes.Private, nil)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	if err != nil {
		t.Fatal(err)
	}
	claim := func(turn uint64) []byte {
		return events.Beat{Writer: "w", Number: turn, Turns: map[string][]uint64{"toy": {turn}}}.Encode()
	}
	for name, c := range map[string]struct {
		by   Signatures
		said []byte
		want bool
	}{
		"a writer's":        {Signatures{Outcomes: trust}, writing.Hint(events.Writers, claim(7), time.Now()), true},
		"a writer's of old": {Signatures{Outcomes: trust}, writing.Hint(events.Writers, claim(7), time.Now().Add(-time.Minute)), false},
		"unsigned":          {Signatures{Outcomes: trust}, claim(7), false},
		"without keys":      {Signatures{}, claim(7), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := topic{said: make(chan []byte)}
			memory := NewMemory()
			memory.Register(toy().Describe())
			l := NewLoop(b, toy(), memory, Settings{Signatures: c.by}, nil)
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			running.Go(func() { l.Run(ctx) })
			running.Go(func() { l.hearWriters(ctx) })
			has := func(turn uint64) bool {
				answer := make(chan bool)
				l.Tell(func(d *Desk) { answer <- !d.inHand[turn].IsZero() })
				return <-answer
			}
			for !has(8) { // what counts, and comes after what is judged, has been heard
				for _, text := range [][]byte{c.said, writing.Hint(events.Writers, claim(8), time.Now())} {
					b.said <- text
				}
			}
			if got := has(7); got != c.want {
				t.Errorf("the turn is in hand: %t, want %t", got, c.want)
			}
		})
	}
}
