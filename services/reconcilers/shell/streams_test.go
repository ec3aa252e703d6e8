package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// hall is a bus whose heartbeats of writers and outcomes come from the test.
type hall struct {
	*stock
	said    chan []byte           // closed: writers cannot be heard
	batches chan []events.Message // closed: outcomes cannot be followed
	away    atomic.Bool           // StreamState fails
	ears    atomic.Int32
	looks   atomic.Int32
}

func (b *hall) Listen(ctx context.Context, _ string, hear func([]byte)) error {
	b.ears.Add(1)
	for {
		select {
		case text, open := <-b.said:
			if !open {
				return errors.New("no ear")
			}
			hear(text)
		case <-ctx.Done():
			return nil
		}
	}
}

func (b *hall) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if b.looks.Add(1); b.away.Load() {
		return bus.State{}, errors.New("no state")
	}
	return b.stock.StreamState(ctx, stream)
}

func (b *hall) Follow(ctx context.Context, _ string, from uint64, handle func([]events.Message) error) error {
	for {
		select {
		case batch, open := <-b.batches:
			if !open {
				return errors.New("no stream")
			}
			if batch[0].Sequence = from; handle(batch) != nil {
				return errors.New("not taken")
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// One subscription tells all loops of a process of the writers, each of those with turns of its
// controller.
func TestLoopsHearTheWritersTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hall{stock: stocked(t, 0), said: make(chan []byte)}
		loops := []*Loop{looped(b, toy(), Settings{}, nil), looped(b, toy(), Settings{}, nil)}
		for _, l := range loops {
			l.working = true
		}
		ctx, cancel := context.WithCancel(t.Context())
		var hearing sync.WaitGroup
		hearing.Go(func() { HearWriters(ctx, b, loops) })
		for _, turns := range []map[string][]uint64{nil, {"another": {7}}, {"toy": {7}}} {
			b.said <- report.Heartbeat{Writer: "w", Turns: turns}.Encode()
		}
		synctest.Wait()
		for i, l := range loops {
			if len(l.inbox) != 2 {
				t.Errorf("the engine of loop %d was told %d things, want 2: that there is a writer, and that it has a turn", i, len(l.inbox))
			}
		}
		if b.ears.Load() != 1 {
			t.Errorf("%d subscriptions hear the writers, want 1", b.ears.Load())
		}
		close(b.said)
		synctest.Wait()
		for i, l := range loops {
			if l.Trouble() == nil {
				t.Errorf("loop %d has no trouble, want that it cannot hear the writers", i)
			}
		}
		cancel()
		hearing.Wait()
	})
}

// A loop whose inbox is full, because a decision does not return, keeps no other loop from hearing.
func TestAStuckLoopKeepsNoOtherFromHearing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hall{stock: stocked(t, 0), said: make(chan []byte)}
		stuck, other := looped(b, toy(), Settings{}, nil), looped(b, toy(), Settings{}, nil)
		stuck.working, other.working = true, true
		for len(stuck.inbox) < cap(stuck.inbox) {
			stuck.inbox <- func() {}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var hearing sync.WaitGroup
		hearing.Go(func() { HearWriters(ctx, b, []*Loop{stuck, other}) })
		b.said <- report.Heartbeat{Writer: "w"}.Encode()
		if synctest.Wait(); len(other.inbox) != 1 {
			t.Errorf("the engine of the other loop was told %d things, want 1", len(other.inbox))
		}
		<-stuck.inbox
		b.said <- report.Heartbeat{Writer: "w"}.Encode()
		if synctest.Wait(); len(stuck.inbox) != cap(stuck.inbox) {
			t.Error("a loop that has room again is not told of the next heartbeat")
		}
		cancel()
		hearing.Wait()
	})
}

