package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.Beside = (*Bus)(nil)

// EnsureShadow makes the stream of a controller's shadow; see [bus.Beside].
func (b *Bus) EnsureShadow(ctx context.Context, controller string) error {
	return b.insist(ctx, "make the stream of the shadow of "+controller, func() error { return b.ensureShadow(ctx, controller) })
}

func (b *Bus) ensureShadow(ctx context.Context, controller string) error {
	wanted := b.options.shadowSettings(controller)
	there, err := b.compare(ctx, wanted)
	if err == nil {
		err = b.create(ctx, there, wanted)
	}
	if err != nil {
		return fmt.Errorf("ensure the stream of the shadow of %s: %w", controller, err)
	}
	return nil
}

// shadowSettings: what a shadow says is kept as long as what its controller does.
func (o Options) shadowSettings(controller string) jetstream.StreamConfig {
	c := o.turnSettings(controller)
	c.Name, c.Subjects = subject.ShadowStream(controller), []string{subject.Shadow(controller)}
	return c
}
