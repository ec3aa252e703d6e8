package shell

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// A follower begins behind what it has folded, or with the message since which, by the last message on
// the subject of marks, every object has been recorded.
func TestWhereAFollowerBegins(t *testing.T) {
	mark := func(since uint64) events.Message {
		m := events.EncodeDelta(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: "5", Since: since})
		m.Subject = subject.Mark("pods")
		return m
	}
	for what, c := range map[string]struct {
		marks  []events.Message
		change func(*Follower)
		from   uint64
	}{
		"no mark":               {nil, func(*Follower) {}, 1},
		"a mark that says none": {[]events.Message{mark(0)}, func(*Follower) {}, 1},
		"a mark from the first": {[]events.Message{mark(1)}, func(*Follower) {}, 1},
		"a mark from later on":  {[]events.Message{mark(2)}, func(*Follower) {}, 2},
		"several":               {[]events.Message{mark(1), mark(3)}, func(*Follower) {}, 3},
		"a gap behind a mark":   {[]events.Message{mark(2), gapAt(kinds.Pods.Kind, 0)}, func(*Follower) {}, 1},
		"a mark behind a gap":   {[]events.Message{gapAt(kinds.Pods.Kind, 0), mark(3)}, func(*Follower) {}, 3},
		"a damaged mark":        {[]events.Message{mark(1), ruined(mark(2))}, func(*Follower) {}, 1},
		"in trouble":            {[]events.Message{mark(2)}, func(f *Follower) { f.trouble.begin(errors.New("torn"), events.Damage{}) }, 2},
		"something was folded":  {[]events.Message{mark(2)}, func(f *Follower) { f.Cache.Fold("pods", logged(3)) }, 4},
		"folded, but forgotten": {[]events.Message{mark(2)}, func(f *Follower) { f.Cache.Fold("pods", logged(3)); f.forget() }, 2},
	} {
		b := stocked(t, 1)
		for _, m := range c.marks {
			b.put(podLog, m)
		}
		f := &Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
		f.Cache.Follow(f.Kind)
		c.change(f)
		if from, err := f.startSequence(t.Context()); err != nil || from != c.from {
			t.Errorf("%s: from %d, %v", what, from, err)
		}
	}
	f := &Follower{Bus: failing{stock: stocked(t, 1), last: errors.New("away")}, Cache: cache.New(), Kind: kinds.Pods.Kind}
	if _, err := f.startSequence(t.Context()); err == nil || !strings.Contains(err.Error(), "look since when everything is recorded of pods: away") {
		t.Errorf("of a bus that is away: %v", err)
	}
}

// A follower reports its trouble, and a silence, for as long as they last.
func TestAFollowerInTroubleSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stocked(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var said []kinds.Name
		go func() {
			_ = b.Listen(ctx, events.DamageTopic, func(data []byte) {
				if d, ok := events.DecodeDamage(data); ok {
					said = append(said, d.Kind)
				}
			})
		}()
		synctest.Wait()
		f := &Follower{Bus: b, Cache: cache.New(), Kind: kinds.Nodes.Kind} // of which there is no stream
		f.trouble.begin(errors.New("torn"), events.Damage{Kind: "nodes", End: 1})
		f.lostEnd.begin(errors.New("silent"), events.Damage{Kind: "pods"})
		done := make(chan error, 1)
		go func() { f.trouble.run(ctx, b); done <- nil }()
		go f.lostEnd.run(ctx, b)
		time.Sleep(2*time.Second + 1) // virtual
		synctest.Wait()
		if !slices.Contains(said, "nodes") || !slices.Contains(said, "pods") {
			t.Errorf("said are %v", said)
		}
		cancel()
		<-done
		if err := f.Follow(t.Context()); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("of a kind without streams: %v", err)
		}
		synctest.Wait()
	})
}

// shrunk is a bus whose streams report a given end.
type shrunk struct {
	bus.Bus
	state bus.State
	err   error
}

func (s *shrunk) StreamState(context.Context, string) (bus.State, error) { return s.state, s.err }

func (s *shrunk) At(context.Context, string, uint64) (events.Message, bool, error) {
	return events.Message{Subject: "a"}, true, nil
}

