package turns_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/subject"
)

// All of it, with the figures for docs/evidence:
//
//	go test -count=1 -run TestForgedTurnsAreRefused ./turns -forged.turns=10000 -forged.evidence=$PWD/../docs/evidence/forged-turns.json
var (
	forgedTurns    = flag.Int("forged.turns", 300, "how many turns are forged")
	forgedSeed     = flag.Uint64("forged.seed", 1, "what chooses the bits and lengths")
	forgedEvidence = flag.String("forged.evidence", "", "file to which the figures are written; empty: none")
)

// forger stores turns that no reconciler has written, with every right on the bus. It has seen
// everything that honest reconcilers have signed, and has a key of its own.
type forger struct {
	*world
	honest, own *sign.Signer
	random      *rand.Rand
	stored      map[uint64]string // forged turns, by sequence
	refused     int               // by the bus
}

// turn is a turn that creates a ConfigMap, in its stored form.
func (f *forger) turn(controller, key, makes string) events.Message {
	f.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": makes}})
	f.must(err)
	t := events.Turn{
		Controller: controller, Lane: events.LaneWrite, Key: events.Key{Namespace: "ns", Name: key}, Now: time.Now(), Because: "I say so",
		Commands: []events.Command{{Verb: events.VerbCreate, Kind: kinds.ConfigMaps.Name, Version: "v1", Namespace: "ns", Name: makes, Body: body}},
	}
	m, err := events.EncodeJSON(t, events.Trace{})
	f.must(err)
	m.Subject = subject.Turn(controller, t.Lane, t.Key)
	return m
}

// lay stores a message at the place that it claims.
func (f *forger) lay(how string, m events.Message, expect uint64) {
	f.Helper()
	sequence, err := f.bus.Store(f.Context(), m, expect)
	f.must(err)
	f.stored[sequence] = how
}

// tricks are the ways to forge a turn. Each gets a key without a turn, the name of an object
// that must not be created, and a turn that was carried out.
var tricks = []struct {
	name string
	play func(f *forger, how, key, makes string, done events.Message)
}{
	{"unsigned", func(f *forger, how, key, makes string, _ events.Message) { f.lay(how, f.turn(copier, key, makes), 0) }},
	{"foreign", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.own.Turn(m, 0, time.Now())
		f.lay(how, m, 0)
	}},
	{"foreign under our key's name", func(f *forger, how, key, makes string, done events.Message) {
		m := f.turn(copier, key, makes)
		f.own.Turn(m, 0, time.Now())
		m.Header[sign.HeaderKey] = done.Header[sign.HeaderKey]
		f.lay(how, m, 0)
	}},
	{"another controller's", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn("other", key, makes)
		f.honest.Turn(m, 0, time.Now())
		m.Subject = subject.Turn(copier, events.LaneWrite, events.Key{Namespace: "ns", Name: key})
		f.lay(how, m, 0)
	}},
	{"replayed", func(f *forger, how, _, _ string, done events.Message) {
		copied := events.Message{Subject: done.Subject, Header: map[string][]string{}, Data: done.Data}
		for name, values := range done.Header {
			copied.Header[name] = values
		}
		if _, err := f.bus.Put(f.Context(), copied, "again-"+done.Subject+fmt.Sprint(len(f.stored))); !errors.Is(err, bus.ErrOvertaken) {
			f.Errorf("the bus answers a turn that was stored before with %v, want ErrOvertaken", err)
		} else {
			f.refused++
		}
		last, _, err := f.bus.Last(f.Context(), done.Stream, done.Subject)
		f.must(err)
		if f.random.IntN(2) == 0 { // with another place, or without one
			f.lay(how, copied, last.Sequence)
			return
		}
		for name := range copied.Header {
			if strings.HasPrefix(name, "Nats-") {
				delete(copied.Header, name)
			}
		}
		sequence, err := f.bus.Put(f.Context(), copied, "bare-"+done.Subject+fmt.Sprint(len(f.stored)))
		f.must(err)
		f.stored[sequence] = how
	}},
	{"expired", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.honest.Turn(m, 0, time.Now().Add(-sign.TurnWithin-time.Minute))
		f.lay(how, m, 0)
	}},
	{"of the future", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.honest.Turn(m, 0, time.Now().Add(sign.TurnWithin+time.Minute))
		f.lay(how, m, 0)
	}},
	{"re-laned", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.honest.Turn(m, 0, time.Now())
		lane := []events.Lane{events.LaneStatus, "whatever"}[f.random.IntN(2)]
		m.Subject = subject.Turn(copier, lane, events.Key{Namespace: "ns", Name: key})
		f.lay(how, m, 0)
	}},
	{"truncated", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.honest.Turn(m, 0, time.Now())
		m.Data = m.Data[:f.random.IntN(len(m.Data))]
		f.lay(how, m, 0)
	}},
	{"bit-flipped", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.honest.Turn(m, 0, time.Now())
		m.Data = bytes.Clone(m.Data)
		m.Data[f.random.IntN(len(m.Data))] ^= 1 << f.random.IntN(8)
		f.lay(how, m, 0)
	}},
	{"for another place", func(f *forger, how, key, makes string, _ events.Message) {
		m := f.turn(copier, key, makes)
		f.honest.Turn(m, 1+f.random.Uint64N(9), time.Now())
		f.lay(how, m, 0)
	}},
}

