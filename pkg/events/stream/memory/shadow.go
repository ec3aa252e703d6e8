package memory

import (
	"context"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.ShadowBus = (*Bus)(nil)

// EnsureShadow makes the stream of a controller's shadow; see [bus.ShadowBus].
func (b *Bus) EnsureShadow(ctx context.Context, controller string) error {
	return b.do(ctx, func() error {
		if name := subject.ShadowStream(controller); b.streams[name] == nil {
			b.add(name, b.logAge, false)
		}
		return nil
	})
}
