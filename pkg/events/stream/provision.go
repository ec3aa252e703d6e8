package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The creator of a stream or a consumer names subjects to which the server then sends stored
// messages: the delivery subject of a push consumer, or the subjects of a stream that sources,
// republishes or transforms. So on a bus with accounts a service may create neither. It checks
// whether the streams and consumers that it needs exist with the wanted settings, and asks the
// provisioner for the missing ones ([Bus.Provide]). A bus without accounts has no provisioner:
// there every process creates its own.

// maker creates streams and consumers.
type maker interface {
	kind(ctx context.Context, kind kinds.Kind) error
	controller(ctx context.Context, controller string) error
	shadow(ctx context.Context, controller string) error
	notary(ctx context.Context, keep time.Duration) error
	forget(ctx context.Context, kind kinds.Name) error
	consumer(ctx context.Context, o settings.Consumer) (jetstream.Consumer, error)
	leave(stream, consumer string)
}

// direct creates them directly.
type direct struct{ *Bus }

// viaProvisioner has the provisioner create them.
type viaProvisioner struct{ *Bus }

// order is a request to the provisioner; each verb uses one or two of the fields.
type order struct {
	Kind       *kinds.Kind        `json:"kind,omitempty"`
	Controller string             `json:"controller,omitempty"`
	Keep       time.Duration      `json:"keep,omitempty"` // nanoseconds
	Consumer   *settings.Consumer `json:"consumer,omitempty"`
	Name       string             `json:"name,omitempty"` // of a consumer
}

// answer is the result of an order.
type answer struct {
	Name string `json:"name,omitempty"` // of a consumer
	// Error is why the order failed, and Code the sort of that error.
	Error string `json:"error,omitempty"`
	Code  string `json:"code,omitempty"`
}

// The sorts of errors that callers tell apart.
const (
	codeSettings = "settings"
	codeNoStream = "no-stream"
	codePassing  = "passing"
)

// orderTimeout bounds an order: a service orders many streams at the same time.
const orderTimeout = 30 * time.Second

// order sends an order to the provisioner and returns its answer.
func (b *viaProvisioner) order(ctx context.Context, verb string, o order) (answer, error) {
	on := access.Provision + "." + b.options.user + "." + verb
	text, err := json.Marshal(o)
	if err != nil {
		return answer{}, fmt.Errorf("write an order: %w", err)
	}
	request, done := b.guarded(ctx, on)
	defer done()
	waiting, cancel := context.WithTimeout(request, orderTimeout)
	defer cancel()
	m, err := b.conn.RequestWithContext(waiting, on, text)
	b.noteProvisioner(err)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return answer{}, natserr.ErrNoProvisioner
	case err != nil:
		return answer{}, fmt.Errorf("ask the provisioner: %w", natserr.Translate(request, err))
	}
	var a answer
	if err := json.Unmarshal(m.Data, &a); err != nil {
		return a, fmt.Errorf("read the provisioner's answer: %w", err)
	}
	return a, a.err()
}

func (a answer) err() error {
	if a.Error == "" {
		return nil
	}
	kind := map[string]error{codeSettings: bus.ErrSettings, codeNoStream: bus.ErrNoStream, codePassing: natserr.ErrNotYet}[a.Code]
	if kind == nil {
		return fmt.Errorf("the provisioner refuses: %s", a.Error)
	}
	return fmt.Errorf("%w: %s", kind, a.Error)
}

// answerOf converts an error to an answer.
func answerOf(err error) answer {
	a := answer{Error: err.Error()}
	switch {
	case errors.Is(err, bus.ErrSettings):
		a.Code = codeSettings
	case errors.Is(err, bus.ErrNoStream):
		a.Code = codeNoStream
	case natserr.IsPassing(err):
		a.Code = codePassing
	}
	return a
}

// noProvisionerFor is for how long [Bus.Healthy] reports a missing provisioner. A service orders a
// missing stream again within [natserr.LongPause]. When it stops ordering, another service has had the
// stream created, and the provisioner is no longer needed.
const noProvisionerFor = 3 * natserr.LongPause

