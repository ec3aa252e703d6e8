package shell

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// A loop is stalled when a step does not end for half a minute, or its streams fail for as
// long.
func TestWhatALoopKnowsOfItself(t *testing.T) {
	m := cache.New()
	m.Register(toy().Describe())
	l := NewLoop(deaf(), toy(), m, Settings{}, nil)
	now := epoch
	l.clock = func() time.Time { return now }
	is := func(what string, condition report.Condition, known bool) {
		t.Helper()
		if s, stalled, got := l.stalled(); s.Condition != condition || stalled != (condition != "") || got != known || s.Controller != "toy" {
			t.Errorf("%s: the stall is %+v, %t (known: %t)", what, s, stalled, got)
		}
	}
	is("at rest", "", true)
	l.working = true
	is("with work", "", false)
	l.working, l.busy = false, now
	is("deciding", "", false)
	now = now.Add(report.StallAfter - 1)
	is("deciding for long", "", false)
	now = now.Add(1)
	is("deciding for too long", report.Deciding, true)
	l.busy = time.Time{}
	l.fail(errors.New("away"))
	is("failing", "", true)
	if err := l.Trouble(); err == nil || err.Error() != "away" {
		t.Errorf("the trouble of the loop is %v, want the failure \"away\"", err)
	}
	for range int(report.StallAfter / recent) {
		now = now.Add(recent)
		l.fail(errors.New("away"))
	}
	is("failing for long", report.BusRefuses, true)
	now = now.Add(recent)
	is("failing a moment ago", report.BusRefuses, true)
	if l.Trouble() == nil {
		t.Error("a failure of two seconds ago is no trouble any more")
	}
	now = now.Add(1)
	is("failing no more", "", true)
	if err := l.Trouble(); err != nil {
		t.Errorf("a failure of more than two seconds ago is still trouble: %v", err)
	}
	l.fail(errors.New("away"))
	is("failing again", "", true)
}

// A call to a loop that has ended, or does not answer in time, returns then.
func TestALoopThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cache.New()
		m.Register(toy().Describe())
		l := NewLoop(deaf(), toy(), m, Settings{}, nil)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, ok := l.Backlog(soon); ok {
			t.Error("a loop that does not run answers")
		}
		for len(l.inbox) < cap(l.inbox) {
			l.Do(func(*engine.Engine) {})
		}
		if l.queue(soon, func() {}) {
			t.Error("a loop whose inbox is full takes a question")
		}
		ended, end := context.WithCancel(t.Context())
		end()
		l.Run(ended)
		l.drain()
		for range cap(l.inbox) { // where there is room either may come first
			if l.Do(func(*engine.Engine) {}); len(l.inbox) == cap(l.inbox) {
				break
			}
		}
		if len(l.inbox) == cap(l.inbox) && (l.Do(func(*engine.Engine) {}) || l.queue(t.Context(), func() {})) {
			t.Error("a loop that has ended takes a question")
		}
		l.ShutNow("pods") // and does not block
	})
}

// failing is a bus of which single methods fail.
type failing struct {
	*stock
	state, at, last, turns, outcomes error
}

func (b failing) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if b.last != nil {
		return events.Message{}, false, b.last
	}
	return b.stock.Last(ctx, stream, subject)
}

func (b failing) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if b.state != nil {
		return bus.State{}, b.state
	}
	return b.stock.StreamState(ctx, stream)
}

func (b failing) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if b.at != nil {
		return events.Message{}, false, b.at
	}
	return b.stock.At(ctx, stream, sequence)
}

func (b failing) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	err := b.outcomes
	if stream == subject.TurnStream("toy") {
		err = b.turns
	}
	if err != nil {
		return nil, err
	}
	return b.stock.LastOf(ctx, stream, subjects)
}