// The loop reports a loss when it has seen it twice, and does not report it again.
func TestALossIsToldWhenItIsSeenTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cache.New()
		m.Register(toy().Describe())
		b, stream := &shrunk{state: bus.State{First: 1, Last: 5, Messages: 5, Created: epoch}}, subject.TurnStream("toy")
		var lost []string
		l := NewLoop(b, toy(), m, Settings{Lost: func(stream string, what error) { lost = append(lost, stream+": "+what.Error()) }}, nil)
		compare := func(what string, tells int, fails bool) {
			t.Helper()
			if err := l.checkStream(t.Context(), stream); (err != nil) != fails || len(lost) != tells {
				t.Errorf("%s: %v, told are %q", what, err, lost)
			}
		}
		l.witnesses.observe(stream, 5, "a")
		compare("whole", 0, false)
		b.err = errors.New("away")
		compare("a bus that is away", 0, true)
		b.err, b.state.Last = nil, 4
		compare("its end is gone", 1, false)
		if told := len(l.inbox); told != 1 {
			t.Errorf("the engine is told %d things", told)
		}
		compare("it is as it was told", 1, false)
	})
}

// A loop fires due timers by itself, and reports its state while it runs.
func TestALoopHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := cache.New()
		m.Register(toy().Describe())
		l := NewLoop(&shrunk{}, toy(), m, Settings{}, nil)
		var rung time.Time
		began := time.Now()
		l.engine.timers.set(began.Add(3*time.Second), func() { rung = time.Now() })
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		time.Sleep(2 * time.Hour) // virtual
		synctest.Wait()
		if rung.Sub(began) != 3*time.Second {
			t.Errorf("it rang after %v", rung.Sub(began))
		}
		if !l.HasOpened() || len(l.Parked()) != 0 || l.Busy() != 0 {
			t.Errorf("it is awake: %t, busy for %v", l.HasOpened(), l.Busy())
		}
		cancel()
		synctest.Wait()
		if l.Do(func(*Engine) {}) && len(l.inbox) == 0 {
			t.Error("it goes on when it has ended")
		}
	})
}

// A turn continues the trace of the newest traced change, before that of an outcome.
func TestWhichTraceATurnGoesOn(t *testing.T) {
	trigger := func(stream, parent string) events.Trigger {
		return events.Trigger{Stream: stream, Trace: events.Trace{Parent: parent}}
	}
	outcome := subject.OutcomeStream("toy")
	for want, triggers := range map[string][]events.Trigger{
		"":  {trigger("S", "")},
		"a": {trigger("S", "a"), trigger("S", ""), trigger(outcome, "o")},
		"b": {trigger("S", "a"), trigger("S", "b"), trigger(outcome, "")},
		"p": {trigger(outcome, "o"), trigger(outcome, "p"), trigger("S", "")},
	} {
		c := cache.Causes{Triggers: triggers}
		if got := traceOf(c.Triggers).Parent; got != want {
			t.Errorf("of %v it is %q, want %q", triggers, got, want)
		}
	}
	e := &entry{}
	if e.newest() != (events.Trigger{}) {
		t.Error("of nothing there is a newest")
	}
	for i := range uint64(4) {
		e.addTrigger(events.Trigger{Sequence: i})
	}
	if e.newest().Sequence != 3 {
		t.Errorf("the newest is %v", e.newest())
	}
	if e.dropServed(events.Trigger{Sequence: 1}); len(e.Triggers) != 2 || e.Triggers[0].Sequence != 2 {
		t.Errorf("behind the second are %v", e.Triggers)
	}
	if e.dropServed(events.Trigger{Sequence: 99}); len(e.Triggers) != 2 {
		t.Errorf("behind one that is not there are %v", e.Triggers)
	}
	if e.woken(events.Trace{}); !e.first || len(e.Triggers) != 2 {
		t.Error("a wake without a trace begins none")
	}
	if e.woken(events.Trace{Parent: "p"}); len(e.Triggers) != 3 || e.newest().Stream != subject.WakeStream {
		t.Errorf("a wake with a trace is %v", e.newest())
	}
}

