package stream

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.ShadowBus = (*Bus)(nil)

// ShadowUser is the user of shadows that have an account of their own
// (deployments/nats/accounts.conf): guests that may also publish their findings.
const ShadowUser = access.Shadow

// EnsureShadow creates the stream of a controller's shadow; see [bus.ShadowBus]. A guest may not
// create a stream, since its creator could have it publish anything on any subject: a guest
// waits for the stream.
func (b *Bus) EnsureShadow(ctx context.Context, controller string) error {
	if b.options.Guest {
		return b.awaitShadow(ctx, controller)
	}
	return natserr.Retry(ctx, b.options.Log, "make the stream of the shadow of "+controller, func() error { return b.make.shadow(ctx, controller) })
}

// awaitShadow waits until another process has created the stream.
func (b *Bus) awaitShadow(ctx context.Context, controller string) error {
	for attempt := 0; ; attempt++ {
		_, err := b.info(ctx, subject.ShadowStream(controller))
		if !errors.Is(err, bus.ErrNoStream) && !natserr.IsPassing(err) {
			return err
		}
		if attempt == 10 {
			b.options.Log.Info("Waiting for the stream of a shadow: is the watcher running, with the same --shadow, and a provisioner?", "controller", controller)
		}
		if !natserr.Pause(ctx, attempt) {
			return fmt.Errorf("wait for the stream of the shadow of %s: %w", controller, ctx.Err())
		}
	}
}

func (b direct) shadow(ctx context.Context, controller string) error {
	wanted := b.options.policy().Shadow(controller)
	there, err := b.compare(ctx, wanted)
	if err == nil {
		err = b.create(ctx, there, wanted)
	}
	if err != nil {
		return fmt.Errorf("ensure the stream of the shadow of %s: %w", controller, err)
	}
	return nil
}
