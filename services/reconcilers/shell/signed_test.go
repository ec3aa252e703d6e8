package shell

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// In a recall a turn that no reconciler signed has only its sequence, its refusal says nothing
// about the turns before, and an outcome counts only if it is signed.
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
		m, err := events.EncodeJSON(events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite}, events.Trace{})
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
		{"an unsigned outcome", turn(true), outcome(false, "Stale"), true, false},
		{"an unsigned turn", turn(false), outcome(true, "Stale"), false, true},
		{"an unsigned turn, refused", turn(false), outcome(true, events.BadSignature), false, false},
		{"a turn of ours, refused", turn(true), outcome(true, events.BadSignature), true, true},
	} {
		past := by.pastOf(c.turn, true, c.outcome)
		if past.Sequence != 7 || (past.Turn != nil) != c.knows || (past.Outcome != nil) != c.answered {
			t.Errorf("%s: the past is %+v, want sequence 7, the turn: %t, the outcome: %t", c.name, past, c.knows, c.answered)
		}
	}
	if refused != 1 {
		t.Errorf("%d outcomes were refused with an alarm, want 1", refused)
	}
}

// A heartbeat counts only if a writer has signed it: otherwise any user who may publish on the
// topic could keep a turn whose outcome is lost from being stored again.
func TestOnlyAWriterHasATurnInFlight(t *testing.T) {
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
		return report.Heartbeat{Writer: "w", Number: turn, Turns: map[string][]uint64{"toy": {turn}}}.Encode()
	}
	for name, c := range map[string]struct {
		by   Signatures
		said []byte
		want bool
	}{
		"a writer's":        {Signatures{Outcomes: trust}, writing.Hint(report.Writers, claim(7), time.Now()), true},
		"a writer's of old": {Signatures{Outcomes: trust}, writing.Hint(report.Writers, claim(7), time.Now().Add(-time.Minute)), false},
		"unsigned":          {Signatures{Outcomes: trust}, claim(7), false},
		"without keys":      {Signatures{}, claim(7), true},
	} {
		t.Run(name, func(t *testing.T) {
			said := make(chan []byte)
			b := &bustest.Bus{OnListen: func(ctx context.Context, _ string, hear func([]byte)) error {
				for {
					select {
					case text := <-said:
						hear(text)
					case <-ctx.Done():
						return nil
					}
				}
			}}
			memory := cache.New()
			l := loopedOn(memory, b, toy(), Settings{Signatures: c.by}, nil, aSet("web", 1, 1, 0, ""))
			remember(t, l, 7)
			db := events.Key{Namespace: "default", Name: "db"}
			memory.Fold(kinds.ReplicaSets.Name, []events.Message{delta(kinds.ReplicaSets.Kind, events.Is, aSet("db", 2, 1, 0, ""), 2)})
			l.engine.Ask(db)
			recalls(t, l, 8)
			began := time.Now()
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			running.Go(func() { l.Run(ctx) })
			running.Go(func() { HearWriters(ctx, b, []*Loop{l}) })
			inFlight := func(key events.Key) bool {
				k, _ := l.Key(ctx, key)
				return slices.ContainsFunc(k.Checks, func(c report.KeyCheck) bool {
					return c.Condition == report.NoOutcome && c.Holds && c.Since.After(began)
				})
			}
			for !inFlight(db) { // a valid heartbeat, sent after the one in question, has been heard
				for _, text := range [][]byte{c.said, writing.Hint(report.Writers, claim(8), time.Now())} {
					said <- text
				}
			}
			if got := inFlight(web); got != c.want {
				t.Errorf("the turn is in flight: %t, want %t", got, c.want)
			}
		})
	}
}

// keyed are the keys of reconcilers and writers, and foreign ones of the same sorts.
type keyed struct {
	turns, outcomes, strangers *sign.Signer
	turnTrust, outcomeTrust    *sign.Trust
}

