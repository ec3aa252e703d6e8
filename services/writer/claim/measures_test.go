package claim

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

// writer is the claims of a writer whose clock the test sets.
type writer struct {
	*Claims
	start time.Time
}

func newWriter() writer {
	start := time.Date(2026, 11, 27, 1, 0, 0, 0, time.UTC)
	return writer{New("a", start), start}
}

func (w writer) at(d time.Duration) time.Time { return w.start.Add(d) }

// echo sends a heartbeat at a given time, and returns it at once.
func (w writer) echo(d time.Duration) (expired bool) { return w.Hear(w.Heartbeat(w.at(d)), w.at(d)) }

// until sends heartbeats from one time to another, and returns each at once.
func (w writer) until(from, to time.Duration) {
	for d := from; d <= to; d += Interval {
		w.echo(d)
	}
}

// says delivers another writer's heartbeat at a given time.
func (w writer) says(d time.Duration, id string, number uint64, turns ...uint64) bool {
	return w.Hear(report.Heartbeat{Writer: id, Number: number, Turns: map[string][]uint64{held.Controller: turns}}, w.at(d))
}

// crowd delivers heartbeats of as many other writers as are remembered.
func (w writer) crowd(d time.Duration, number uint64) {
	for i := range mostOthers {
		w.says(d, fmt.Sprint("other-", i), number)
	}
}

// Writers of different versions run side by side, so they must use the same times.
func TestWritersOfAllVersionsGoByTheSameMeasures(t *testing.T) {
	for name, c := range map[string]struct{ got, want time.Duration }{
		"a heartbeat every":   {Interval, 200 * time.Millisecond},
		"an expiry after":     {Expiry, 700 * time.Millisecond},
		"listening for":       {Listening, 400 * time.Millisecond},
		"given up after":      {UncertainFor, 8 * time.Second},
		"forgotten after":     {forgetAfter, 16 * time.Second},
		"believed for":        {claimBelieved, 2 * time.Minute},
		"let go after":        {maxFlight, 90 * time.Second},
		"believed anew after": {redeliveryPause, 600 * time.Millisecond},
	} {
		if c.got != c.want {
			t.Errorf("%s %v, want %v", name, c.got, c.want)
		}
	}
	if maxOnTheWay != 64 || mostOthers != 64 || mostClaims != 65536 {
		t.Errorf("remembered are %d heartbeats, %d writers, %d turns", maxOnTheWay, mostOthers, mostClaims)
	}
}

// A turn is in flight from Take to Release.
func TestWhatIsInFlight(t *testing.T) {
	w := newWriter()
	if !w.Empty() {
		t.Error("a new writer has turns")
	}
	for _, want := range []bool{false, true} {
		if known := w.Take(held, true, w.start); known != want || w.Empty() {
			t.Errorf("taken: known before: %t, want %t; none in flight: %t", known, want, w.Empty())
		}
	}
	if w.Release(held); !w.Empty() || w.Take(held, true, w.start) {
		t.Error("a turn is in flight that was released")
	}
}

// A writer listens from when heartbeats have come back for 400 ms until none has for 700 ms.
func TestWhenAWriterListens(t *testing.T) {
	w := newWriter()
	w.Take(held, false, w.start)
	w.echo(Interval)
	if w.Claim(held, w.at(Interval)) {
		t.Error("the writer claims a turn before it has listened")
	}
	w.echo(Listening)
	if !w.Claim(held, w.at(Listening)) || !w.Claim(held, w.at(Listening+Expiry-1)) {
		t.Error("the writer has listened, and claims no turn")
	}
	if w.Claim(held, w.at(Listening+Expiry)) {
		t.Error("the writer claims a turn although it does not hear itself any more")
	}
}

// A claim is announced when a later heartbeat has come back.
func TestWhenAClaimIsAnnounced(t *testing.T) {
	w := newWriter()
	w.echo(Interval)
	claimed := w.Sent()
	if w.Announced(claimed) || !w.Announced(claimed-1) {
		t.Error("a claim is announced by the heartbeat before it")
	}
	if w.echo(2 * Interval); !w.Announced(claimed) {
		t.Error("a claim is not announced by the heartbeat after it")
	}
}

