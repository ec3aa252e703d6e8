package provision

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

// viaProvisioner has the provisioner create streams and consumers.
type viaProvisioner struct{ *Provision }

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
func (v *viaProvisioner) order(ctx context.Context, verb string, o order) (answer, error) {
	on := access.Provision + "." + v.User + "." + verb
	text, err := json.Marshal(o)
	if err != nil {
		return answer{}, fmt.Errorf("write an order: %w", err)
	}
	request, done := v.on.Guarded(ctx, on)
	defer done()
	waiting, cancel := context.WithTimeout(request, orderTimeout)
	defer cancel()
	m, err := v.on.NATS.RequestWithContext(waiting, on, text)
	v.on.NoteProvisioner(err)
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

// ensure has the provisioner create missing streams. It compares the existing ones, except for
// their retention, which is the provisioner's business.
func (v *viaProvisioner) ensure(ctx context.Context, verb string, o order, wanted ...jetstream.StreamConfig) error {
	for asked := false; ; asked = true {
		there, err := v.compare(ctx, wanted...)
		at := slices.Index(there, false)
		switch {
		case err != nil || at < 0:
			return err
		case asked:
			return fmt.Errorf("%w: %s, although the provisioner has made it", bus.ErrNoStream, wanted[at].Name)
		}
		if _, err := v.order(ctx, verb, o); err != nil {
			return err
		}
	}
}

func (v *viaProvisioner) Kind(ctx context.Context, kind kinds.Kind) error {
	defer v.listing.Drop()
	o := order{Kind: &kind}
	err := v.ensure(ctx, access.MakeKind, o, v.Policy.Log(kind))
	if _, missing := v.on.Info(ctx, formerState(kind.Name)); err == nil && missing == nil {
		_, err = v.order(ctx, access.MakeKind, o) // the provisioner removes it
	}
	if err != nil {
		return fmt.Errorf("ensure the log of %s: %w", kind.Name, err)
	}
	return nil
}

func (v *viaProvisioner) Controller(ctx context.Context, controller string) error {
	if err := v.ensure(ctx, access.MakeController, order{Controller: controller}, v.Policy.Controller(controller)...); err != nil {
		return fmt.Errorf("ensure the streams of %s: %w", controller, err)
	}
	return nil
}

func (v *viaProvisioner) Shadow(ctx context.Context, controller string) error {
	if err := v.ensure(ctx, access.MakeShadow, order{Controller: controller}, v.Policy.Shadow(controller)); err != nil {
		return fmt.Errorf("ensure the stream of the shadow of %s: %w", controller, err)
	}
	return nil
}

func (v *viaProvisioner) Notary(ctx context.Context, keep time.Duration) error {
	info, err := v.on.Info(ctx, subject.NotaryStream)
	if err == nil {
		want := v.Policy.Notary(keep)
		want.MaxAge = info.Config.MaxAge
		if wrong := settings.Differences(settings.Retained(want, info.Config), want); len(wrong) > 0 {
			return fmt.Errorf("%w: %s: %v", bus.ErrSettings, want.Name, wrong)
		}
		if info.Config.DenyPurge && (info.Config.MaxAge == 0 || keep != 0 && info.Config.MaxAge >= keep) {
			return nil
		}
	}
	if err == nil || errors.Is(err, bus.ErrNoStream) {
		_, err = v.order(ctx, access.MakeNotary, order{Keep: keep})
	}
	if err != nil {
		return fmt.Errorf("ensure the notary's stream: %w", err)
	}
	return nil
}

func (v *viaProvisioner) Forget(ctx context.Context, kind kinds.Name) error {
	if _, err := v.order(ctx, access.ForgetKind, order{Kind: &kinds.Kind{Name: kind}}); err != nil {
		return fmt.Errorf("forget %s: %w", kind, err)
	}
	return nil
}

func (v *viaProvisioner) Consumer(ctx context.Context, o settings.Consumer) (jetstream.Consumer, error) {
	made, err := v.order(ctx, access.MakeConsumer, order{Consumer: &o})
	if err != nil {
		return nil, fmt.Errorf("make a consumer of %s: %w", o.Stream, err)
	}
	return v.on.JetStream.Consumer(ctx, o.Stream, made.Name)
}

func (v *viaProvisioner) Leave(stream, consumer string) {
	text, err := json.Marshal(order{Consumer: &settings.Consumer{Stream: stream}, Name: consumer})
	if err == nil {
		_ = v.on.NATS.Publish(access.Provision+"."+v.User+"."+access.Leave, text)
	}
}
