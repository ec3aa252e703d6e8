package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/bus"
)

const (
	peerPrefix = "peer."
	// backlog is how much may be said while a listener has no time to hear it; what is
	// said beyond it is lost. It is a second's worth of what writers tell at their most.
	backlog = 4096
)

// Say tells everybody who listens on a topic; see [bus.Peers].
func (b *Bus) Say(topic string, data []byte) error {
	if err := b.conn.Publish(peerPrefix+topic, data); err != nil {
		return fmt.Errorf("say on %s: %w", topic, translated(context.Background(), err))
	}
	return nil
}

// Listen hears a topic until the connection was away, or too slow; see [bus.Peers].
func (b *Bus) Listen(ctx context.Context, topic string, hear func(data []byte)) error {
	shaken := b.whenShaken()
	life, done := b.guarded(ctx, peerPrefix+topic)
	defer done()
	heard := make(chan *nats.Msg, backlog)
	sub, err := b.conn.ChanSubscribe(peerPrefix+topic, heard)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", topic, translated(life, err))
	}
	defer func() { _ = sub.Unsubscribe() }()
	for {
		select {
		case m := <-heard:
			hear(m.Data)
		case <-life.Done():
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("listen on %s: %w", topic, context.Cause(life))
		case <-shaken:
			return nil
		case <-b.closed:
			return fmt.Errorf("listen on %s: %w", topic, bus.ErrClosed)
		}
	}
}
