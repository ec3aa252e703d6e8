package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// compare tells which of the wanted streams exist. If the settings of existing streams differ
// from the wanted ones, the error is ErrSettings and lists every difference. If a stream
// differs in its retention only, compare changes the retention instead; see [Provision.resize].
func (p *Provision) compare(ctx context.Context, wanted ...jetstream.StreamConfig) (there []bool, err error) {
	var wrong []string
	var resized []jetstream.StreamConfig
	for _, want := range wanted {
		info, err := p.on.Info(ctx, want.Name)
		switch {
		case errors.Is(err, bus.ErrNoStream):
			there = append(there, false)
		case err != nil:
			return nil, err
		default:
			there = append(there, true)
			if err := p.upgrade(ctx, &info.Config, want); err != nil {
				return nil, err
			}
			switch {
			case !settings.Sized(want) && len(settings.Differences(info.Config, want)) > 0, len(settings.Differences(info.Config, settings.Retained(info.Config, want))) > 0:
				for _, d := range settings.Differences(info.Config, want) {
					wrong = append(wrong, want.Name+": "+d)
				}
			case p.resizes(info.Config, want):
				resized = append(resized, settings.Retained(want, info.Config))
			}
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %s", bus.ErrSettings, strings.Join(wrong, "; "))
	}
	return there, p.resize(ctx, resized)
}

// upgrade adds the settings of this version to a stream that an older version created:
// DenyPurge, which the server lets no user take back, and fast ingest. It leaves a stream alone
// that differs in anything else.
func (p *Provision) upgrade(ctx context.Context, have *jetstream.StreamConfig, want jetstream.StreamConfig) error {
	next := *have
	next.DenyPurge, next.AllowBatchPublish = have.DenyPurge || want.DenyPurge, want.AllowBatchPublish
	same := next.DenyPurge == have.DenyPurge && next.AllowBatchPublish == have.AllowBatchPublish
	if p.Asks || same || have.Sealed || len(settings.Differences(settings.Retained(want, next), want)) > 0 {
		return nil
	}
	request, done := p.on.Guarded(ctx, have.Name)
	defer done()
	if _, err := p.on.JetStream.UpdateStream(request, next); err != nil {
		return fmt.Errorf("upgrade the settings of stream %s: %w", have.Name, natserr.Translate(request, err))
	}
	*have = next
	return nil
}

// resizes reports whether a stream's retention differs from the wanted one and this process may
// change it.
func (p *Provision) resizes(have, want jetstream.StreamConfig) bool {
	if p.Asks || !settings.Sized(want) || settings.Keeps(have) == settings.Keeps(want) {
		return false
	}
	if began, ok := settings.ResizedBy(have); ok && !began.Before(p.Policy.Began) {
		p.on.Log.Info("kept the retention of a stream that a newer process has set", "stream", have.Name,
			"age", have.MaxAge, "bytes", have.MaxBytes, "wanted age", want.MaxAge, "wanted bytes", want.MaxBytes)
		return false
	}
	return true
}

// resize sets the retentions of streams to those in the given settings, which are otherwise the
// streams' own.
func (p *Provision) resize(ctx context.Context, streams []jetstream.StreamConfig) error {
	for _, c := range streams {
		c = p.Policy.Resized(c)
		request, done := p.on.Guarded(ctx, c.Name)
		_, err := p.on.JetStream.UpdateStream(request, c)
		err = natserr.Translate(request, err)
		done()
		if err != nil {
			return fmt.Errorf("change how much is kept of stream %s: %w", c.Name, err)
		}
		p.on.Log.Info("changed the retention of a stream", "stream", c.Name, "age", c.MaxAge, "bytes", c.MaxBytes)
	}
	return nil
}
