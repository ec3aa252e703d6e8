package shell

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// hushed is a bus with the pods of a kind and no messages behind them, until a watcher reports.
type hushed struct {
	edges
	told  []events.Message
	speak chan events.Message
	asked *atomic.Int32
}

func (b hushed) At(ctx context.Context, stream string, at uint64) (events.Message, bool, error) {
	m, ok, err := b.edges.At(ctx, stream, at)
	m.Time = time.Now().Add(-2 * listedBefore)
	return m, ok, err
}

func (b hushed) Broadcast(string, []byte) error { b.asked.Add(1); return nil }

func (b hushed) Consume(ctx context.Context, stream string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	return b.Follow(ctx, stream, from, handle)
}

func (hushed) Acknowledged(context.Context, string) (uint64, bool, error) { return 0, false, nil }

func (b hushed) Follow(ctx context.Context, _ string, from uint64, handle func([]events.Message) error) error {
	if from == 1 {
		if err := handle(b.told); err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case m := <-b.speak:
		return handle([]events.Message{m})
	}
}

// TestSilenceIsAskedAbout: if the last messages of a state stream have expired, the engine
// decides nothing before a watcher has reported the objects, or none has for a minute.
func TestSilenceIsAskedAbout(t *testing.T) {
	ended := delta(kinds.Pods.Kind, events.Is, aPod("ended", "", 1), 1)
	ended = said(ended, ended) // a census of its own time
	lives := delta(kinds.Pods.Kind, events.Is, aPod("lives", "", 2), 2)
	lives = said(lives, ended, lives)
	mark := func(there ...events.Message) *events.Message {
		m := said(markAt(kinds.Pods.Kind, "9", 10), there...)
		return &m
	}
	for name, tc := range map[string]struct {
		spoken *events.Message
		after  time.Duration
		asked  int32 // at least
		opened bool
	}{
		"no watcher speaks":                 {nil, silencePatience - time.Second, 50, false},
		"no watcher speaks for too long":    {nil, silencePatience + time.Second, 50, true},
		"a watcher says that both are":      {mark(ended, lives), 10 * time.Second, 0, true},
		"a watcher says that one has ended": {mark(lives), 10 * time.Second, 9, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := hushed{edges{state: shape{9, 2}}, []events.Message{ended, lives}, make(chan events.Message, 1), new(atomic.Int32)}
				memory := NewMemory()
				memory.Register(toy().Describe())
				l := NewLoop(b, toy(), memory, Settings{}, nil)
				l.Shut(kinds.Pods.Name)
				f := &Follower{Bus: b, Memory: memory, Kind: kinds.Pods.Kind, Loops: []*Loop{l}}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- f.Follow(ctx) }()
				stop := hear(l)
				if tc.spoken != nil {
					b.speak <- *tc.spoken
				}
				time.Sleep(tc.after) // virtual
				synctest.Wait()
				cancel()
				if err := <-done; err != nil {
					t.Error(err)
				}
				stop()
				if opened := !l.engine.shut[kinds.Pods.Name]; opened != tc.opened {
					t.Errorf("opened: %t, want %t", opened, tc.opened)
				}
				if got := b.asked.Load(); got < tc.asked {
					t.Errorf("asked %d times, want at least %d", got, tc.asked)
				}
			})
		})
	}
}

// busy is a bus that stores another version of an object whenever a message is read: the last
// message of the stream is replaced by the new one.
type busy struct {
	edges
	stored *uint64
}

func (b busy) StreamState(context.Context, string) (bus.State, error) {
	return bus.State{First: 1, Last: *b.stored, Messages: 2}, nil
}

func (b busy) At(_ context.Context, _ string, at uint64) (events.Message, bool, error) {
	*b.stored++
	return events.Message{Sequence: at}, at <= 2, nil
}

