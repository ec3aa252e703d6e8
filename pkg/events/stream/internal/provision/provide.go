package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/quota"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	// maxKinds bounds the kinds whose streams a watcher may order.
	maxKinds = 2000
	// maxOrders bounds the orders that a provisioner works on, and orderBacklog the waiting
	// ones.
	maxOrders, orderBacklog = 16, 1024
	// orderBytes bounds an order; a valid one is smaller.
	orderBytes = 64 << 10
	// readerUnused is the age from which the provisioner deletes an unused consumer to make
	// room. A live reader always has a pull request pending, or starts a new session.
	readerUnused = 5 * time.Second
)

// provider carries out the orders of services.
type provider struct {
	direct
	controllers []string
	kinds       sync.Mutex // held while a kind is made, so that maxKinds holds
	readers     *quota.Readers
}

// Provide creates the streams and consumers that services order, with the settings that follow
// from the options of this bus, until the context ends. It refuses the streams of a controller
// that is not among controllers, the catalogue. It begins by applying its settings to the
// existing streams, retention included. Any number of processes may provide on one bus: each
// order goes to one of them.
//
// Errors: it may not subscribe to orders, or the bus was closed.
func (p *Provision) Provide(ctx context.Context, controllers []string) error {
	serving := &provider{direct: direct{p}, controllers: controllers}
	serving.readers = quota.NewReaders(serving.listReaders)
	life, done := p.on.Guarded(ctx, access.Provision)
	defer done()
	orders := make(chan *nats.Msg, orderBacklog)
	sub, err := p.on.NATS.ChanQueueSubscribe(access.Provision+".*.*", access.Provisioner, orders)
	if err != nil {
		return fmt.Errorf("hear what services ask for: %w", natserr.Translate(life, err))
	}
	defer func() { _ = sub.Unsubscribe() }()
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { serving.adopt(life) })
	slots := make(chan struct{}, maxOrders)
	for {
		select {
		case m := <-orders:
			slots <- struct{}{}
			working.Go(func() { serving.serve(life, m); <-slots })
		case <-life.Done():
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("hear what services ask for: %w", context.Cause(life))
		case <-p.on.Closed():
			return fmt.Errorf("hear what services ask for: %w", bus.ErrClosed)
		}
	}
}

// adopt applies this process's settings, retention included, to the existing streams.
func (p *provider) adopt(ctx context.Context) {
	all, err := p.listing.Kinds(ctx)
	for _, kind := range all {
		err = errors.Join(err, p.direct.Kind(ctx, kind))
	}
	known, listing := p.listing.Controllers(ctx)
	err = errors.Join(err, listing)
	for _, controller := range known {
		err = errors.Join(err, p.direct.Controller(ctx, controller))
	}
	if err != nil && ctx.Err() == nil {
		p.on.Log.Warn("cannot bring streams to their configuration", "error", err)
	}
}

// serve answers one order.
func (p *provider) serve(ctx context.Context, m *nats.Msg) {
	var done answer
	ctx, cancel := context.WithTimeout(ctx, orderTimeout)
	defer cancel()
	token := strings.Split(m.Subject, ".")
	user, verb := token[1], token[2]
	o, err := readOrder(m.Data)
	if err == nil {
		done, err = p.carryOut(ctx, user, verb, o)
	}
	if err != nil {
		done = answerOf(err)
	}
	if err != nil && (!errors.Is(err, natserr.ErrNotYet) || p.readers.MayLog(time.Now())) {
		p.on.Log.Warn("cannot carry out a provisioning request", "user", user, "order", verb, "error", err)
	}
	text, err := json.Marshal(done)
	if err == nil && m.Reply != "" {
		err = m.Respond(text)
	}
	if err != nil {
		p.on.Log.Warn("cannot answer a provisioning request", "user", user, "order", verb, "error", err)
	}
}

func readOrder(text []byte) (o order, err error) {
	if len(text) > orderBytes {
		return o, fmt.Errorf("an order of %d bytes", len(text))
	}
	if err := json.Unmarshal(text, &o); err != nil {
		return o, fmt.Errorf("read an order: %w", err)
	}
	return o, nil
}

// carryOut carries out an order. The server's permissions decide which user may give which order; it
// checks the content.
func (p *provider) carryOut(ctx context.Context, user, verb string, o order) (answer, error) {
	switch verb {
	case access.MakeKind, access.ForgetKind:
		return answer{}, p.ofKind(ctx, verb, o.Kind)
	case access.MakeController, access.MakeShadow:
		if !slices.Contains(p.controllers, o.Controller) {
			return answer{}, fmt.Errorf("%q is no controller of this version", o.Controller)
		}
		if verb == access.MakeShadow {
			return answer{}, p.direct.Shadow(ctx, o.Controller)
		}
		if slices.Contains(access.SplitWriters, user) && !access.Carries(user, o.Controller) {
			return answer{}, fmt.Errorf("%s is not among the controllers of the user %s", o.Controller, user)
		}
		return answer{}, p.direct.Controller(ctx, o.Controller)
	case access.MakeNotary:
		if o.Keep < 0 {
			return answer{}, fmt.Errorf("pages of a notary are to be kept for %v", o.Keep)
		}
		return answer{}, p.direct.Notary(ctx, o.Keep)
	case access.MakeConsumer:
		return p.consumerFor(ctx, user, o.Consumer)
	case access.Leave:
		if o.Consumer == nil || !strings.HasPrefix(o.Name, user+"-") {
			return answer{}, fmt.Errorf("%q is no consumer of the user %s", o.Name, user)
		}
		p.direct.Leave(o.Consumer.Stream, o.Name)
		p.readers.Left(quota.Key{User: user, Stream: o.Consumer.Stream}, o.Name)
		return answer{}, nil
	}
	return answer{}, fmt.Errorf("%q is nothing that a provisioner of this version does", verb)
}