// The engine has dealt with all changes before the oldest one that waits.
func TestHowFarAKindHasBeenDealtWith(t *testing.T) {
	o := open(t, Settings{})
	o.engine.Shut("pods")
	for i := range 3 {
		o.fold(kinds.ReplicaSets.Kind, events.Is, aSet(fmt.Sprint("web", i), i+1, 0, 0, ""))
	}
	if dealt := o.engine.Dealt(); dealt[kinds.ReplicaSets.Name] != 0 {
		t.Errorf("while all wait it is dealt with up to %d", dealt[kinds.ReplicaSets.Name])
	}
	if oldest := o.engine.Backlog()[kinds.ReplicaSets.Name]; oldest.Sequence != 1 {
		t.Errorf("the oldest that waits is %d", oldest.Sequence)
	}
	o.engine.Open("pods")
	o.run()
	if dealt := o.engine.Dealt(); dealt[kinds.ReplicaSets.Name] != 3 || len(o.engine.Backlog()) != 0 {
		t.Errorf("when none waits it is dealt with up to %d", dealt[kinds.ReplicaSets.Name])
	}
}

// A turn ends with the status of the first command that failed, or with 200.
func TestWithWhichStatusATurnEnds(t *testing.T) {
	var codes []int
	o := open(t, Settings{Answered: func(code int, _ time.Duration) { codes = append(codes, code) }})
	for _, r := range [][]events.Result{nil, {{Status: events.Applied}}, {{Status: events.Applied}, {Status: events.Refused, Code: 403}}, {{Status: events.Failed}}} {
		o.engine.answered(events.Outcome{Results: r}, 0)
	}
	if !slices.Equal(codes, []int{200, 200, 403, 500}) {
		t.Errorf("they end with %v", codes)
	}
	l := &lane{stages: stageTimes{turn: 7, decided: o.engine.now.Add(-time.Second)}}
	if own, other := o.engine.turnDuration(l, events.Outcome{Turn: 7}), o.engine.turnDuration(l, events.Outcome{Turn: 8}); own != time.Second || other != 0 {
		t.Errorf("they took %v and %v", own, other)
	}
}

// A writer's heartbeat names its turns in flight, and how far a full writer has got.
func TestWhatAWriterSaysItHas(t *testing.T) {
	o := open(t, Settings{})
	heartbeat := func(full bool, turns ...uint64) {
		b := events.Heartbeat{Turns: map[string][]uint64{"toy": turns}}
		if full {
			b.Full = []string{"toy"}
		}
		o.engine.Heartbeat(b)
	}
	heartbeat(false, 7, 9)
	if d := o.engine; !d.writersSeen.Equal(d.now) || len(d.inFlight) != 2 || d.writerReached != 0 {
		t.Errorf("in flight are %v, reached is %d", d.inFlight, d.writerReached)
	}
	if heartbeat(true); o.engine.writerReached != 0 {
		t.Error("a writer that is full of nothing has reached something")
	}
	if heartbeat(true, 8, 12, 3); o.engine.writerReached != 12 || !o.engine.writerFullAt.Equal(o.engine.now) {
		t.Errorf("reached is %d", o.engine.writerReached)
	}
	for i := range uint64(inFlightKept) {
		heartbeat(false, 100+i)
	}
	o.engine.now = o.engine.now.Add(o.engine.settings.Orphan + 1)
	if heartbeat(false, 5000); len(o.engine.inFlight) != 1 {
		t.Errorf("%d turns are in flight of long ago", len(o.engine.inFlight))
	}
}

// A key that awaits several effects of a kind is listed once for that kind.
func TestAKeyAwaitsEachKindOnce(t *testing.T) {
	o := open(t, Settings{})
	e := o.engine.entry(web)
	e.write.effects = []effect{of("pods", "a", "u", "5", false), of("pods", "b", "v", "6", false)}
	o.engine.awaitEffects(e, &e.write)
	if len(o.engine.awaiting["pods"]) != 1 || len(e.listed) != 1 || !e.awaits("pods") || e.awaits("nodes") || !e.effectCheckSet {
		t.Errorf("awaited are %v by %d keys", e.listed, len(o.engine.awaiting["pods"]))
	}
	if state := e.write.state(); len(state.Unseen) != 2 || state.Unseen[1].Name != "b" {
		t.Errorf("unseen are %v", state.Unseen)
	}
	e.write.effects = nil
	if o.engine.recheck("pods"); len(o.engine.awaiting["pods"]) != 0 || len(e.listed) != 0 {
		t.Errorf("what has come is awaited by %d keys", len(o.engine.awaiting["pods"]))
	}
	if o.engine.awaitEffects(e, &lane{}); len(e.listed) != 0 {
		t.Error("nothing is awaited")
	}
}