// An engine with work is told once a second of writers without turns of its controller, and every engine
// always of the others. A loop that cannot listen retries four times a second.
func TestHowOftenAnEngineIsToldOfWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hall{stock: stocked(t, 0), said: make(chan []byte)}
		l := looped(b, toy(), Settings{}, nil, aSet("web", 1, 1, 0, ""))
		remember(t, l, 7)
		ctx, cancel := context.WithCancel(t.Context())
		var hearing sync.WaitGroup
		hearing.Go(func() { HearWriters(ctx, b, []*Loop{l}) })
		say := func(what string, after time.Duration, text []byte, told int) {
			t.Helper()
			time.Sleep(after) // virtual
			b.said <- text
			if synctest.Wait(); len(l.inbox) != told {
				t.Errorf("%s: the engine was told %d things, want %d", what, len(l.inbox), told)
			}
		}
		idle, at := report.Heartbeat{Writer: "w"}.Encode(), report.Heartbeat{Writer: "w", Turns: map[string][]uint64{"toy": {7}}}.Encode()
		say("without work", 0, idle, 0)
		l.working = true
		say("at first", 0, idle, 1)
		say("no message of a writer", time.Hour, []byte("{}"), 1)
		say("long after", 0, idle, 2)
		say("just after", time.Second, idle, 2)
		say("a second after", 1, idle, 3)
		say("at work", 0, at, 4)
		say("still at work", 0, at, 5)
		l.engine.Advance(l.clock())
		for len(l.inbox) > 0 {
			(<-l.inbox)()
		}
		waits := l.engine.Key(web).Checks
		waits = slices.DeleteFunc(waits, func(c report.KeyCheck) bool { return c.Condition != report.NoOutcome })
		if len(waits) != 1 || waits[0].About != "writers are there, and none has its turns" || waits[0].Since == nil || !waits[0].Since.Equal(l.clock()) {
			t.Errorf("the key waits with %+v, want because writers are there and none has its turn, since now", waits)
		}
		close(b.said)
		time.Sleep(time.Second - 1)
		if synctest.Wait(); b.ears.Load() != 4 {
			t.Errorf("in a second the loop subscribed %d times, want 4", b.ears.Load())
		}
		if err := l.Trouble(); err == nil || err.Error() != "hear the writers: no ear" {
			t.Errorf("the trouble of the loop is %v, want that it cannot hear the writers", err)
		}
		cancel()
		hearing.Wait()
		if time.Sleep(1750*time.Millisecond + 1); l.Trouble() == nil {
			t.Error("a failure of two seconds ago is no trouble any more")
		}
		if time.Sleep(1); l.Trouble() != nil {
			t.Error("a failure of more than two seconds ago is still trouble")
		}
	})
}

// An engine gets every outcome from the moment when it is ready. Whenever following begins
// anew, the engine doubts its keys, and the loop inspects its streams.
func TestAnEngineHearsItsOutcomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hall{stock: stocked(t, 0), batches: make(chan []events.Message)}
		stream := subject.OutcomeStream("toy")
		b.put(stream, events.Message{Subject: "old"})
		b.away.Store(true)
		l := looped(b, toy(), Settings{}, nil, aSet("web", 1, 1, 0, ""))
		remember(t, l, 6)
		l.clock = func() time.Time { return time.Now().Add(-time.Hour) }
		var e report.KeyState // before the engine works
		doubted := func(what string, want bool) {
			t.Helper()
			synctest.Wait()
			for len(l.inbox) > 0 {
				(<-l.inbox)()
			}
			e = l.engine.Key(web)
			if recalls(t, l, 6) != want {
				t.Errorf("%s: the loop recalls its keys: %t, want the opposite", what, !want)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ready, done := 0, make(chan struct{})
		go func() { defer close(done); l.followOutcomes(ctx, func() { ready++ }) }()
		doubted("before it is known where they end", false)
		if err := l.Trouble(); ready > 0 || err == nil || err.Error() != "follow "+stream+": no state" {
			t.Errorf("the trouble of the loop is %v, and it was ready %d times; want \"no state\", and never", err, ready)
		}
		b.away.Store(false)
		time.Sleep(250 * time.Millisecond) // virtual
		doubted("when it begins", true)
		if ready != 1 || b.looks.Load() != 2 || !l.BusTime().Equal(time.Now()) {
			t.Errorf("the loop was ready %d times after %d looks, and BusTime is %v; want once after 2, and now", ready, b.looks.Load(), l.BusTime())
		}
		outcome := func(turn uint64) events.Message {
			m, err := events.EncodeJSON(events.Outcome{Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: turn}, events.Trace{})
			if err != nil {
				t.Fatal(err)
			}
			m.Subject, m.Sequence = subject.Outcome("toy", events.LaneWrite, web), 9
			return m
		}
		b.batches <- []events.Message{outcome(7), {Subject: "torn", Data: []byte("torn")}, outcome(8)}
		before := len(e.Causes)
		doubted("an outcome of another replica's", true)
		if causes := e.Causes[before:]; e.Write.Outcome != 8 || len(causes) != 2 || causes[0].Sequence != 2 || causes[1].Sequence != 9 {
			t.Errorf("the engine has the outcome of turn %d, because of %v; want that of turn 8, because of messages 2 and 9", e.Write.Outcome, causes)
		}
		if w := l.witnesses.get(stream); w.sequence != 9 || w.subject != subject.Outcome("toy", events.LaneWrite, web) || len(l.witnesses.checkNow) != 0 {
			t.Errorf("the witness of the outcomes is %+v, want message 9 of the key, and no inspection", w)
		}
		close(b.batches)
		if synctest.Wait(); len(l.witnesses.checkNow) != 1 {
			t.Error("the outcomes break off, and no stream is to be inspected")
		}
		if err := l.Trouble(); err == nil || err.Error() != "follow "+stream+": no stream" {
			t.Errorf("the trouble of the loop is %v, want \"no stream\"", err)
		}
		time.Sleep(time.Second - 1)
		if synctest.Wait(); ready != 4 {
			t.Errorf("in a second the loop was ready %d times more, want 3", ready-1)
		}
		cancel()
		<-done
	})
}

