package shell

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/engine"
)

// A follower begins behind what it has folded, or with the message since which, by the last message on
// the subject of marks, every object has been recorded.
func TestWhereAFollowerBegins(t *testing.T) {
	mark := func(since uint64) events.Message {
		return subject.Message(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: "5", Since: since})
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
		"in trouble":            {[]events.Message{mark(2)}, func(f *Follower) { f.trouble.begin(errors.New("torn"), report.Damage{}) }, 2},
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
			t.Errorf("%s: the follower starts at %d, %v; want %d", what, from, err, c.from)
		}
	}
	f := &Follower{Bus: failing{stock: stocked(t, 1), last: errors.New("away")}, Cache: cache.New(), Kind: kinds.Pods.Kind}
	if _, err := f.startSequence(t.Context()); err == nil || !strings.Contains(err.Error(), "look since when everything is recorded of pods: away") {
		t.Errorf("the start on a bus that is away: %v, want an error that says what was looked for", err)
	}
}

// A follower reports its trouble, and a silence, for as long as they last.
func TestAFollowerInTroubleSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := stocked(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		var said []kinds.Name
		go func() {
			_ = b.Listen(ctx, report.DamageTopic, func(data []byte) {
				if d, ok := report.DecodeDamage(data); ok {
					said = append(said, d.Kind)
				}
			})
		}()
		synctest.Wait()
		f := &Follower{Bus: b, Cache: cache.New(), Kind: kinds.Nodes.Kind} // of which there is no stream
		f.trouble.begin(errors.New("torn"), report.Damage{Kind: "nodes", End: 1})
		f.lostEnd.begin(errors.New("silent"), report.Damage{Kind: "pods"})
		done := make(chan error, 1)
		go func() { f.trouble.run(ctx, b); done <- nil }()
		go f.lostEnd.run(ctx, b)
		time.Sleep(2*time.Second + 1) // virtual
		synctest.Wait()
		if !slices.Contains(said, "nodes") || !slices.Contains(said, "pods") {
			t.Errorf("damage was reported of the kinds %v, want nodes and pods", said)
		}
		cancel()
		<-done
		if err := f.Follow(t.Context()); !errors.Is(err, bus.ErrNoStream) {
			t.Errorf("follow a kind without streams: %v, want ErrNoStream", err)
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
				t.Errorf("%s: the check of the stream ends with %v, and the losses %q were reported", what, err, lost)
			}
		}
		l.witnesses.observe(stream, 5, "a")
		compare("whole", 0, false)
		b.err = errors.New("away")
		compare("a bus that is away", 0, true)
		b.err, b.state.Last = nil, 4
		compare("its end is gone", 1, false)
		if told := len(l.inbox); told != 1 {
			t.Errorf("the engine is told %d things after a loss, want 1", told)
		}
		compare("it is as it was told", 1, false)
	})
}

// A loop fires due timers by itself, and reports its state while it runs.
func TestALoopHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rung []time.Time
		began := time.Now()
		settings := Settings{Settings: engine.Settings{Backoff: 3 * time.Second, Attempts: 1000}}
		l := looped(&shrunk{}, toy(), settings, func(time.Duration) { rung = append(rung, time.Now()) }, aSet("web", 1, 1, 0, "panics"))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go l.Run(ctx)
		time.Sleep(2 * time.Hour) // virtual
		synctest.Wait()
		if len(rung) < 2 || !rung[0].Equal(began) || rung[1].Sub(began) != 3*time.Second {
			t.Errorf("the loop woke at %v, want first at the beginning %v, and 3 s later", rung, began)
		}
		if !l.HasOpened() || len(l.Parked()) != 0 || l.Busy() != 0 {
			t.Errorf("the loop has opened: %t, and is busy for %v; want it open and idle, with no parked key", l.HasOpened(), l.Busy())
		}
		cancel()
		synctest.Wait()
		if l.Do(func(*engine.Engine) {}) && len(l.inbox) == 0 {
			t.Error("a loop that has ended carries out a function")
		}
	})
}
