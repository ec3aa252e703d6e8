package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/subject"
)

var _ bus.NotaryBus = (*Bus)(nil)

// EnsureNotary makes the notary's stream; see [bus.NotaryBus].
func (b *Bus) EnsureNotary(ctx context.Context, keep time.Duration) error {
	return natserr.Retry(ctx, b.options.Log, "make the notary's stream", func() error { return b.make.notary(ctx, keep) })
}

func (b direct) notary(ctx context.Context, keep time.Duration) error {
	want := b.options.notarySettings(keep)
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
	if wrong := differences(retained(want, have), want); len(wrong) > 0 {
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

// notarySettings is the settings of the notary's stream. It has no bound in bytes, which would
// drop the pages of a quiet stream for those of a busy one. No user can delete or purge its
// messages; a user can only delete the whole stream, which its notaries notice.
func (o Options) notarySettings(keep time.Duration) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: subject.NotaryStream, Subjects: []string{subject.Notary(">")},
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		Storage: jetstream.FileStorage, Compression: o.packing(), Replicas: o.Replicas,
		MaxAge: keep, MaxBytes: -1, Duplicates: putWindow, AllowDirect: true, DenyDelete: true, DenyPurge: true,
	}
}
