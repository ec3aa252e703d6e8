package watchertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// StateOf returns the state of a stream.
func StateOf(t *testing.T, b bus.Bus, stream string) bus.State {
	t.Helper()
	s, err := b.StreamState(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Stand lets a bus answer with this state of a stream instead of the true one.
func Stand(b *bustest.Bus, stream string, state bus.State) {
	b.OnStreamState = func(ctx context.Context, of string) (bus.State, error) {
		if of == stream {
			return state, nil
		}
		return b.Bus.StreamState(ctx, of)
	}
}

// Tear lets a bus return the message at a sequence damaged when it is asked for that message alone.
func Tear(b *bustest.Bus, sequence uint64) {
	alter(b, sequence, func(m events.Message, there bool) (events.Message, bool) {
		m.Data = append([]byte("torn"), m.Data...)
		return m, there
	})
}

// Lose lets a bus have no message at a sequence when it is asked for that message alone.
func Lose(b *bustest.Bus, sequence uint64) {
	alter(b, sequence, func(events.Message, bool) (events.Message, bool) { return events.Message{}, false })
}

// alter changes the answer of At about one sequence, and keeps earlier changes.
func alter(b *bustest.Bus, sequence uint64, how func(events.Message, bool) (events.Message, bool)) {
	before := b.OnAt
	if before == nil {
		before = b.Bus.At
	}
	b.OnAt = func(ctx context.Context, stream string, at uint64) (events.Message, bool, error) {
		m, there, err := before(ctx, stream, at)
		if at == sequence {
			m, there = how(m, there)
		}
		return m, there, err
	}
}

// Unanswered are the questions about the log of pods that a bus can fail to answer, with ErrAway.
var Unanswered = map[string]func(*bustest.Bus){
	"the log":     func(b *bustest.Bus) { b.Fail(bustest.StreamState, ErrAway, subject.LogStream("pods")) },
	"a message":   func(b *bustest.Bus) { b.Fail(bustest.At, ErrAway, subject.LogStream("pods")) },
	"the mark":    func(b *bustest.Bus) { b.Fail(bustest.Last, ErrAway, subject.LogStream("pods")) },
	"the reading": func(b *bustest.Bus) { b.Fail(bustest.Follow, ErrAway) },
}

// Worn returns a bus whose disk has damaged some messages of a stream, and lost others.
func Worn(b bus.Bus, stream string, damaged []uint64, lost ...uint64) *bustest.Bus {
	wear := func(m events.Message) (events.Message, bool) {
		if m.Stream == stream && slices.Contains(damaged, m.Sequence) {
			m.Header = maps.Clone(m.Header)
			m.Header[events.HeaderRV] = []string{"1" + m.Get(events.HeaderRV)}
		}
		return m, m.Stream != stream || !slices.Contains(lost, m.Sequence)
	}
	worn := func(m events.Message, there bool, err error) (events.Message, bool, error) {
		if !there || err != nil {
			return m, there, err
		}
		m, there = wear(m)
		return m, there, nil
	}
	w := bustest.Wrap(b)
	w.OnAt = func(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
		return worn(b.At(ctx, stream, sequence))
	}
	w.OnLast = func(ctx context.Context, stream, subject string) (events.Message, bool, error) {
		return worn(b.Last(ctx, stream, subject))
	}
	w.OnStreamState = func(ctx context.Context, of string) (bus.State, error) {
		state, err := b.StreamState(ctx, of)
		for _, sequence := range lost {
			if of == stream && state.First <= sequence && sequence <= state.Last {
				state.Messages--
			}
		}
		return state, err
	}
	w.OnFollow = func(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
		return b.Follow(ctx, stream, from, func(batch []events.Message) error {
			kept := batch[:0]
			for _, m := range batch {
				if m, there := wear(m); there {
					kept = append(kept, m)
				}
			}
			return handle(kept)
		})
	}
	return w
}

// Cut returns a bus that cannot read its streams behind a message.
func Cut(b bus.Bus, after uint64) *bustest.Bus {
	c := bustest.Wrap(b)
	c.OnFollow = func(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
		return b.Follow(ctx, stream, from, func(batch []events.Message) error {
			for i, m := range batch {
				if m.Sequence > after {
					return errors.Join(handle(batch[:i]), fmt.Errorf("follow: %w", events.ErrDamaged))
				}
			}
			return handle(batch)
		})
	}
	return c
}

// Opened returns an appender that knows no message later than end, as when it was opened. It is refused
// where another watcher has appended since.
func Opened(a bus.Appender, end uint64) *bustest.Appender {
	return &bustest.Appender{
		Appender: a,
		OnLast:   func() uint64 { return end },
		OnAppend: func(ctx context.Context, m events.Message) error {
			if end != a.Last() {
				return bus.ErrOvertaken
			}
			return a.Append(ctx, m)
		},
	}
}
