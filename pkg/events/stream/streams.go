package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/stream/space"
	"github.com/millrace/millrace/pkg/events/subject"
)

// EnsureKind creates the log of a kind; see [bus.Streams]. It deletes what an earlier version kept
// beside it.
func (b *Bus) EnsureKind(ctx context.Context, kind kinds.Kind) error {
	return natserr.Retry(ctx, b.options.Log, "make the log of "+string(kind.Name), func() error { return b.make.kind(ctx, kind) })
}

func (b direct) kind(ctx context.Context, kind kinds.Kind) error {
	defer b.listing.drop()
	log := b.options.policy().Log(kind)
	there, err := b.compare(ctx, log)
	if err == nil {
		err = b.create(ctx, there, log)
	}
	if err == nil {
		err = b.remove(ctx, formerState(kind.Name))
	}
	if err != nil {
		return fmt.Errorf("ensure the log of %s: %w", kind.Name, err)
	}
	return nil
}

// formerState is the stream in which earlier versions kept the last message of each object of a
// kind: a mirror of the log.
func formerState(kind kinds.Name) string { return "STATE_" + kind.Token() }

// EnsureController creates the turn and outcome stream of a controller, and the shared streams
// of wakes and status reports; see [bus.Streams].
func (b *Bus) EnsureController(ctx context.Context, controller string) error {
	return natserr.Retry(ctx, b.options.Log, "make the streams of "+controller, func() error { return b.make.controller(ctx, controller) })
}

func (b direct) controller(ctx context.Context, controller string) error {
	wanted := b.options.policy().Controller(controller)
	there, err := b.compare(ctx, wanted...)
	if err == nil {
		err = b.create(ctx, there, wanted...)
	}
	if err != nil {
		return fmt.Errorf("ensure the streams of %s: %w", controller, err)
	}
	return nil
}

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

