package shell

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

// tape is a bus with one stream.
type tape struct {
	bus.Bus
	held map[uint64]string // subjects
}

func (t tape) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	subject, ok := t.held[at]
	return events.Message{Subject: subject, Sequence: at}, ok, nil
}

// A loss shows in a stream's end, its creation time, or the message at the sequence of the
// witness. A message dropped by its age is no loss.
func TestLossesAreTold(t *testing.T) {
	whole := map[uint64]string{3: "a", 4: "b", 5: "c"}
	for name, tc := range map[string]struct {
		state bus.State
		held  map[uint64]string
		lost  bool
	}{
		"nothing":        {bus.State{First: 3, Last: 5, Created: epoch}, whole, false},
		"growth":         {bus.State{First: 3, Last: 9, Created: epoch}, whole, false},
		"the end":        {bus.State{First: 3, Last: 4, Created: epoch}, whole, true},
		"everything":     {bus.State{First: 1, Last: 0, Created: epoch}, nil, true},
		"made anew":      {bus.State{First: 3, Last: 5, Created: epoch.Add(time.Hour)}, whole, true},
		"in its place":   {bus.State{First: 3, Last: 9, Created: epoch}, map[uint64]string{5: "x"}, true},
		"a hole":         {bus.State{First: 3, Last: 9, Created: epoch}, map[uint64]string{6: "x"}, true},
		"dropped by age": {bus.State{First: 6, Last: 9, Created: epoch}, map[uint64]string{6: "x"}, false},
		"empty by age":   {bus.State{First: 6, Last: 5, Created: epoch}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newWitnesses("toy")
			stream := subject.TurnStream("toy")
			l.observe(stream, 5, "c")
			l.observe(stream, 4, "b") // heard late
			l.record(stream, bus.State{First: 3, Last: 5, Created: epoch}, false)
			lost, err := loss(t.Context(), tape{held: tc.held}, stream, l.get(stream), tc.state)
			if err != nil || (lost != nil) != tc.lost {
				t.Errorf("the loss is %v (%v), want one: %t", lost, err, tc.lost)
			}
		})
	}
}

// A loss is reported once: the loop then forgets everything older.
func TestALossIsToldOnce(t *testing.T) {
	l, stream := newWitnesses("toy"), subject.TurnStream("toy")
	l.observe(stream, 5, "c")
	now := bus.State{First: 1, Last: 2, Created: epoch}
	l.record(stream, now, true)
	if lost, err := loss(t.Context(), tape{}, stream, l.get(stream), now); err != nil || lost != nil {
		t.Errorf("a loss that was taken note of is reported again: %v (%v)", lost, err)
	}
}

// guarded is a bus whose streams are all alike. It counts how often each is inspected.
type guarded struct {
	bus.Bus
	mu     sync.Mutex // of all fields while a loop inspects its streams
	looked map[string]int
	state  bus.State
	later  bus.State // the state when it is inspected again; zero: the same
	err    error
	at     error
	before func()
}

func (b *guarded) StreamState(_ context.Context, stream string) (bus.State, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looked[stream]++; b.before != nil {
		b.before()
	}
	now := b.state
	if b.later.Last > 0 {
		b.state = b.later
	}
	return now, b.err
}

func (b *guarded) At(context.Context, string, uint64) (events.Message, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return events.Message{Subject: "a"}, b.at == nil, b.at
}

// change changes the bus while a loop inspects its streams.
func (b *guarded) change(how func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	how()
}

// times is how often a stream was inspected.
func (b *guarded) times(stream string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.looked[stream]
}

func (b *guarded) all() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, looked := range b.looked {
		n += looked
	}
	return n
}

// A stream is inspected when the loop begins, less and less often at rest, within five seconds after a
// message was stored in it, and at once when a consumer has broken off.
func TestHowOftenStreamsAreInspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, turns := &guarded{looked: map[string]int{}, state: bus.State{First: 1, Created: epoch}}, subject.TurnStream("toy")
		l := looped(b, toy(), Settings{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		go l.checkStreams(ctx)
		is := func(what string, after time.Duration, turnsLooked, all int) {
			t.Helper()
			time.Sleep(after) // virtual
			synctest.Wait()
			if b.times(turns) != turnsLooked || b.all() != all {
				t.Errorf("%s: the stream of turns was inspected %d times and all streams %d times, want %d and %d", what, b.times(turns), b.all(), turnsLooked, all)
			}
		}
		is("at first", 0, 1, 3)
		is("before it is time", 20*time.Second-1, 1, 3)
		is("in time", 1, 2, 6)
		is("at rest, too early", 40*time.Second-1, 2, 6)
		is("at rest", 1, 3, 9)
		is("at rest for longer, too early", 80*time.Second-1, 3, 9)
		is("at rest for longer", 1, 4, 12)
		is("at rest for long", 160*time.Second, 5, 15)
		is("as rarely as it gets", 160*time.Second, 6, 18)
		b.change(func() { b.state = bus.State{First: 1, Last: 1, Messages: 1, Created: epoch} })
		l.witnesses.observe(turns, 1, "a")
		is("just after something was stored", 5*time.Second-1, 6, 18)
		is("five seconds after", 1, 7, 19)
		is("at rest", 5*time.Second, 7, 19)
		l.witnesses.mu.Lock()
		l.witnesses.byStream[turns].read = time.Now()
		l.witnesses.mu.Unlock()
		l.witnesses.suspect()
		is("in doubt", 0, 8, 22)
		b.change(func() { b.err = errors.New("away") })
		is("away", 10*time.Second, 8, 22)
		is("away, in time", 10*time.Second, 9, 25)
		if err := l.Trouble(); err == nil || !strings.HasPrefix(err.Error(), "inspect ") || !strings.HasSuffix(err.Error(), ": away") {
			t.Errorf("the trouble of the loop is %v, want the inspection that failed", err)
		}
		is("away, and again", 5*time.Second, 10, 28)
		time.Sleep(recent + 1)
		b.change(func() { b.before = cancel })
		is("at the end", 5*time.Second-recent-1, 11, 31)
		if err := l.Trouble(); err != nil {
			t.Errorf("an inspection that the end of the loop cuts short is trouble: %v", err)
		}
	})
}

