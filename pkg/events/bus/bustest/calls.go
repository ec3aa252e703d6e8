package bustest

import (
	"context"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// EnsureKind implements bus.Bus.
func (b *Bus) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	if err := b.enter(EnsureKind, string(kind.Name)); err != nil {
		return err
	}
	if b.OnEnsureKind != nil {
		return b.OnEnsureKind(ctx, kind)
	}
	return b.Bus.EnsureKind(ctx, kind)
}

// EnsureController implements bus.Bus.
func (b *Bus) EnsureController(ctx context.Context, controller string) error {
	if err := b.enter(EnsureController, controller); err != nil {
		return err
	}
	if b.OnEnsureController != nil {
		return b.OnEnsureController(ctx, controller)
	}
	return b.Bus.EnsureController(ctx, controller)
}

// Kinds implements bus.Bus.
func (b *Bus) Kinds(ctx context.Context) ([]kinds.Kind, error) {
	if err := b.enter(Kinds, ""); err != nil {
		return nil, err
	}
	if b.OnKinds != nil {
		return b.OnKinds(ctx)
	}
	return b.Bus.Kinds(ctx)
}

// DeleteKind implements bus.Bus.
func (b *Bus) DeleteKind(ctx context.Context, kind kinds.Name) error {
	if err := b.enter(DeleteKind, string(kind)); err != nil {
		return err
	}
	if b.OnDeleteKind != nil {
		return b.OnDeleteKind(ctx, kind)
	}
	return b.Bus.DeleteKind(ctx, kind)
}

// StreamState implements bus.Bus.
func (b *Bus) StreamState(ctx context.Context, stream string) (bus.State, error) {
	if err := b.enter(StreamState, stream); err != nil {
		return bus.State{}, err
	}
	if b.OnStreamState != nil {
		return b.OnStreamState(ctx, stream)
	}
	return b.Bus.StreamState(ctx, stream)
}

// Append implements bus.Bus.
func (b *Bus) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	if err := b.enter(Append, string(kind)); err != nil {
		return nil, err
	}
	open := b.OnAppend
	if open == nil {
		open = b.Bus.Append
	}
	a, err := open(ctx, kind)
	if err != nil {
		return nil, err
	}
	return &Appender{Appender: a, OnAppend: func(ctx context.Context, m events.Message) error {
		if err := b.enter(AppendMessage, string(kind)); err != nil {
			return err
		}
		return a.Append(ctx, m)
	}}, nil
}

// Store implements bus.Bus.
func (b *Bus) Store(ctx context.Context, m events.Message, expect uint64) (uint64, error) {
	if err := b.enter(Store, m.Subject); err != nil {
		return 0, err
	}
	if b.OnStore != nil {
		return b.OnStore(ctx, m, expect)
	}
	return b.Bus.Store(ctx, m, expect)
}

// Put implements bus.Bus.
func (b *Bus) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	if err := b.enter(Put, m.Subject); err != nil {
		return 0, err
	}
	if b.OnPut != nil {
		return b.OnPut(ctx, m, id)
	}
	return b.Bus.Put(ctx, m, id)
}

// Follow implements bus.Bus.
func (b *Bus) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	if err := b.enter(Follow, stream); err != nil {
		return err
	}
	if b.OnFollow != nil {
		return b.OnFollow(ctx, stream, from, handle)
	}
	return b.Bus.Follow(ctx, stream, from, handle)
}

// Work implements bus.Bus.
func (b *Bus) Work(ctx context.Context, w bus.Work, handle func(bus.Delivery)) error {
	if err := b.enter(Work, w.Stream); err != nil {
		return err
	}
	if b.OnWork != nil {
		return b.OnWork(ctx, w, handle)
	}
	return b.Bus.Work(ctx, w, handle)
}

// Last implements bus.Bus.
func (b *Bus) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	if err := b.enter(Last, stream); err != nil {
		return events.Message{}, false, err
	}
	if b.OnLast != nil {
		return b.OnLast(ctx, stream, subject)
	}
	return b.Bus.Last(ctx, stream, subject)
}

// At implements bus.Bus.
func (b *Bus) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	if err := b.enter(At, stream); err != nil {
		return events.Message{}, false, err
	}
	if b.OnAt != nil {
		return b.OnAt(ctx, stream, sequence)
	}
	return b.Bus.At(ctx, stream, sequence)
}

// Consume implements bus.Bus.
func (b *Bus) Consume(ctx context.Context, stream string, from uint64, dealt func() uint64, handle func([]events.Message) error) error {
	if err := b.enter(Consume, stream); err != nil {
		return err
	}
	if b.OnConsume != nil {
		return b.OnConsume(ctx, stream, from, dealt, handle)
	}
	return b.Bus.Consume(ctx, stream, from, dealt, handle)
}

// Acknowledged implements bus.Bus.
func (b *Bus) Acknowledged(ctx context.Context, stream string) (uint64, bool, error) {
	if err := b.enter(Acknowledged, stream); err != nil {
		return 0, false, err
	}
	if b.OnAcknowledged != nil {
		return b.OnAcknowledged(ctx, stream)
	}
	return b.Bus.Acknowledged(ctx, stream)
}

// LastOf implements bus.Bus.
func (b *Bus) LastOf(ctx context.Context, stream string, subjects []string) (map[string]events.Message, error) {
	if err := b.enter(LastOf, stream); err != nil {
		return nil, err
	}
	if b.OnLastOf != nil {
		return b.OnLastOf(ctx, stream, subjects)
	}
	return b.Bus.LastOf(ctx, stream, subjects)
}

// Broadcast implements bus.Bus.
func (b *Bus) Broadcast(topic string, data []byte) error {
	if err := b.enter(Broadcast, topic); err != nil {
		return err
	}
	if b.OnBroadcast != nil {
		return b.OnBroadcast(topic, data)
	}
	return b.Bus.Broadcast(topic, data)
}

// Listen implements bus.Bus.
func (b *Bus) Listen(ctx context.Context, topic string, hear func([]byte)) error {
	if err := b.enter(Listen, topic); err != nil {
		return err
	}
	if b.OnListen != nil {
		return b.OnListen(ctx, topic, hear)
	}
	return b.Bus.Listen(ctx, topic, hear)
}

// NoListeners implements bus.Bus.
func (b *Bus) NoListeners(ctx context.Context, topic string) bool {
	_ = b.enter(NoListeners, topic)
	if b.OnNoListeners != nil {
		return b.OnNoListeners(ctx, topic)
	}
	return b.Bus.NoListeners(ctx, topic)
}