// A recall from a bus that fails returns an error that names what it looked up.
func TestARecallThatFailsSaysOfWhat(t *testing.T) {
	b := stocked(t, 0)
	if _, err := storeTurn(t.Context(), b, events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite}, 0, nil, epoch); err != nil {
		t.Fatal(err)
	}
	lanes := []laneOf{{web, events.LaneWrite}, {web, events.LaneStatus}}
	for want, f := range map[string]failing{
		"recall turns of toy: away":                         {stock: b, turns: errors.New("away")},
		"recall outcomes of toy: away":                      {stock: b, outcomes: errors.New("away")},
		"look how far the outcomes of toy reach back: away": {stock: b, state: errors.New("away")},
	} {
		if pasts, err := recall(t.Context(), f, "toy", lanes, Signatures{}); err == nil || err.Error() != want || pasts != nil {
			t.Errorf("recall returns %v, %v; want the error %q alone", pasts, err, want)
		}
	}
	pasts, err := recall(t.Context(), failing{stock: b}, "toy", lanes, Signatures{})
	if err != nil || len(pasts) != 2 || pasts[0].Sequence != 1 || pasts[0].Turn == nil || pasts[0].Dropped || pasts[1].Sequence != 0 {
		t.Errorf("recall returns %+v, %v; want turn 1 of the first lane, and nothing of the second", pasts, err)
	}
	if _, err := storeTurn(t.Context(), b, events.Turn{Controller: "toy", Key: web, Lane: events.LaneWrite}, 0, nil, epoch); !errors.Is(err, bus.ErrOvertaken) || !strings.Contains(err.Error(), "store turn of toy for") {
		t.Errorf("a turn behind another one is stored with %v, want ErrOvertaken", err)
	}
}

// A turn's outcome was dropped when the turn is older than outcomesSince, and the stream begins
// behind it.
func TestWhichOutcomesAreDropped(t *testing.T) {
	const old = 10 * time.Minute
	for what, c := range map[string]struct {
		state bus.State
		is    bool
	}{
		"long ago, and dropped":        {bus.State{Last: 9, Messages: 3, Now: epoch.Add(old), Begins: epoch.Add(time.Second + 1)}, true},
		"long ago, and all dropped":    {bus.State{Last: 9, Now: epoch.Add(old)}, true},
		"long ago, and none ever was":  {bus.State{Now: epoch.Add(old)}, false},
		"long ago, and it reaches far": {bus.State{Last: 9, Messages: 3, Now: epoch.Add(old), Begins: epoch.Add(time.Second)}, false},
		"not so long ago":              {bus.State{Last: 9, Now: epoch.Add(old - 1)}, false},
	} {
		r := outcomeReach{controller: "toy", known: true, at: c.state}
		if is, err := r.dropped(t.Context(), events.Message{Time: epoch}); is != c.is || err != nil {
			t.Errorf("%s: the outcome was dropped: %t, %v; want %t", what, is, err, c.is)
		}
	}
}

// The end of a kind is the last message that its log holds.
func TestTheEndOfAKind(t *testing.T) {
	b := stocked(t, 3)
	if end, err := logEnd(t.Context(), b, "pods"); err != nil || end != 3 {
		t.Errorf("the log ends at %d, %v; want 3", end, err)
	}
	if end, err := logEnd(t.Context(), stocked(t, 0), "pods"); err != nil || end != 0 {
		t.Errorf("an empty log ends at %d, %v; want 0", end, err)
	}
	if _, err := logEnd(t.Context(), failing{stock: b, state: errors.New("away")}, "pods"); err == nil {
		t.Error("logEnd returns no error on a bus that is away")
	}
	if _, err := logEnd(t.Context(), failing{stock: b, at: errors.New("torn")}, "pods"); err == nil {
		t.Error("logEnd returns no error when the last message cannot be read")
	}
	if _, err := logEnd(t.Context(), b, "nodes"); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("the end of a kind without a log: %v, want ErrNoStream", err)
	}
}