// made returns how many requests but reads the API server received, by the name that they send.
func (f *forger) made() map[string]int {
	made := map[string]int{}
	for _, r := range f.api.Requests() {
		if r.Method != http.MethodGet {
			made[nameIn(r)]++
		}
	}
	return made
}

// TestForgedTurnsAreRefused stores forged turns between honest ones. No forged turn makes a
// request, each has an outcome that says so and an alarm, every writer goes on, and every
// honest turn is carried out once.
func TestForgedTurnsAreRefused(t *testing.T) {
	w := newWorld(t)
	w.signs(time.Now().Add(-time.Hour))
	w.open()
	defer w.close()
	stops := []func(){w.writes(), w.writes()}
	private, _, err := sign.Generate()
	w.must(err)
	own, err := sign.NewSigner(private)
	w.must(err)
	f := &forger{world: w, honest: w.signer(w.keys.Turns), own: own, random: rand.New(rand.NewPCG(*forgedSeed, 0)), stored: map[uint64]string{}}
	began, good, counts := time.Now(), 0, map[string]int{}
	var done events.Message
	for n := range *forgedTurns {
		if n%len(tricks) == 0 {
			good++
			done = f.carriedOut(fmt.Sprint("good-", good))
		}
		trick := tricks[n%len(tricks)]
		trick.play(f, trick.name, fmt.Sprint("victim-", n), fmt.Sprint("evil-", n), done)
		counts[trick.name]++
	}
	outcomes := f.refusals()
	took := time.Since(began)
	alive := 0
	for _, stop := range stops {
		if stop(); !t.Failed() { // it reports the error that ended a writer
			alive++
		}
	}
	evil, made := 0, f.made()
	for name, n := range made {
		if !strings.HasPrefix(name, "good-") || n != 1 {
			t.Errorf("the API server got %d requests for %q, want one for each honest turn and none else", n, name)
			evil++
		}
	}
	alarms := w.alarmed("millrace_writer_alarms_total", events.BadSignature)
	if len(made) != good || outcomes != len(f.stored) || len(f.stored) != *forgedTurns || alarms < *forgedTurns {
		t.Errorf("%d of %d honest turns were carried out; of %d forged ones %d were refused, with %d alarms", len(made), good, *forgedTurns, outcomes, alarms)
	}
	t.Logf("%d forged, %d refused, %d more by the bus, %d honest turns carried out, %v", len(f.stored), outcomes, f.refused, good, took)
	w.evidence(map[string]any{
		"forged": len(f.stored), "refused": outcomes, "byTrick": counts, "replaysRefusedByTheBus": f.refused, "alarms": alarms,
		"requests": evil, "honest": good, "honestCarriedOut": len(made), "writers": len(stops), "writersAlive": alive, "took": took.Round(time.Millisecond).String(),
	})
}

// carriedOut stores an honest turn and waits until it is carried out.
func (f *forger) carriedOut(name string) events.Message {
	f.Helper()
	m := f.turn(copier, name, name)
	f.honest.Turn(m, 0, time.Now())
	sequence, err := f.bus.Store(f.Context(), m, 0)
	f.must(err)
	f.eventually("an honest turn has its outcome", func() bool {
		_, _, o := f.last(name)
		return o.Turn == sequence && o.OK()
	})
	stored, _, err := f.bus.At(f.Context(), subject.TurnStream(copier), sequence)
	f.must(err)
	return stored
}

// refusals waits until every forged turn has an outcome, and returns how many were refused as
// forged, by a valid outcome.
func (f *forger) refusals() (refused int) {
	f.Helper()
	trust, missing, next := f.trust(f.keys.Outcomes), len(f.stored), uint64(0)
	known := map[uint64]bool{}
	f.eventually("every forged turn has an outcome", func() bool {
		s, err := f.bus.StreamState(f.Context(), subject.OutcomeStream(copier))
		f.must(err)
		for ; next < s.Last; next++ {
			m, ok, err := f.bus.At(f.Context(), subject.OutcomeStream(copier), next+1)
			f.must(err)
			var o events.Outcome
			if !ok || trust.Outcome(m) != nil || events.DecodeJSON(m, &o) != nil {
				f.Errorf("outcome %d is not signed by a writer", next+1)
				continue
			}
			if f.stored[o.Turn] == "" || known[o.Turn] {
				continue
			}
			known[o.Turn] = true
			if missing--; o.Forged() {
				refused++
			}
		}
		return missing == 0
	})
	return refused
}

// signs gives keys to the reconcilers and writers, valid from a time.
func (w *world) signs(from time.Time) {
	w.Helper()
	keys, err := sign.ProvideFrom(w.TempDir(), from)
	w.must(err)
	w.keys = &keys
}

