package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

var _ bus.NotaryBus = (*Bus)(nil)

// EnsureNotary makes the notary's stream; see [bus.NotaryBus].
func (b *Bus) EnsureNotary(ctx context.Context, keep time.Duration) error {
	return natserr.Retry(ctx, b.options.Log, "make the notary's stream", func() error { return b.make.notary(ctx, keep) })
}

func (b direct) notary(ctx context.Context, keep time.Duration) error {
	want := b.options.policy().Notary(keep)
	info, err := b.info(ctx, want.Name)
	switch {
	case errors.Is(err, bus.ErrNoStream):
		if err := b.create(ctx, []bool{false}, want); err != nil {
			return fmt.Errorf("ensure the notary's stream: %w", err)
		}
		return nil
	case err != nil:
		return err
	}
	if err := b.upgrade(ctx, &info.Config, want); err != nil {
		return err
	}
	have := info.Config
	if have.MaxAge == 0 || keep != 0 && have.MaxAge >= keep {
		want.MaxAge = have.MaxAge
	}
	if wrong := settings.Differences(settings.Retained(want, have), want); len(wrong) > 0 {
		return fmt.Errorf("%w: %s: %v", bus.ErrSettings, want.Name, wrong)
	}
	if have.MaxAge == want.MaxAge && have.DenyPurge {
		return nil
	}
	have.MaxAge, have.DenyPurge = want.MaxAge, true // older versions created the stream without it
	request, done := b.guarded(ctx, want.Name)
	defer done()
	if _, err := b.js.UpdateStream(request, have); err != nil {
		return fmt.Errorf("keep the notary's stream for %v: %w", want.MaxAge, natserr.Translate(request, err))
	}
	return nil
}