// Serve follows the outcomes and inspects the streams.
func TestAnEngineIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &hall{stock: stocked(t, 0), said: make(chan []byte), batches: make(chan []events.Message)}
		b.streams[subject.WakeStream] = nil
		l := looped(b, toy(), Settings{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ready, done := false, make(chan struct{})
		go func() { defer close(done); l.Serve(ctx, func() { ready = true }) }()
		if synctest.Wait(); !ready || b.looks.Load() != 4 || l.Trouble() != nil {
			t.Errorf("the loop is ready: %t, and looked at streams %d times (trouble: %v); want ready after 4 looks", ready, b.looks.Load(), l.Trouble())
		}
		cancel()
		<-done
		synctest.Wait()
	})
}

// A turn is stored within a span of its own, which has its sequence, or why it was not stored.
func TestATurnIsStoredWithinASpan(t *testing.T) {
	r := tracetest.New()
	b := stocked(t, 0)
	l := looped(b, toy(), Settings{Settings: engine.Settings{Trace: r.Tracer("r", trace.Options{})}}, nil)
	turn := events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite, Now: l.clock(), Trace: events.Trace{Parent: fmt.Sprintf("00-%032x-%016x-01", 1, 1)}}
	if _, err := l.sendTurn(t.Context(), turn, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := l.sendTurn(t.Context(), turn, 0); err == nil {
		t.Fatal("a second turn is stored with the same expected sequence")
	}
	l.bus = refusing{stock: b}
	if _, err := l.sendTurn(t.Context(), turn, 1); err == nil {
		t.Fatal("a turn is stored on a bus that refuses it")
	}
	s := r.Named("send TURN_toy")
	if len(s) != 3 || s[0].Attributes[trace.Sequence] != "1" || s[0].Failure != "" || s[1].Failure != "overtaken" || s[1].Attributes[trace.Outcome] != "overtaken" || s[2].Failure != "not stored" {
		t.Fatalf("the spans are %+v, want one stored at 1, one overtaken, one not stored", s)
	}
	if got := trace.Context(events.Trace{Parent: b.streams["TURN_toy"][0].Get(events.HeaderTraceParent)}); got.SpanID() != s[0].Context.SpanID() {
		t.Errorf("the stored message is in the trace %v, want the span of its sending", got)
	}
}

// refusing is a bus that stores nothing.
type refusing struct{ *stock }

func (refusing) Store(context.Context, events.Message, uint64) (uint64, error) {
	return 0, errors.New("full")
}
