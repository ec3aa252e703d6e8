package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

const (
	peerPrefix = "peer."
	// backlog bounds the messages that wait for a busy listener; the listener loses those
	// beyond it. It is what writers send at most in a second.
	backlog = 4096
	// backlogBytes bounds the same in bytes, since every process that may publish on a topic
	// can send messages as large as the server carries.
	backlogBytes = 32 << 20
)

// Broadcast publishes to all listeners of a topic; see [bus.Peers].
func (b *Bus) Broadcast(topic string, data []byte) error {
	if err := b.on.NATS.Publish(peerPrefix+topic, data); err != nil {
		return fmt.Errorf("say on %s: %w", topic, natserr.Translate(context.Background(), err))
	}
	return nil
}

// NoListeners reports whether nothing listens on a topic; see [bus.Peers].
func (b *Bus) NoListeners(ctx context.Context, topic string) bool {
	_, err := b.on.NATS.RequestWithContext(ctx, peerPrefix+topic, nil)
	return errors.Is(err, nats.ErrNoResponders)
}

// Listen hears a topic until the connection was lost, or the listener too slow; see
// [bus.Peers].
func (b *Bus) Listen(ctx context.Context, topic string, hear func(data []byte)) error {
	shaken := b.on.MayHaveMissed()
	life, done := b.on.Guarded(ctx, peerPrefix+topic)
	defer done()
	sub, err := b.on.NATS.SubscribeSync(peerPrefix + topic)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = sub.SetPendingLimits(backlog, backlogBytes)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", topic, natserr.Translate(life, err))
	}
	hearing, stop := context.WithCancel(life)
	defer stop()
	go func() {
		defer stop()
		select {
		case <-hearing.Done():
		case <-shaken:
		case <-b.on.Closed():
		}
	}()
	for hearing.Err() == nil {
		var m *nats.Msg
		if m, err = sub.NextMsgWithContext(hearing); err != nil {
			break
		}
		hear(m.Data)
	}
	select {
	case <-b.on.Closed():
		return fmt.Errorf("listen on %s: %w", topic, bus.ErrClosed)
	case <-life.Done():
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("listen on %s: %w", topic, context.Cause(life))
	default:
	}
	if hearing.Err() != nil || errors.Is(err, nats.ErrSlowConsumer) {
		return nil // what was said meanwhile is lost
	}
	return fmt.Errorf("listen on %s: %w", topic, natserr.Translate(life, err))
}