// Another writer has fallen silent when it was not heard for 700 ms. A copy of a heartbeat does
// not count.
func TestWhenAnotherWriterIsSilent(t *testing.T) {
	w := newWriter()
	w.until(Interval, 4*Interval)
	w.says(4*Interval, "b", 1)
	w.until(5*Interval, 7*Interval)
	heard := 4 * Interval
	if !w.NoneBegunSince(w.at(heard), w.at(heard+Expiry-1)) || w.NoneBegunSince(w.at(heard), w.at(heard+Expiry)) {
		t.Error("the other writer does not count as silent after exactly 700 ms")
	}
	w.says(heard+Expiry, "b", 1)
	if w.NoneBegunSince(w.at(heard), w.at(heard+Expiry)) {
		t.Error("a copy counts as a heartbeat of its own")
	}
}

// A turn stored for 8 s may have been stored again. A turn that no writer had is announced as in
// flight.
func TestATurnThatNoWriterHad(t *testing.T) {
	w := newWriter()
	w.Take(held, false, w.start)
	if w.NeverDelivered(held, w.start, w.at(UncertainFor)) {
		t.Error("NeverDelivered is true for a turn stored 8 s ago")
	}
	if said := w.Heartbeat(w.at(Interval)); len(said.Turns[held.Controller]) != 0 {
		t.Errorf("the heartbeat has the turns %v in flight, want none", said.Turns)
	}
	if !w.NeverDelivered(held, w.start, w.at(UncertainFor-1)) {
		t.Error("NeverDelivered is false for a turn stored less than 8 s ago")
	}
	if said := w.Heartbeat(w.at(2 * Interval)); !slices.Equal(said.Turns[held.Controller], []uint64{held.Sequence}) {
		t.Errorf("the heartbeat has the turns %v in flight, want that one", said.Turns)
	}
}

// A turn in flight becomes uncertain after 700 ms without a heartbeat, is free when heartbeats
// have come back again for 400 ms, and is lost after 8 s.
func TestHowATurnStands(t *testing.T) {
	w := newWriter()
	w.until(Interval, 3*Interval)
	w.Take(held, true, w.at(3*Interval))
	stands := func(d time.Duration, want Status) {
		t.Helper()
		if got := w.Status(held, w.at(d)); got != want {
			t.Errorf("after %v it stands at %d, want %d", d, got, want)
		}
	}
	last := 3 * Interval
	stands(last+Expiry-1, Held)
	stands(last+Expiry, Uncertain)
	stands(last+UncertainFor-1, Uncertain)
	stands(last+UncertainFor, Lost)
	if !w.echo(last + Expiry) {
		t.Error("a heartbeat that comes back after 700 ms shows no expiry")
	}
	stands(last+Expiry, Uncertain)
	if w.echo(last + Expiry + Listening - 1) {
		t.Error("a heartbeat that comes back in time shows an expiry")
	}
	stands(last+Expiry+Listening-1, Uncertain)
	w.echo(last + Expiry + Listening)
	stands(last+Expiry+Listening, Free)
}

// Claims of writers beyond the bound count for 700 ms, for turns that are here. A turn that comes
// while there are such writers waits for 400 ms.
func TestWhatStrangersSayCountsForAWhile(t *testing.T) {
	other := Place{held.Controller, 8}
	w := newWriter()
	w.Take(held, false, w.start)
	w.until(Interval, 4*Interval)
	w.crowd(4*Interval, 1)
	said := 5 * Interval
	if w.says(said, "stranger", 1, held.Sequence) {
		t.Error("a stranger's heartbeat shows an expiry")
	}
	w.until(said, said+Expiry)
	if !w.Elsewhere(held, w.at(said+Expiry-1)) || w.Elsewhere(held, w.at(said+Expiry)) {
		t.Error("the claim of a writer without a place does not count for exactly 700 ms")
	}
	if w.NoneBegunSince(w.at(3*Interval), w.at(said)) {
		t.Error("NoneBegunSince is true although there was no room for a writer")
	}
	w.Take(other, false, w.at(said+Expiry-Interval))
	if !w.Elsewhere(other, w.at(said+Expiry-1)) || w.Elsewhere(other, w.at(said+Expiry)) {
		t.Error("a turn that has come waits until 700 ms after a stranger was heard")
	}
	if w.Elsewhere(Place{held.Controller, 9}, w.at(said+Expiry-1)) {
		t.Error("a turn waits that is not here")
	}
	w.says(said+Expiry, "stranger", 2)
	third := Place{held.Controller, 10}
	w.Take(third, false, w.at(said+Expiry))
	if !w.Elsewhere(third, w.at(said+Expiry+Listening-1)) || w.Elsewhere(third, w.at(said+Expiry+Listening)) {
		t.Error("a turn that has come waits for 400 ms while there is a stranger")
	}
}