// A stream that could not be inspected when a consumer broke off is inspected at the next tick, however long it
// was at rest, and then as at the beginning of a rest.
func TestAnInspectionThatFailsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, turns := &guarded{looked: map[string]int{}, state: bus.State{First: 1, Created: epoch}}, subject.TurnStream("toy")
		l := looped(b, toy(), Settings{}, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var checking sync.WaitGroup
		checking.Go(func() { l.checkStreams(ctx) })
		is := func(what string, after time.Duration, looked int) {
			t.Helper()
			time.Sleep(after) // virtual
			synctest.Wait()
			if got := b.times(turns); got != looked {
				t.Errorf("%s: the stream of turns was inspected %d times, want %d", what, got, looked)
			}
		}
		is("after a long rest", 10*time.Minute, 6)
		b.change(func() { b.err = errors.New("away") })
		l.witnesses.suspect()
		is("in doubt, and the bus is away", 0, 7)
		is("at the next tick", 5*time.Second, 8)
		b.change(func() { b.err = nil })
		is("the bus is back", 5*time.Second, 9)
		is("not at once again", 15*time.Second, 9)
		is("at rest", 5*time.Second, 10)
		cancel()
		checking.Wait()
	})
}

// A witness that could not be read is read the next time, whatever the stream's state is.
func TestAWitnessThatCouldNotBeReadIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := subject.TurnStream("toy")
		b := &guarded{looked: map[string]int{}, state: bus.State{First: 1, Last: 1, Messages: 1, Created: epoch, Now: time.Now().Add(time.Hour)}}
		l := looped(b, toy(), Settings{}, nil)
		l.witnesses.observe(stream, 1, "a")
		b.at = errors.New("away")
		if _, lost, err := l.checkWitness(t.Context(), stream); lost != nil || err == nil {
			t.Errorf("a witness that cannot be read is the loss %v, %v; want the error, and no loss", lost, err)
		}
		if !l.witnesses.get(stream).read.IsZero() {
			t.Error("a witness that could not be read is taken as read")
		}
		if b.at = nil; !l.BusTime().Equal(time.Now().Add(time.Hour)) {
			t.Errorf("BusTime is %v, want an hour ahead, as the bus says", l.BusTime())
		}
		if now, lost, err := l.checkWitness(t.Context(), stream); lost != nil || err != nil || now.Last != 1 || l.witnesses.get(stream).read.IsZero() {
			t.Errorf("a witness that can be read: state %+v, loss %v, %v; want the end 1, no loss, and that it was read", now, lost, err)
		}
	})
}

// A server that lags behind the others has lost nothing.
func TestAServerThatLagsHasLostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := subject.TurnStream("toy")
		b := &guarded{looked: map[string]int{}, state: bus.State{First: 1, Last: 4, Created: epoch}, later: bus.State{First: 1, Last: 5, Created: epoch}}
		l := looped(b, toy(), Settings{Lost: func(stream string, what error) {
			t.Errorf("%s is reported to have lost something, want no report: %v", stream, what)
		}}, nil)
		l.witnesses.observe(stream, 5, "a")
		began := time.Now()
		if err := l.checkStream(t.Context(), stream); err != nil || b.looked[stream] != 2 || time.Since(began) != 250*time.Millisecond || len(l.inbox) != 0 {
			t.Errorf("a server that lags: %v after %v and %d looks, and the engine is told %d things; want no loss, and to look twice within 250 ms", err, time.Since(began), b.looked[stream], len(l.inbox))
		}
		b.state, b.later = bus.State{First: 1, Last: 4, Created: epoch}, bus.State{}
		l.settings.Lost = nil // without a receiver
		if err := l.checkStream(t.Context(), stream); err != nil || len(l.inbox) != 1 {
			t.Errorf("a loss without a receiver: %v, and the engine is told %d things, want 1", err, len(l.inbox))
		}
	})
}

// The newest stored message is the witness from then on.
func TestTheLastMessageIsTheWitness(t *testing.T) {
	l, stream := newWitnesses("toy"), subject.TurnStream("toy")
	l.observe(stream, 5, "a")
	l.observe(stream, 5, "b")
	if w := l.get(stream); w.subject != "b" {
		t.Errorf("the witness is %+v, want the last message of that sequence", w)
	}
	if restRead != 10*time.Minute {
		t.Errorf("a witness is read again after %v, want ten minutes", restRead)
	}
}