// noteProvisioner remembers whether there is a provisioner, for [Bus.Healthy].
func (b *Bus) noteProvisioner(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.noProvisionerSince = (time.Time{}); errors.Is(err, nats.ErrNoResponders) {
		b.noProvisionerSince = time.Now()
	}
}

// ensure has the provisioner create missing streams. It compares the existing ones, except for
// their retention, which is the provisioner's business.
func (b *viaProvisioner) ensure(ctx context.Context, verb string, o order, wanted ...jetstream.StreamConfig) error {
	for asked := false; ; asked = true {
		there, err := b.compare(ctx, wanted...)
		at := slices.Index(there, false)
		switch {
		case err != nil || at < 0:
			return err
		case asked:
			return fmt.Errorf("%w: %s, although the provisioner has made it", bus.ErrNoStream, wanted[at].Name)
		}
		if _, err := b.order(ctx, verb, o); err != nil {
			return err
		}
	}
}

func (b *viaProvisioner) kind(ctx context.Context, kind kinds.Kind) error {
	defer b.listing.drop()
	o := order{Kind: &kind}
	err := b.ensure(ctx, access.MakeKind, o, b.options.policy().Log(kind))
	if _, missing := b.info(ctx, formerState(kind.Name)); err == nil && missing == nil {
		_, err = b.order(ctx, access.MakeKind, o) // the provisioner removes it
	}
	if err != nil {
		return fmt.Errorf("ensure the log of %s: %w", kind.Name, err)
	}
	return nil
}

func (b *viaProvisioner) controller(ctx context.Context, controller string) error {
	if err := b.ensure(ctx, access.MakeController, order{Controller: controller}, b.options.policy().Controller(controller)...); err != nil {
		return fmt.Errorf("ensure the streams of %s: %w", controller, err)
	}
	return nil
}

func (b *viaProvisioner) shadow(ctx context.Context, controller string) error {
	if err := b.ensure(ctx, access.MakeShadow, order{Controller: controller}, b.options.policy().Shadow(controller)); err != nil {
		return fmt.Errorf("ensure the stream of the shadow of %s: %w", controller, err)
	}
	return nil
}

func (b *viaProvisioner) notary(ctx context.Context, keep time.Duration) error {
	info, err := b.info(ctx, subject.NotaryStream)
	if err == nil {
		want := b.options.policy().Notary(keep)
		want.MaxAge = info.Config.MaxAge
		if wrong := settings.Differences(settings.Retained(want, info.Config), want); len(wrong) > 0 {
			return fmt.Errorf("%w: %s: %v", bus.ErrSettings, want.Name, wrong)
		}
		if info.Config.DenyPurge && (info.Config.MaxAge == 0 || keep != 0 && info.Config.MaxAge >= keep) {
			return nil
		}
	}
	if err == nil || errors.Is(err, bus.ErrNoStream) {
		_, err = b.order(ctx, access.MakeNotary, order{Keep: keep})
	}
	if err != nil {
		return fmt.Errorf("ensure the notary's stream: %w", err)
	}
	return nil
}

func (b *viaProvisioner) forget(ctx context.Context, kind kinds.Name) error {
	if _, err := b.order(ctx, access.ForgetKind, order{Kind: &kinds.Kind{Name: kind}}); err != nil {
		return fmt.Errorf("forget %s: %w", kind, err)
	}
	return nil
}

func (b *viaProvisioner) consumer(ctx context.Context, o settings.Consumer) (jetstream.Consumer, error) {
	made, err := b.order(ctx, access.MakeConsumer, order{Consumer: &o})
	if err != nil {
		return nil, fmt.Errorf("make a consumer of %s: %w", o.Stream, err)
	}
	return b.js.Consumer(ctx, o.Stream, made.Name)
}

func (b *viaProvisioner) leave(stream, consumer string) {
	text, err := json.Marshal(order{Consumer: &settings.Consumer{Stream: stream}, Name: consumer})
	if err == nil {
		_ = b.conn.Publish(access.Provision+"."+b.options.user+"."+access.Leave, text)
	}
}