// A turn that comes while there is no other writer can be claimed at once.
func TestATurnThatHasJustComeIsClaimed(t *testing.T) {
	w := newWriter()
	w.until(Interval, 4*Interval)
	if w.Take(held, false, w.at(4*Interval)); !w.Claim(held, w.at(4*Interval)) {
		t.Error("a turn that has just been delivered cannot be claimed")
	}
}

// Another writer's claim is believed for two minutes, also on a turn that has not come here, and
// anew after a pause of 750 ms.
func TestHowLongAWriterIsBelieved(t *testing.T) {
	w := newWriter()
	w.until(Interval, 4*Interval)
	number := uint64(0)
	// talk sends heartbeats of both writers from one time to another.
	talk := func(from, to time.Duration, turns ...uint64) {
		for d := from; d <= to; d += Interval {
			number++
			w.echo(d)
			w.says(d, "b", number, turns...)
			w.Elsewhere(held, w.at(d))
		}
	}
	first := 5 * Interval
	talk(first, first, held.Sequence)
	talk(first+Interval, first+claimBelieved, held.Sequence)
	// The first claim was no repetition: the bound counts from the second one on.
	if !w.Elsewhere(held, w.at(first+Interval+claimBelieved-1)) || w.Elsewhere(held, w.at(first+Interval+claimBelieved)) {
		t.Error("a claim is believed for two minutes")
	}
	last := first + claimBelieved
	w.echo(last + redeliveryPause - 1)
	number++
	w.says(last+redeliveryPause-1, "b", number, held.Sequence)
	if w.Elsewhere(held, w.at(last+redeliveryPause+Interval-1)) {
		t.Error("a claim is believed anew after less than 750 ms")
	}
	last += redeliveryPause - 1
	w.echo(last + redeliveryPause)
	number++
	w.says(last+redeliveryPause, "b", number, held.Sequence)
	if !w.Elsewhere(held, w.at(last+redeliveryPause)) {
		t.Error("a claim is not believed anew after 750 ms")
	}
}

// Claims of others are remembered only for turns that are here, or were asked for here, and for 16
// s after they were last asked for.
func TestWhichContestsAreKept(t *testing.T) {
	w := newWriter()
	w.Take(held, false, w.start)
	w.until(Interval, 4*Interval)
	w.says(4*Interval, "b", 1, held.Sequence, 8, 9)
	if _, kept := w.contests[held]; !kept || len(w.contests) != 1 {
		t.Errorf("kept are %v", w.contests)
	}
	w.Elsewhere(Place{held.Controller, 8}, w.at(5*Interval))
	if _, kept := w.contests[Place{held.Controller, 8}]; !kept {
		t.Error("a contest about a turn that this writer asked for is not kept")
	}
	w.Heartbeat(w.at(4*Interval + forgetAfter - 1))
	if len(w.contests) != 2 {
		t.Errorf("after less than 16 s %d are kept, want 2", len(w.contests))
	}
	w.Heartbeat(w.at(4*Interval + forgetAfter))
	if _, kept := w.contests[held]; kept || len(w.contests) != 1 {
		t.Errorf("after 16 s the contests %v are kept, want one, about another turn", w.contests)
	}
}