// compare tells which of the wanted streams exist. If the settings of existing streams differ
// from the wanted ones, the error is ErrSettings and lists every difference. If a stream
// differs in its retention only, compare changes the retention instead; see [Bus.resize].
func (b *Bus) compare(ctx context.Context, wanted ...jetstream.StreamConfig) (there []bool, err error) {
	var wrong []string
	var resized []jetstream.StreamConfig
	for _, want := range wanted {
		info, err := b.info(ctx, want.Name)
		switch {
		case errors.Is(err, bus.ErrNoStream):
			there = append(there, false)
		case err != nil:
			return nil, err
		default:
			there = append(there, true)
			if err := b.upgrade(ctx, &info.Config, want); err != nil {
				return nil, err
			}
			switch {
			case !settings.Sized(want) && len(settings.Differences(info.Config, want)) > 0, len(settings.Differences(info.Config, settings.Retained(info.Config, want))) > 0:
				for _, d := range settings.Differences(info.Config, want) {
					wrong = append(wrong, want.Name+": "+d)
				}
			case b.resizes(info.Config, want):
				resized = append(resized, settings.Retained(want, info.Config))
			}
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %s", bus.ErrSettings, strings.Join(wrong, "; "))
	}
	return there, b.resize(ctx, resized)
}

// upgrade adds the settings of this version to a stream that an older version created:
// DenyPurge, which the server lets no user take back, and fast ingest. It leaves a stream alone
// that differs in anything else.
func (b *Bus) upgrade(ctx context.Context, have *jetstream.StreamConfig, want jetstream.StreamConfig) error {
	next := *have
	next.DenyPurge, next.AllowBatchPublish = have.DenyPurge || want.DenyPurge, want.AllowBatchPublish
	same := next.DenyPurge == have.DenyPurge && next.AllowBatchPublish == have.AllowBatchPublish
	if b.options.orders || same || have.Sealed || len(settings.Differences(settings.Retained(want, next), want)) > 0 {
		return nil
	}
	request, done := b.guarded(ctx, have.Name)
	defer done()
	if _, err := b.js.UpdateStream(request, next); err != nil {
		return fmt.Errorf("upgrade the settings of stream %s: %w", have.Name, natserr.Translate(request, err))
	}
	*have = next
	return nil
}

// resizes reports whether a stream's retention differs from the wanted one and this process may
// change it.
func (b *Bus) resizes(have, want jetstream.StreamConfig) bool {
	if b.options.orders || !settings.Sized(want) || settings.Keeps(have) == settings.Keeps(want) {
		return false
	}
	if began, ok := settings.ResizedBy(have); ok && !began.Before(b.options.Began) {
		b.options.Log.Info("kept the retention of a stream that a newer process has set", "stream", have.Name,
			"age", have.MaxAge, "bytes", have.MaxBytes, "wanted age", want.MaxAge, "wanted bytes", want.MaxBytes)
		return false
	}
	return true
}

// resize sets the retentions of streams to those in the given settings, which are otherwise the
// streams' own.
func (b *Bus) resize(ctx context.Context, streams []jetstream.StreamConfig) error {
	for _, c := range streams {
		c = b.options.policy().Resized(c)
		request, done := b.guarded(ctx, c.Name)
		_, err := b.js.UpdateStream(request, c)
		err = natserr.Translate(request, err)
		done()
		if err != nil {
			return fmt.Errorf("change how much is kept of stream %s: %w", c.Name, err)
		}
		b.options.Log.Info("changed the retention of a stream", "stream", c.Name, "age", c.MaxAge, "bytes", c.MaxBytes)
	}
	return nil
}

func (b direct) create(ctx context.Context, there []bool, wanted ...jetstream.StreamConfig) error {
	for i, want := range wanted {
		if there[i] {
			continue
		}
		request, done := b.guarded(ctx, want.Name)
		made, err := b.js.CreateStream(request, want)
		err = natserr.Translate(request, err)
		done()
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			// Another process created the stream first, with other settings.
			_, err = b.compare(ctx, want)
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

// DeleteKind deletes the log of a kind; a missing log is no error.
func (b *Bus) DeleteKind(ctx context.Context, kind kinds.Name) error {
	defer b.listing.drop()
	return b.make.forget(ctx, kind)
}

func (b direct) forget(ctx context.Context, kind kinds.Name) error {
	for _, name := range []string{formerState(kind), subject.LogStream(kind)} {
		if err := b.remove(ctx, name); err != nil {
			return fmt.Errorf("forget %s: %w", kind, err)
		}
	}
	return nil
}

func (b direct) remove(ctx context.Context, name string) error {
	request, done := b.guarded(ctx, name)
	defer done()
	if err := natserr.Translate(request, b.js.DeleteStream(request, name)); err != nil && !errors.Is(err, bus.ErrNoStream) {
		return fmt.Errorf("delete stream %s: %w", name, err)
	}
	b.local.Lose(name)
	return nil
}

// StreamState is the state of a stream: its sequences, size and retention.
func (b *Bus) StreamState(ctx context.Context, name string) (bus.State, error) {
	info, err := b.info(ctx, name)
	if err != nil {
		return bus.State{}, err
	}
	return stateOf(info), nil
}

func stateOf(info *jetstream.StreamInfo) bus.State {
	s := bus.State{
		First: info.State.FirstSeq, Last: info.State.LastSeq, Messages: info.State.Msgs, Created: info.Created,
		Begins: info.State.FirstTime, Bytes: info.State.Bytes, Keeps: settings.Keeps(info.Config), Bounded: space.BoundOf(info.Config.Metadata),
		Now: info.TimeStamp,
	}
	if s.Messages == 0 {
		s.First, s.Begins = s.Last+1, time.Time{}
	}
	restoreState(&s, info.Config.Metadata)
	return s
}

func (b *Bus) info(ctx context.Context, name string) (*jetstream.StreamInfo, error) {
	handle, err := b.handle(ctx, name)
	if err != nil {
		return nil, err
	}
	return handle.CachedInfo(), nil
}

// handle looks a stream up on the server. While the servers elect a new leader, none answers
// for the stream; so handle repeats the request, which then reaches the new leader, until the
// deadline.
func (b *Bus) handle(ctx context.Context, name string) (handle jetstream.Stream, err error) {
	request, done := b.guarded(ctx, name)
	defer done()
	deadline, given := request.Deadline()
	if !given {
		deadline = time.Now().Add(b.options.Timeout)
	}
	for {
		lookup, end := context.WithTimeout(request, min(lookupTimeout, b.options.Timeout))
		handle, err = b.led(lookup, name)
		end()
		again := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, natserr.ErrNotLed) && natserr.Pause(request, 0)
		if !again || request.Err() != nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("look up stream %s: %w", name, natserr.Translate(request, err))
	}
	return handle, nil
}

// led looks a stream up, and accepts only the answer of the stream's leader. For ten seconds
// after its start a server also answers for the streams that it was chosen to lead at their
// creation. A server that has lost its disk does so too, and reports too early an end for those
// streams.
func (b *Bus) led(ctx context.Context, name string) (jetstream.Stream, error) {
	handle, err := b.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	info := handle.CachedInfo()
	if c := info.Cluster; info.Config.Replicas > 1 && c != nil {
		// A leader lists the other replicas, and not itself.
		others := slices.ContainsFunc(c.Replicas, func(p *jetstream.PeerInfo) bool { return p.Name == c.Leader })
		if c.Leader == "" || len(c.Replicas) == 0 || others {
			return nil, fmt.Errorf("look up stream %s: %w", name, natserr.ErrNotLed)
		}
	}
	return handle, nil
}