func (w *world) evidence(figures map[string]any) {
	w.Helper()
	if *forgedEvidence == "" {
		return
	}
	figures["seed"] = *forgedSeed
	w.must(evidence.Write(w.Context(), *forgedEvidence, figures))
}

// TestSigningBeginsOnAnUnsignedHistory: messages from before the keys count, and nothing is
// stored again because of them.
func TestSigningBeginsOnAnUnsignedHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	names := []string{"a", "b", "c", "d"}
	w.session(func() {
		for _, name := range names {
			w.settle(name)
		}
	})
	w.signs(time.Now())
	w.session(func() {
		for _, name := range names {
			w.remove(name)
			w.eventually("the copy is made anew", func() bool { return w.creates(name) == 2 })
		}
		w.settle("e")
		for _, name := range names {
			turns := w.outcomes(name)
			if len(turns) != 2 || !turns[0].OK() || !turns[1].OK() {
				t.Errorf("the turns about %s have the outcomes %+v, want 2 that are carried out", name, turns)
			}
		}
	})
}

// TestAForgedOutcomeOpensNoFence: an outcome that no writer has signed does not count. The turn
// waits for a valid one, and is stored again when none comes.
func TestAForgedOutcomeOpensNoFence(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.signs(time.Now().Add(-time.Hour))
	w.open()
	defer w.close()
	decided := w.decides()
	defer decided()
	w.want("a")
	var sequence uint64
	w.eventually("a turn is stored", func() bool { _, sequence, _ = w.last("a"); return sequence > 0 })
	key := events.Key{Namespace: "ns", Name: "a"}
	m, err := events.EncodeJSON(events.Outcome{
		Controller: copier, Key: key, Lane: events.LaneWrite, Turn: sequence, At: time.Now(), Results: []events.Result{{Status: events.Refused, Reason: "ISaySo"}},
	}, events.Trace{})
	w.must(err)
	m.Subject = subject.Outcome(copier, events.LaneWrite, key)
	_, err = w.bus.Put(w.Context(), m, "forged")
	w.must(err)
	w.eventually("it is an alarm", func() bool { return w.alarmed("millrace_reconcilers_unproven_outcomes_total", copier) > 0 })
	if _, now, _ := w.last("a"); now != sequence {
		t.Errorf("a forged outcome opened the fence: the last turn is %d, want %d still", now, sequence)
	}
	defer w.writes()()
	w.eventually("the copy is made", func() bool { return w.creates("a") == 1 })
	w.eventually("it has an outcome that counts", func() bool { _, last, o := w.last("a"); return o.OK() && o.Turn == last })
}

// TestKeysChangeWhileServicesRun: while two keys are trusted the signer changes, and then the
// old key is retired: no turn is refused. Then the new key is revoked, and its turns are
// refused.
func TestKeysChangeWhileServicesRun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.signs(time.Now().Add(-time.Hour))
	w.open()
	defer w.close()
	defer w.decides()()
	defer w.writes()()
	w.settle("a")
	later, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
	w.must(err)
	move := func(from, to string, change func([]byte) []byte) {
		text, err := os.ReadFile(from)
		w.must(err)
		w.must(os.WriteFile(to+".new", change(text), 0o600))
		w.must(os.Rename(to+".new", to))
	}
	asIs := func(text []byte) []byte { return text }
	old, err := os.ReadFile(w.keys.Turns.Public)
	w.must(err)
	move(later.Turns.Public, w.keys.Turns.Public, func(text []byte) []byte { return slices.Concat(old, text) })
	move(later.Turns.Private, w.keys.Turns.Private, asIs)
	signer := w.signer(later.Turns)
	id := signer.ID()
	for n := 0; ; n++ {
		name := fmt.Sprint("b", n)
		w.settle(name)
		m, _, err := w.bus.Last(t.Context(), subject.TurnStream(copier), subject.Turn(copier, events.LaneWrite, events.Key{Namespace: "ns", Name: name}))
		w.must(err)
		if sign.By(m) == id {
			break
		}
	}
	move(later.Turns.Public, w.keys.Turns.Public, asIs) // the old one is dropped
	w.settle("c")
	if refused := w.alarmed("millrace_writer_alarms_total", events.BadSignature); refused != 0 {
		t.Fatalf("%d turns were refused while the key changed, want none", refused)
	}
	move(later.Turns.Public, w.keys.Turns.Public, func(text []byte) []byte {
		keys, err := sign.ParseTrust(text)
		w.must(err)
		keys[0].Revoked = time.Now().Add(-time.Second)
		text, err = keys[0].PEM()
		w.must(err)
		return text
	})
	for n := 0; w.alarmed("millrace_writer_alarms_total", events.BadSignature) == 0; n++ {
		name := fmt.Sprint("d", n)
		w.want(name)
		w.eventually("there is an outcome", func() bool { _, _, o := w.last(name); return o.Turn > 0 })
	}
}