// ofKind carries out an order about the streams of a kind.
func (p *provider) ofKind(ctx context.Context, verb string, kind *kinds.Kind) error {
	if kind == nil || !kindName.MatchString(string(kind.Name)) || len(kind.Name) > maxNameLength {
		return fmt.Errorf("the order names no kind: %+v", kind)
	}
	if verb == access.ForgetKind {
		return p.direct.Forget(ctx, kind.Name)
	}
	if !word.MatchString(kind.Version) || !word.MatchString(kind.Kind) || kind.Form != kinds.Full && kind.Form != kinds.Metadata {
		return fmt.Errorf("no kind is like this: %+v", kind)
	}
	p.kinds.Lock()
	defer p.kinds.Unlock()
	if _, err := p.on.Info(ctx, subject.LogStream(kind.Name)); errors.Is(err, bus.ErrNoStream) {
		logs, err := p.listing.Logs(ctx)
		if err == nil && len(logs) >= maxKinds {
			err = fmt.Errorf("there are %d kinds already, which is as many as are recorded", len(logs))
		}
		if err != nil {
			return err
		}
	}
	return p.direct.Kind(ctx, *kind)
}

// maxNameLength is the length that the API server bounds names to.
const maxNameLength = 253

var (
	kindName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	word     = regexp.MustCompile(`^[A-Za-z0-9]{1,63}$`)
)

// consumerFor makes a consumer for a user.
func (p *provider) consumerFor(ctx context.Context, user string, o *settings.Consumer) (answer, error) {
	switch {
	case o == nil || !o.Valid():
		return answer{}, fmt.Errorf("no consumer is like this: %+v", o)
	case o.Durable == "" && (o.Update || o.Remake || o.Acks && user != access.Reconciler || user == access.NotaryUser):
		return answer{}, fmt.Errorf("the user %s has no such consumer", user)
	case o.Durable != "" && !p.owns(user, o):
		return answer{}, fmt.Errorf("the consumer %s of %s is not the %s's", o.Durable, o.Stream, user)
	case o.Durable == "":
		return p.readerFor(ctx, user, o)
	}
	made, err := p.direct.Consumer(ctx, *o)
	if err != nil {
		return answer{}, natserr.Translate(ctx, err)
	}
	return answer{Name: made.CachedInfo().Name}, nil
}

// readerFor creates a reader's consumer for a user, unless the user has reached its bound.
func (p *provider) readerFor(ctx context.Context, user string, o *settings.Consumer) (answer, error) {
	counts, err := p.readers.Admit(ctx, quota.Key{User: user, Stream: o.Stream})
	if err != nil {
		if errors.Is(err, natserr.ErrNotYet) {
			p.on.Stats.Crowded.WithLabelValues(user).Inc()
		}
		return answer{}, natserr.Translate(ctx, err)
	}
	name := user + "-" + nuid.Next()
	_, err = p.direct.Consumer(ctx, o.Named(name))
	if err != nil {
		counts("")
		return answer{}, natserr.Translate(ctx, err)
	}
	counts(name)
	return answer{Name: name}, nil
}

// owns reports whether a user may use a durable consumer: a writer may, on the turns of its
// controllers.
func (p *provider) owns(user string, o *settings.Consumer) bool {
	controller, turns := strings.CutPrefix(o.Stream, subject.TurnStream(""))
	return turns && o.Durable == access.WriterConsumer && slices.Contains(p.controllers, controller) && access.Carries(user, controller)
}

// listReaders lists the readers of a user at a stream. At quota.MaxPerStream or more it first deletes
// the unused ones.
func (p *provider) listReaders(ctx context.Context, user, stream string) (names []string, err error) {
	handle, err := p.on.Handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	request, done := p.on.Guarded(ctx, "CONSUMER.LIST."+stream)
	defer done()
	var unused []string
	list := handle.ListConsumers(request)
	for info := range list.Info() {
		if !strings.HasPrefix(info.Name, user+"-") {
			continue
		}
		if names = append(names, info.Name); info.NumWaiting == 0 && info.TimeStamp.Sub(info.Created) >= readerUnused {
			unused = append(unused, info.Name)
		}
	}
	if err := natserr.Translate(request, list.Err()); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", stream, err)
	}
	if len(names) < quota.MaxPerStream {
		return names, nil
	}
	gone := map[string]bool{}
	for _, name := range unused {
		if err := p.on.JetStream.DeleteConsumer(ctx, stream, name); err == nil || errors.Is(err, jetstream.ErrConsumerNotFound) {
			gone[name] = true
		}
	}
	kept := names[:0]
	for _, name := range names {
		if !gone[name] {
			kept = append(kept, name)
		}
	}
	return kept, nil
}
