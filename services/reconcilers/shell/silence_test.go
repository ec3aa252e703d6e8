package shell

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// hushed is a bus with the pods of a kind and nothing of what was said behind them,
// until somebody speaks.
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

func (b hushed) Say(string, []byte) error { b.asked.Add(1); return nil }

func (b hushed) Consume(ctx context.Context, stream string, from uint64, _ func() uint64, handle func([]events.Message) error) error {
	return b.Follow(ctx, stream, from, handle)
}

func (hushed) Left(context.Context, string) (uint64, bool, error) { return 0, false, nil }

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

// TestSilenceIsAskedAbout: where the last messages of a state have expired, nothing
// is decided before a watcher has said what there is, or none has for a minute.
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
		"nobody speaks":                     {nil, silencePatience - time.Second, 50, false},
		"nobody speaks for too long":        {nil, silencePatience + time.Second, 50, true},
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
				if opened := !l.desk.shut[kinds.Pods.Name]; opened != tc.opened {
					t.Errorf("opened: %t, want %t", opened, tc.opened)
				}
				if got := b.asked.Load(); got < tc.asked {
					t.Errorf("asked %d times, want at least %d", got, tc.asked)
				}
			})
		})
	}
}

// busy is a bus on which another version of an object is stored whenever one looks at a message:
// what the stream ended with a moment ago is gone, and its place is taken by what came.
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

// TestABusyStreamIsNotSilent: the last message of a state is replaced between two looks at it, so
// that none is found behind what was folded. The watchers are speaking, and are not asked.
func TestABusyStreamIsNotSilent(t *testing.T) {
	stored := uint64(3)
	f := &Follower{Bus: busy{stored: &stored}, Memory: NewMemory(), Kind: kinds.Pods.Kind}
	silent, err := f.silent(t.Context(), 2)
	if err != nil || silent || f.asking.what() != nil {
		t.Errorf("it is said to be silent: %t (%v), and the watchers are asked: %v", silent, err, f.asking.what())
	}
}

// hear has a desk hear what it is told, until it is stopped.
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