// A turn is given up 90 s after it was taken, or after the first other writer came, unless no
// other writer is left.
func TestWhenATurnIsLetGo(t *testing.T) {
	for name, c := range map[string]struct {
		comes, goes time.Duration // the other writer
		lost        time.Duration // zero: never
	}{
		"in company since before": {0, time.Hour, 10*time.Second + maxFlight},
		"in company since later":  {40 * time.Second, time.Hour, 40*time.Second + maxFlight},
		"alone again":             {0, 20 * time.Second, 0},
	} {
		w, number := newWriter(), uint64(0)
		for d := time.Duration(0); d <= 3*time.Minute; d += Interval {
			if d >= c.comes && d < c.goes {
				number++
				w.says(d, "b", number)
			}
			w.echo(d)
			if d == 10*time.Second {
				w.Take(held, true, w.at(d))
			}
			if d < 10*time.Second {
				continue
			}
			want := Held
			if c.lost > 0 && d >= c.lost {
				want = Lost
			}
			if got := w.Status(held, w.at(d)); got != want {
				t.Fatalf("%s: after %v it stands at %d, want %d", name, d, got, want)
			}
		}
	}
}

// A heartbeat that comes back counts once, in order, and if fewer than 64 were sent since.
func TestWhichHeartbeatsCount(t *testing.T) {
	w := newWriter()
	deaf := func(when string, now, want time.Duration) {
		t.Helper()
		if got := w.UnheardFor(w.at(now)); got != want {
			t.Errorf("%s the writer is unheard for %v, want %v", when, got, want)
		}
	}
	first, second := w.Heartbeat(w.at(1)), w.Heartbeat(w.at(2))
	if w.Hear(report.Heartbeat{Writer: "a", Number: 99}, w.at(3)) {
		t.Error("a heartbeat that was never said shows an expiry")
	}
	deaf("after one that was never said", 3, 3)
	w.Hear(second, w.at(3))
	deaf("after the second", 3, 1)
	if w.Hear(first, w.at(4+Expiry)) {
		t.Error("a heartbeat that is older than one that came back shows an expiry")
	}
	deaf("after the first", 4, 2)
	third := w.Heartbeat(w.at(5))
	for range maxOnTheWay - 1 {
		w.Heartbeat(w.at(6))
	}
	w.Hear(third, w.at(7))
	deaf("after one with 63 behind it", 7, 2)
	fourth := w.Heartbeat(w.at(8))
	for range maxOnTheWay {
		w.Heartbeat(w.at(9))
	}
	w.Hear(fourth, w.at(10))
	deaf("after one with 64 behind it", 10, 5)
}

// A writer not heard for 16 s is forgotten, and this one is alone.
func TestWhenAWriterIsForgotten(t *testing.T) {
	w := newWriter()
	if w.says(0, "b", 1) || w.says(0, "b", 1) {
		t.Error("another writer's heartbeat shows an expiry")
	}
	w.Take(held, false, w.at(forgetAfter))
	w.Heartbeat(w.at(forgetAfter - 1))
	if w.NeverDelivered(held, w.at(forgetAfter), w.at(forgetAfter)) {
		t.Error("what is heard is forgotten in less than 16 s")
	}
	w.Heartbeat(w.at(forgetAfter))
	if !w.NeverDelivered(held, w.at(forgetAfter), w.at(forgetAfter)) {
		t.Error("what is heard is not forgotten after 16 s")
	}
}

// A heartbeat lists turns in order, those in flight and those that wait.
func TestTurnsAreSaidInOrder(t *testing.T) {
	w := newWriter()
	w.Limit(held.Controller, 1000)
	for sequence := range uint64(100) {
		w.Take(Place{held.Controller, sequence}, sequence%2 == 0, w.start)
	}
	said := w.Heartbeat(w.start)
	for what, turns := range map[string][]uint64{"in flight": said.Turns[held.Controller], "waiting": said.Waiting[held.Controller]} {
		if len(turns) != 50 || !slices.IsSorted(turns) {
			t.Errorf("%s are %v", what, turns)
		}
	}
}
