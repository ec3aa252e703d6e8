package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// direct creates streams and consumers itself.
type direct struct{ *Provision }

func (d direct) Kind(ctx context.Context, kind kinds.Kind) error {
	defer d.listing.Drop()
	log := d.Policy.Log(kind)
	there, err := d.compare(ctx, log)
	if err == nil {
		err = d.create(ctx, there, log)
	}
	if err == nil {
		err = d.remove(ctx, formerState(kind.Name))
	}
	if err != nil {
		return fmt.Errorf("ensure the log of %s: %w", kind.Name, err)
	}
	return nil
}

// formerState is the stream in which earlier versions kept the last message of each object of a
// kind: a mirror of the log.
func formerState(kind kinds.Name) string { return "STATE_" + kind.Token() }

func (d direct) Controller(ctx context.Context, controller string) error {
	wanted := d.Policy.Controller(controller)
	there, err := d.compare(ctx, wanted...)
	if err == nil {
		err = d.create(ctx, there, wanted...)
	}
	if err != nil {
		return fmt.Errorf("ensure the streams of %s: %w", controller, err)
	}
	return nil
}

func (d direct) Notary(ctx context.Context, keep time.Duration) error {
	want := d.Policy.Notary(keep)
	info, err := d.on.Info(ctx, want.Name)
	switch {
	case errors.Is(err, bus.ErrNoStream):
		if err := d.create(ctx, []bool{false}, want); err != nil {
			return fmt.Errorf("ensure the notary's stream: %w", err)
		}
		return nil
	case err != nil:
		return err
	}
	if err := d.upgrade(ctx, &info.Config, want); err != nil {
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
	request, done := d.on.Guarded(ctx, want.Name)
	defer done()
	if _, err := d.on.JetStream.UpdateStream(request, have); err != nil {
		return fmt.Errorf("keep the notary's stream for %v: %w", want.MaxAge, natserr.Translate(request, err))
	}
	return nil
}

func (d direct) Shadow(ctx context.Context, controller string) error {
	wanted := d.Policy.Shadow(controller)
	there, err := d.compare(ctx, wanted)
	if err == nil {
		err = d.create(ctx, there, wanted)
	}
	if err != nil {
		return fmt.Errorf("ensure the stream of the shadow of %s: %w", controller, err)
	}
	return nil
}

func (d direct) create(ctx context.Context, there []bool, wanted ...jetstream.StreamConfig) error {
	for i, want := range wanted {
		if there[i] {
			continue
		}
		request, done := d.on.Guarded(ctx, want.Name)
		made, err := d.on.JetStream.CreateStream(request, want)
		err = natserr.Translate(request, err)
		done()
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another process created the stream first, with other settings.
			_, err = d.compare(ctx, want)
		}
		if err != nil {
			return fmt.Errorf("create stream %s: %w", want.Name, err)
		}
		if made == nil {
			continue
		}
		if wrong := settings.Differences(made.CachedInfo().Config, want); len(wrong) > 0 {
			return fmt.Errorf("%w: the server made %s with %s", bus.ErrSettings, want.Name, strings.Join(wrong, "; "))
		}
	}
	return nil
}

func (d direct) Forget(ctx context.Context, kind kinds.Name) error {
	for _, name := range []string{formerState(kind), subject.LogStream(kind)} {
		if err := d.remove(ctx, name); err != nil {
			return fmt.Errorf("forget %s: %w", kind, err)
		}
	}
	return nil
}

func (d direct) remove(ctx context.Context, name string) error {
	request, done := d.on.Guarded(ctx, name)
	defer done()
	if err := natserr.Translate(request, d.on.JetStream.DeleteStream(request, name)); err != nil && !errors.Is(err, bus.ErrNoStream) {
		return fmt.Errorf("delete stream %s: %w", name, err)
	}
	d.on.Hub.Lose(name)
	return nil
}