// logEnd looks for the end of a log over some holes, and not for ever.
func TestTheEndOfALogWithHoles(t *testing.T) {
	for what, c := range map[string]struct {
		first, last uint64
		held        []uint64
		want        uint64
		asked       int
	}{
		"no hole":                   {1, 9, []uint64{9}, 9, 1},
		"a hole at the end":         {1, 9, []uint64{7}, 7, 3},
		"the first only":            {7, 9, []uint64{7}, 7, 2},
		"one":                       {9, 9, []uint64{9}, 9, 0},
		"none":                      {10, 9, nil, 0, 0},
		"more holes than are asked": {1, 5000, []uint64{1}, 4000, scan},
	} {
		held := map[uint64]string{}
		for _, at := range c.held {
			held[at] = "x"
		}
		b := &witnessed{tape: tape{held: held}, state: bus.State{First: c.first, Last: c.last, Messages: uint64(len(held))}}
		if end, err := logEnd(t.Context(), b, "pods"); err != nil || end != c.want || b.reads != c.asked {
			t.Errorf("%s: the log ends at %d, %v, after %d questions; want %d after %d", what, end, err, b.reads, c.want, c.asked)
		}
	}
}

// unreadable is a stream whose messages cannot be read.
type unreadable struct {
	tape
	err error
}

func (b unreadable) At(context.Context, string, uint64) (events.Message, bool, error) {
	return events.Message{}, false, b.err
}

// A damaged witness is a loss; an error of the bus is none.
func TestADamagedWitnessIsALoss(t *testing.T) {
	w, now := witness{known: true, created: epoch, last: 5, sequence: 5, subject: "c"}, bus.State{First: 3, Last: 5, Created: epoch}
	if lost, err := loss(t.Context(), unreadable{err: fmt.Errorf("read: %w", events.ErrDamaged)}, "S", w, now); err != nil || lost == nil || !strings.Contains(lost.Error(), "cannot be read any more") {
		t.Errorf("a damaged witness is the loss %v, %v; want one that says that it cannot be read", lost, err)
	}
	if lost, err := loss(t.Context(), unreadable{err: errors.New("away")}, "S", w, now); err == nil || lost != nil {
		t.Errorf("on a bus that is away a witness is the loss %v, %v; want an error, and no loss", lost, err)
	}
	if lost, err := loss(t.Context(), unreadable{}, "S", witness{sequence: 5}, bus.State{First: 3, Last: 5}); err != nil || lost == nil {
		t.Errorf("a stream seen for the first time that lacks the witness is the loss %v, %v; want one", lost, err)
	}
}

func TestWhatALedgerKnows(t *testing.T) {
	stream := subject.TurnStream("toy")
	l := newWitnesses("toy")
	if !l.hasNews(stream) {
		t.Error("hasNews is false for a stream that was never inspected")
	}
	l.record(stream, bus.State{Last: 5, Created: epoch}, false)
	l.record(stream, bus.State{Last: 4, Created: epoch}, false)
	if w := l.get(stream); l.hasNews(stream) || w.last != 5 || !w.created.Equal(epoch) {
		t.Errorf("the witness is %+v, with news: %t; want the end 5, and no news", w, l.hasNews(stream))
	}
	l.observe(stream, 5, "a")
	if l.hasNews(stream) {
		t.Error("hasNews is true for a message that the inspection has seen")
	}
	l.observe(stream, 6, "b")
	l.observe("OTHER", 9, "x")
	if w := l.get(stream); !l.hasNews(stream) || w.sequence != 6 || w.subject != "b" {
		t.Errorf("the witness is %+v, with news: %t; want message 6 on b, and news", w, l.hasNews(stream))
	}
	w := l.get(stream)
	l.observe(stream, 7, "c")
	if l.confirm(stream, w, bus.State{}); !l.get(stream).read.IsZero() {
		t.Error("confirm proves a newer witness than the one that was read")
	}
	l.confirm(stream, l.get(stream), bus.State{Last: 7})
	if w := l.get(stream); w.read.IsZero() || w.state.Last != 7 {
		t.Errorf("confirm has not proved the witness: %+v", w)
	}
	if l.reread(); !l.get(stream).read.IsZero() {
		t.Error("reread leaves the witness proved")
	}
	l.suspect()
	l.suspect() // and does not wait
	if len(l.checkNow) != 1 {
		t.Errorf("two suspicions leave %d inspections to do, want 1", len(l.checkNow))
	}
}

func TestAWitnessStandsWhileNothingMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := bus.State{First: 1, Last: 5, Messages: 5, Bytes: 100, Created: epoch}
		w := witness{read: time.Now(), state: s}
		if !w.stands(s) {
			t.Error("the witness does not stand, and nothing has changed")
		}
		for what, change := range map[string]func(*bus.State){
			"it was made anew": func(s *bus.State) { s.Created = epoch.Add(1) }, "its first": func(s *bus.State) { s.First++ }, "its last": func(s *bus.State) { s.Last++ },
			"how many": func(s *bus.State) { s.Messages-- }, "how much": func(s *bus.State) { s.Bytes-- },
		} {
			now := s
			if change(&now); w.stands(now) {
				t.Errorf("the witness stands, and this has changed: %s", what)
			}
		}
		time.Sleep(restRead - 1) // virtual
		if !w.stands(s) {
			t.Error("the witness does not stand before ten minutes are over")
		}
		time.Sleep(1)
		if w.stands(s) {
			t.Error("the witness stands after ten minutes")
		}
	})
}

// Trouble begins, is reported while it lasts, and ends once.
func TestTroubleIsSaidWhileItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stocked(t, 0)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var said int
		go func() { _ = b.Listen(ctx, report.DamageTopic, func([]byte) { said++ }) }()
		synctest.Wait()
		var of damageReport
		if of.end() || of.current() != nil || of.send(ctx, b) != nil {
			t.Error("there is damage to report, or to end, before any has begun")
		}
		of.afterLasting(func(error) { t.Error("afterLasting calls for damage that has not begun") })()
		go of.run(ctx, b)
		of.begin(errors.New("torn"), report.Damage{Kind: "pods"})
		of.begin(errors.New("torn"), report.Damage{Kind: "pods"})
		lasted := 0
		stop := of.afterLasting(func(err error) { lasted++ })
		time.Sleep(3*time.Second + 1) // virtual
		synctest.Wait()
		if said != 3 || lasted != 0 || of.current() == nil {
			t.Errorf("in three seconds the damage was reported %d times, and lasts %d times; want 3 and 0", said, lasted)
		}
		time.Sleep(damageLasts)
		synctest.Wait()
		if stop(); lasted != 1 {
			t.Errorf("after half a minute afterLasting has called %d times, want once", lasted)
		}
		before := said
		if !of.end() || of.end() {
			t.Error("end does not report the end of the damage exactly once")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if said != before {
			t.Errorf("damage that has ended was reported %d times, want 0", said-before)
		}
		cancel()
		synctest.Wait()
	})
}

func TestASuspicionSaysHowFarTheStateReaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stocked(t, 3)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var heard []report.Damage
		go func() {
			_ = b.Listen(ctx, report.DamageTopic, func(data []byte) {
				if d, ok := report.DecodeDamage(data); ok {
					heard = append(heard, d)
				}
			})
		}()
		synctest.Wait()
		if err := suspect(ctx, b, report.Damage{Kind: "pods", Suspected: true}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(heard) != 1 || heard[0].End != 3 || heard[0].Kind != "pods" {
			t.Errorf("the reported suspicions are %+v, want one of pods with the end 3", heard)
		}
		if err := suspect(ctx, failing{stock: b, state: errors.New("away")}, report.Damage{Kind: "pods"}); err == nil || !strings.Contains(err.Error(), "report a suspicion about pods: away") {
			t.Errorf("a suspicion about a stream that cannot be read: %v, want an error", err)
		}
		cancel()
		synctest.Wait()
	})
}
