package watchertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Ailing is a bus on which single answers fail, or are wrong.
type Ailing struct {
	bus.Bus
	// KindsErr, FollowErr, EnsureErr and DeleteErr are what the methods of these names fail with.
	KindsErr, FollowErr, EnsureErr, DeleteErr error
	// StateErr, AtErr and LastErr are what the methods of these names fail with, by stream.
	StateErr, AtErr, LastErr map[string]error
	States                   map[string]bus.State // the answer instead of the true one
	Torn                     map[uint64]bool      // damaged messages
	Missing                  map[uint64]bool      // missing messages

	mu sync.Mutex // of the maps, while a watch runs beside the test
}

// Kinds returns KindsErr, if there is one.
func (a *Ailing) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if a.KindsErr != nil {
		return nil, a.KindsErr
	}
	return a.Bus.Kinds(ctx)
}

// Fails makes a stream unreachable, or reachable again, while a watch runs.
func (a *Ailing) Fails(stream string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.StateErr[stream] = err
}

// StreamState returns the stream's StateErr, or its state in States, if there is one.
func (a *Ailing) StreamState(ctx context.Context, stream string) (bus.State, error) {
	a.mu.Lock()
	err := a.StateErr[stream]
	s, ok := a.States[stream]
	a.mu.Unlock()
	if err != nil || ok {
		return s, err
	}
	return a.Bus.StreamState(ctx, stream)
}

// At returns the stream's AtErr, if there is one.
func (a *Ailing) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if err := a.AtErr[stream]; err != nil {
		return events.Message{}, false, err
	}
	m, there, err := a.Bus.At(ctx, stream, sequence)
	if a.Torn[sequence] {
		m.Data = append([]byte("torn"), m.Data...)
	}
	return m, there && !a.Missing[sequence], err
}

// Last returns the stream's LastErr, if there is one.
func (a *Ailing) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if err := a.LastErr[stream]; err != nil {
		return events.Message{}, false, err
	}
	return a.Bus.Last(ctx, stream, subject)
}

// Follow returns FollowErr, if there is one.
func (a *Ailing) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	if a.FollowErr != nil {
		return a.FollowErr
	}
	return a.Bus.Follow(ctx, stream, from, handle)
}

// EnsureKind returns EnsureErr, if there is one.
func (a *Ailing) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	if a.EnsureErr != nil {
		return a.EnsureErr
	}
	return a.Bus.EnsureKind(ctx, kind)
}

// DeleteKind returns DeleteErr, if there is one.
func (a *Ailing) DeleteKind(ctx context.Context, kind kinds.Name) error {
	if a.DeleteErr != nil {
		return a.DeleteErr
	}
	return a.Bus.DeleteKind(ctx, kind)
}

// Stands returns the true state of a stream.
func (a *Ailing) Stands(t *testing.T, stream string) bus.State {
	t.Helper()
	s, err := a.Bus.StreamState(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// NewAiling is a bus whose answers can fail.
func NewAiling(b bus.Bus) *Ailing {
	return &Ailing{
		Bus: b, StateErr: map[string]error{}, AtErr: map[string]error{}, LastErr: map[string]error{}, States: map[string]bus.State{},
		Torn: map[uint64]bool{}, Missing: map[uint64]bool{},
	}
}

// Unanswered are the questions about the log of pods that an ailing bus can fail to answer, with ErrAway.
var Unanswered = map[string]func(*Ailing){
	"the log":     func(a *Ailing) { a.StateErr[subject.LogStream("pods")] = ErrAway },
	"a message":   func(a *Ailing) { a.AtErr[subject.LogStream("pods")] = ErrAway },
	"the mark":    func(a *Ailing) { a.LastErr[subject.LogStream("pods")] = ErrAway },
	"the reading": func(a *Ailing) { a.FollowErr = ErrAway },
}

// Worn is a bus whose disk has damaged some messages, and lost others.
type Worn struct {
	bus.Bus
	Damaged, Lost map[string]bool // "<stream> <sequence>"
}

// Place is the key of a message in a Worn bus.
func Place(stream string, sequence uint64) string { return fmt.Sprint(stream, " ", sequence) }

// wear returns a message as the disk has it.
func (w *Worn) wear(m events.Message) (events.Message, bool) {
	place := Place(m.Stream, m.Sequence)
	if w.Damaged[place] {
		m.Header = maps.Clone(m.Header)
		m.Header[events.HeaderRV] = []string{"1" + m.Get(events.HeaderRV)}
	}
	return m, !w.Lost[place]
}

// At also loses or damages the message.
func (w *Worn) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	m, there, err := w.Bus.At(ctx, stream, sequence)
	if !there || err != nil {
		return m, there, err
	}
	m, there = w.wear(m)
	return m, there, nil
}

// Last also loses or damages the message.
func (w *Worn) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	m, there, err := w.Bus.Last(ctx, stream, subject)
	if !there || err != nil {
		return m, there, err
	}
	m, there = w.wear(m)
	return m, there, nil
}

// StreamState does not count what was lost.
func (w *Worn) StreamState(ctx context.Context, stream string) (bus.State, error) {
	state, err := w.Bus.StreamState(ctx, stream)
	for sequence := state.First; err == nil && sequence <= state.Last; sequence++ {
		if w.Lost[Place(stream, sequence)] {
			state.Messages--
		}
	}
	return state, err
}

// Follow also loses or damages messages.
func (w *Worn) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	return w.Bus.Follow(ctx, stream, from, func(batch []events.Message) error {
		kept := batch[:0]
		for _, m := range batch {
			if m, there := w.wear(m); there {
				kept = append(kept, m)
			}
		}
		return handle(kept)
	})
}

// Cut is a bus that cannot read its streams behind a message.
type Cut struct {
	bus.Bus
	After uint64
}

// Follow fails behind the message After.
func (c *Cut) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	return c.Bus.Follow(ctx, stream, from, func(batch []events.Message) error {
		for i, m := range batch {
			if m.Sequence > c.After {
				return errors.Join(handle(batch[:i]), fmt.Errorf("follow: %w", events.ErrDamaged))
			}
		}
		return handle(batch)
	})
}

// Broken is a bus that cannot read its streams.
type Broken struct{ bus.Bus }

// Follow fails.
func (*Broken) Follow(context.Context, string, uint64, func([]events.Message) error) error {
	return fmt.Errorf("follow: %w", events.ErrDamaged)
}

// Opened is an appender that knows no message later than those at the time when it was opened.
type Opened struct {
	bus.Appender
	End uint64
}

// Last returns End.
func (o *Opened) Last() uint64 { return o.End }

// Append is refused where another watcher has appended since.
func (o *Opened) Append(ctx context.Context, m events.Message) error {
	if o.End != o.Appender.Last() {
		return bus.ErrOvertaken
	}
	return o.Appender.Append(ctx, m)
}

// Refusing is an appender that refuses each append with Err, while Err is not nil.
type Refusing struct {
	bus.Appender
	Err error
}

// Append appends a message, or returns Err.
func (r *Refusing) Append(ctx context.Context, m events.Message) error {
	if r.Err != nil {
		return r.Err
	}
	return r.Appender.Append(ctx, m)
}

// Unflushed is an appender whose Flush does not confirm.
type Unflushed struct{ bus.Appender }

// Flush returns ErrAway.
func (*Unflushed) Flush(context.Context) error { return ErrAway }