func newKeys(t *testing.T, from time.Time) (k keyed) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	own, err := sign.ProvideFrom(t.TempDir(), from)
	must(err)
	other, err := sign.ProvideFrom(t.TempDir(), from)
	must(err)
	k.turns, err = sign.SignerFile(own.Turns.Private, nil)
	must(err)
	k.outcomes, err = sign.SignerFile(own.Outcomes.Private, nil)
	must(err)
	k.strangers, err = sign.SignerFile(other.Turns.Private, nil)
	must(err)
	k.turnTrust, err = sign.TrustFile(own.Turns.Public, nil)
	must(err)
	k.outcomeTrust, err = sign.TrustFile(own.Outcomes.Public, nil)
	must(err)
	return k
}

// A turn or heartbeat counts if a reconciler's key has signed it: a key of Turns if that is
// set, otherwise one that this process has had. Messages from before signing was required
// count, too.
func TestWhoseTurnsAndHeartbeatsCount(t *testing.T) {
	now := time.Now()
	k, young := newKeys(t, now.Add(-time.Hour)), newKeys(t, now.Add(time.Hour))
	turn := func(by *sign.Signer) events.Message {
		b := stocked(t, 0)
		if _, err := storeTurn(t.Context(), b, events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite}, 0, by, now); err != nil {
			t.Fatal(err)
		}
		m := b.streams["TURN_toy"][0]
		m.Header["Nats-Expected-Last-Subject-Sequence"] = []string{"0"}
		return m
	}
	said := []byte(`{"a":1}`)
	hint := func(by *sign.Signer) []byte { return by.Hint(report.Reconcilers, said, now) }
	for what, c := range map[string]struct {
		by     Signatures
		signer *sign.Signer
		counts bool
	}{
		"without keys":                       {Signatures{}, nil, true},
		"with a trust, of a reconciler":      {Signatures{Turns: k.turnTrust, Sign: k.strangers, Outcomes: k.outcomeTrust}, k.turns, true},
		"with a trust, of a stranger":        {Signatures{Turns: k.turnTrust, Sign: k.turns, Outcomes: k.outcomeTrust}, k.strangers, false},
		"with a trust, unsigned":             {Signatures{Turns: k.turnTrust, Sign: k.turns, Outcomes: k.outcomeTrust}, nil, false},
		"with own keys, of its own":          {Signatures{Sign: k.turns, Outcomes: k.outcomeTrust}, k.turns, true},
		"with own keys, of a stranger":       {Signatures{Sign: k.turns, Outcomes: k.outcomeTrust}, k.strangers, false},
		"with own keys, unsigned":            {Signatures{Sign: k.turns, Outcomes: k.outcomeTrust}, nil, false},
		"with own keys alone, of its own":    {Signatures{Sign: k.turns}, k.turns, true},
		"with own keys alone, unsigned":      {Signatures{Sign: k.turns}, nil, false},
		"before anything had to be signed":   {Signatures{Sign: young.turns, Outcomes: young.outcomeTrust}, nil, true},
		"before that, and there are no keys": {Signatures{Outcomes: young.outcomeTrust}, nil, true},
	} {
		if got := c.by.acceptsTurn(turn(c.signer)); got != c.counts {
			t.Errorf("%s: the turn is accepted: %t, want the opposite", what, got)
		}
		if err := c.by.Heartbeat(hint(c.signer), now); (err == nil) != c.counts {
			t.Errorf("%s: the heartbeat is accepted with %v", what, err)
		}
	}
}

// BusTime follows the last time that the bus reported.
func TestTheClockOfTheBus(t *testing.T) {
	l := looped(stocked(t, 0), toy(), Settings{}, nil)
	l.clock = func() time.Time { return epoch }
	if !l.BusTime().Equal(epoch) {
		t.Errorf("BusTime before the bus has reported is %v, want the local time", l.BusTime())
	}
	l.SetBusTime(bus.State{Now: epoch.Add(time.Hour)})
	l.SetBusTime(bus.State{})
	if !l.BusTime().Equal(epoch.Add(time.Hour)) {
		t.Errorf("BusTime is %v with a bus an hour ahead, want that hour", l.BusTime())
	}
}