// TestABusyStreamIsNotSilent: the last message of a state is replaced between two reads, so
// that none is found behind the folded position. The watchers are reporting, and are not asked.
func TestABusyStreamIsNotSilent(t *testing.T) {
	stored := uint64(3)
	f := &Follower{Bus: busy{stored: &stored}, Memory: NewMemory(), Kind: kinds.Pods.Kind}
	silent, err := f.findSilence(t.Context(), 2)
	if err != nil || silent || f.silence.current() != nil {
		t.Errorf("it is said to be silent: %t (%v), and the watchers are asked: %v", silent, err, f.silence.current())
	}
}

// hear runs an engine's inbox until stop is called.
func hear(l *Loop) (stop func()) {
	over, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		for {
			select {
			case say := <-l.inbox:
				say()
			case <-over:
				l.drain()
				return
			}
		}
	}()
	return func() { close(over); <-heard }
}

// unsteady is a bus that fails from one request on.
type unsteady struct {
	edges
	states, at int // how many requests of each sort are answered
}

func (b *unsteady) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if b.states--; b.states < 0 {
		return bus.State{}, bus.ErrClosed
	}
	return b.edges.StreamState(ctx, stream)
}

func (b *unsteady) At(ctx context.Context, stream string, at uint64) (events.Message, bool, error) {
	if b.at--; b.at < 0 {
		return events.Message{}, false, bus.ErrClosed
	}
	return b.edges.At(ctx, stream, at)
}

// If the bus does not say what a stream holds, the follower cannot detect silence: it opens no
// engine, and does not ask the watchers.
func TestNoAnswerIsNoSilence(t *testing.T) {
	for what, b := range map[string]*unsteady{
		"how far it reaches": {states: 0, at: 9}, "its edge": {states: 1, at: 9}, "its last message": {states: 2, at: 0}, "how far it reaches now": {states: 2, at: 9},
	} {
		b.edges = edges{state: shape{9, 2}}
		f := &Follower{Bus: b, Memory: NewMemory(), Kind: kinds.Pods.Kind, goal: streamEnd{sequence: 2, stored: epoch.AddDate(-20, 0, 0)}}
		f.Memory.Follow(f.Kind)
		f.Memory.Fold(f.Kind.Name, []events.Message{markAt(kinds.Pods.Kind, "5", 2)})
		if err := f.open(t.Context()); !errors.Is(err, bus.ErrClosed) || f.opened || f.silence.current() != nil {
			t.Errorf("of a bus that does not say %s: %v, opened: %t, asked because of %v", what, err, f.opened, f.silence.current())
		}
	}
	f := &Follower{Bus: edges{state: shape{1, 0}}, Memory: NewMemory(), Kind: kinds.Pods.Kind}
	f.Memory.Follow(f.Kind)
	if silent, err := f.findSilence(t.Context(), 0); silent || err != nil {
		t.Errorf("of a kind of which nothing was folded it is silent: %t, %v", silent, err)
	}
	f.Bus = edges{state: shape{3, 2}}
	if silent, err := f.findSilence(t.Context(), 1); silent || err != nil {
		t.Errorf("of a stream that holds more than was folded it is silent: %t, %v", silent, err)
	}
}

// The wait for a watcher begins once, and ends when one has reported.
func TestTheWaitForAWatcherBeginsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resigned := 0
		f := &Follower{waitTimer: time.AfterFunc(silencePatience, func() { resigned++ })}
		f.waitTimer.Stop()
		f.waitForWatcher()
		time.Sleep(silencePatience / 2) // virtual
		f.waitForWatcher()
		time.Sleep(silencePatience / 2)
		if synctest.Wait(); resigned != 1 {
			t.Errorf("after a minute it has resigned %d times", resigned)
		}
		f = &Follower{waitTimer: time.AfterFunc(silencePatience, func() { resigned++ })}
		f.waitTimer.Stop()
		f.waitForWatcher()
		f.stopWaiting()
		time.Sleep(2 * silencePatience)
		if synctest.Wait(); resigned != 1 {
			t.Error("it resigns although a watcher has spoken")
		}
	})
}
