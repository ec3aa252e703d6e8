package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/quota"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The service that gave an order sees the provisioner's error as if the server had returned it.
func TestHowRefusalsAreTold(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err, want error // nil: it is told in words alone
	}{
		{bus.ErrSettings, bus.ErrSettings}, {bus.ErrNoStream, bus.ErrNoStream}, {&jetstream.APIError{Code: 503, ErrorCode: 10008}, natserr.ErrNotYet}, {fmt.Errorf("x: %w", nats.ErrTimeout), natserr.ErrNotYet}, {errors.New("because"), nil},
	} {
		a := answerOf(fmt.Errorf("make it: %w", c.err))
		got := a.err()
		for _, name := range []error{bus.ErrSettings, bus.ErrNoStream, natserr.ErrNotYet} {
			if errors.Is(got, name) != (name == c.want) {
				t.Errorf("%v is told as %v, which is %v: %t", c.err, got, name, errors.Is(got, name))
			}
		}
		if !strings.Contains(got.Error(), c.err.Error()) || (c.want == nil) != strings.Contains(got.Error(), "the provisioner refuses") {
			t.Errorf("%v is told as %v", c.err, got)
		}
	}
	if err := (answer{Name: "x"}).err(); err != nil {
		t.Errorf("the answer of a success is the error %v", err)
	}
}

// carryOut refuses an order that no service has reason to give before it asks the server.
func TestOrdersThatAreRefused(t *testing.T) {
	t.Parallel()
	p := &provider{controllers: []string{"c", "d"}} // without a bus: to carry one out would end the test
	pods := func(change func(k *kinds.Kind)) *kinds.Kind {
		k := kinds.Pods.Kind
		change(&k)
		return &k
	}
	for name, c := range map[string]struct {
		user, verb string
		order      order
		says       string
	}{
		"streams of a controller that is none":      {access.Writer, access.MakeController, order{Controller: "e"}, "no controller of this version"},
		"a shadow of a controller that is none":     {access.Watcher, access.MakeShadow, order{Controller: "e"}, "no controller of this version"},
		"streams of another writer's controller":    {access.WriterCollectors, access.MakeController, order{Controller: "c"}, "not among the controllers"},
		"pages that are kept for less than nothing": {access.NotaryUser, access.MakeNotary, order{Keep: -1}, "to be kept for -1ns"},
		"what is no verb":                           {access.Watcher, "remove", order{}, "nothing that a provisioner"},
		"what an earlier version ordered":           {access.Watcher, "renew", order{Kind: &kinds.Pods.Kind}, "nothing that a provisioner"},
		"no kind":                                   {access.Watcher, access.ForgetKind, order{}, "names no kind"},
		"a kind with a name that is none":           {access.Watcher, access.ForgetKind, order{Kind: &kinds.Kind{Name: "a.>"}}, "names no kind"},
		"a kind with a name that is too long":       {access.Watcher, access.ForgetKind, order{Kind: &kinds.Kind{Name: kinds.Name(strings.Repeat("a", 254))}}, "names no kind"},
		"a kind without a version":                  {access.Watcher, access.MakeKind, order{Kind: pods(func(k *kinds.Kind) { k.Version = "" })}, "no kind is like this"},
		"a kind without a word for it":              {access.Watcher, access.MakeKind, order{Kind: pods(func(k *kinds.Kind) { k.Kind = "*" })}, "no kind is like this"},
		"a kind in no form":                         {access.Watcher, access.MakeKind, order{Kind: pods(func(k *kinds.Kind) { k.Form = "half" })}, "no kind is like this"},
		"no consumer":                               {access.Writer, access.MakeConsumer, order{}, "no consumer is like this"},
		"a consumer that waits for hours":           {access.Writer, access.MakeConsumer, order{Consumer: &settings.Consumer{AckWait: 2 * time.Hour}}, "no consumer is like this"},
		"to change a reader's":                      {access.Reconciler, access.MakeConsumer, order{Consumer: &settings.Consumer{Update: true}}, "has no such consumer"},
		"to replace a reader's":                     {access.Reconciler, access.MakeConsumer, order{Consumer: &settings.Consumer{Remake: true}}, "has no such consumer"},
		"a reader's that acknowledges":              {access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Acks: true}}, "has no such consumer"},
		"a reader's of a notary":                    {access.NotaryUser, access.MakeConsumer, order{Consumer: &settings.Consumer{}}, "has no such consumer"},
		"that of the writers, of another":           {access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Durable: access.WriterConsumer, Stream: "TURN_c"}}, "is not the"},
		"to remove nothing":                         {access.Writer, access.Leave, order{Name: "writer-1"}, "no consumer of the user"},
		"to remove another's":                       {access.Writer, access.Leave, order{Name: "watcher-1", Consumer: &settings.Consumer{Stream: "EV_pods"}}, "no consumer of the user"},
	} {
		if _, err := p.carryOut(t.Context(), c.user, c.verb, c.order); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	text := func(size int) []byte {
		const begin, end = `{"name":"`, `"}`
		return []byte(begin + strings.Repeat("x", size-len(begin+end)) + end)
	}
	if o, err := readOrder(text(64 << 10)); err != nil || len(o.Name) == 0 {
		t.Errorf("an order of 64 KiB: %v", err)
	}
	if _, err := readOrder(text(64<<10 + 1)); err == nil || !strings.Contains(err.Error(), "an order of 65537 bytes") {
		t.Errorf("an order of more than that: %v", err)
	}
}

// As many kinds are recorded as there is room for, and those that are go on.
func TestHowManyKindsAreRecorded(t *testing.T) {
	t.Parallel()
	o := known()
	there := func(n int) (all []*jetstream.StreamInfo) {
		for i := range n {
			all = append(all, jstest.Of(jetstream.StreamConfig{Name: fmt.Sprint("EV_", i)}, 0))
		}
		return all
	}
	for name, c := range map[string]struct {
		kinds   int
		have    []jetstream.StreamConfig
		refuses map[string]error
		made    int
		says    string
	}{
		"the last one":          {1999, nil, nil, 1, ""},
		"one more":              {2000, nil, nil, 0, "there are 2000 kinds already"},
		"one that is there":     {2000, []jetstream.StreamConfig{o.Policy.Log(kinds.Pods.Kind)}, nil, 0, ""},
		"where they are untold": {1999, nil, map[string]error{"list names": errors.New("away")}, 0, "away"},
	} {
		a := &jstest.Server{FindsStream: jstest.Having(c.have...), There: there(c.kinds), Refuses: c.refuses}
		p := &provider{direct: direct{over(a, o)}}
		_, err := p.carryOut(t.Context(), access.Watcher, access.MakeKind, order{Kind: &kinds.Pods.Kind})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || len(a.Streams) != c.made {
			t.Errorf("%s: %d streams are made, %v; want %d, %q", name, len(a.Streams), err, c.made, c.says)
		}
	}
}

// An order of a service that has reason to give it is carried out, and what is made is named.
func TestOrdersThatAreCarriedOut(t *testing.T) {
	t.Parallel()
	o := known()
	for name, c := range map[string]struct {
		user, verb string
		order      order
		does, says string
	}{
		"streams of a controller": {access.Writer, access.MakeController, order{Controller: "c"}, "create stream", ""},
		"of a writer's own":       {access.WriterCollectors, access.MakeController, order{Controller: "namespace-controller"}, "create stream", ""},
		"of one that decides":     {access.Reconciler, access.MakeController, order{Controller: "c"}, "create stream", ""},
		"a shadow":                {access.Watcher, access.MakeShadow, order{Controller: "c"}, "create stream", ""},
		"pages for ever":          {access.NotaryUser, access.MakeNotary, order{}, "create stream", ""},
		"a kind that goes":        {access.Watcher, access.ForgetKind, order{Kind: &kinds.Kind{Name: kinds.Name(strings.Repeat("a", 253))}}, "delete ", ""},
		"the writers' consumer":   {access.Writer, access.MakeConsumer, order{Consumer: &settings.Consumer{Durable: access.WriterConsumer, Stream: "TURN_c"}}, "create", "create"},
		"a reader's":              {access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Stream: "EV_pods"}}, "create", "watcher-"},
		"one that acknowledges":   {access.Reconciler, access.MakeConsumer, order{Consumer: &settings.Consumer{Stream: "EV_pods", Acks: true}}, "create", "reconcilers-"},
	} {
		a := &jstest.Server{FindsStream: jstest.Having()}
		p := &provider{direct: direct{over(a, o)}, controllers: []string{"c", "namespace-controller"}}
		p.readers = quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, nil })
		done, err := p.carryOut(t.Context(), c.user, c.verb, c.order)
		if err != nil || !slices.ContainsFunc(a.Asked, func(what string) bool { return strings.HasPrefix(what, c.does) }) || !strings.HasPrefix(done.Name, c.says) || (done.Name == "") != (c.says == "") {
			t.Errorf("%s: %v, named %q, %v", name, a.Asked, done.Name, err)
		}
		if c.user == access.Watcher && c.verb == access.MakeConsumer && p.readers.Of(c.user) != 1 {
			t.Errorf("%s: counted are %d", name, p.readers.Of(c.user))
		}
	}
	a := &jstest.Server{FindsStream: jstest.Having(), Refuses: map[string]error{"create": errors.New("no")}}
	p := &provider{direct: direct{over(a, o)}}
	p.readers = quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, nil })
	if _, err := p.carryOut(t.Context(), access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Stream: "EV_pods"}}); err == nil || p.readers.Of(access.Watcher) != 0 {
		t.Errorf("a consumer that was not created: %v, and %d are counted; want the error, and none", err, p.readers.Of(access.Watcher))
	}
	p.readers = quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, bus.ErrNoStream })
	if _, err := p.carryOut(t.Context(), access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Stream: "EV_x"}}); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("a consumer of a missing stream: %v, want ErrNoStream", err)
	}
}

// Only a writer that carries out the turns of a controller may use the durable consumer at them.
func TestWhoOwnsAConsumer(t *testing.T) {
	t.Parallel()
	const collector, workload = "namespace-controller", "deployment-controller"
	p := &provider{controllers: []string{collector, workload}}
	for user, owned := range map[string][]string{
		access.Writer: {collector, workload}, access.WriterCollectors: {collector}, access.WriterWorkloads: {workload}, access.WriterCredentials: nil, access.Reconciler: nil,
	} {
		for _, controller := range []string{collector, workload, "unknown"} {
			o := &settings.Consumer{Durable: access.WriterConsumer, Stream: subject.TurnStream(controller)}
			if got, want := p.owns(user, o), slices.Contains(owned, controller); got != want {
				t.Errorf("%s may use the consumer at the turns of %s: %t, want %t", user, controller, got, want)
			}
		}
	}
}

// A user at its bound of readers loses those that are at least five seconds old and that nothing reads;
// others keep theirs.
func TestReadersThatNothingReadsAreRemoved(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	reader := func(name string, asking int, age time.Duration) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Name: name, NumWaiting: asking, TimeStamp: now, Created: now.Add(-age)}
	}
	for name, c := range map[string]struct {
		reading int
		refuses error
		left    int
		removed int
	}{ // a user may have 128
		"few":                        {128 - 4, nil, 128 - 1, 0},
		"as many as it may":          {128 - 3, nil, 128 - 1, 1},
		"and the server has removed": {128 - 3, jetstream.ErrConsumerNotFound, 128 - 1, 1},
		"and the server is away":     {128 - 3, errors.New("away"), 128, 1},
	} {
		a := &jstest.Server{Refuses: map[string]error{"delete": c.refuses}, FindsStream: jstest.At(&jetstream.StreamInfo{})}
		a.Readers = append(a.Readers, reader("writer-1", 0, time.Hour), reader("watcher-old", 0, 5*time.Second), reader("watcher-new", 0, 5*time.Second-1), reader("watcher-asks", 1, time.Hour))
		for i := range c.reading {
			a.Readers = append(a.Readers, reader(fmt.Sprint("watcher-", i), 1, time.Hour))
		}
		p := &provider{direct: direct{over(a, Options{})}}
		names, err := p.listReaders(t.Context(), "watcher", "EV_pods")
		removed := 0
		for _, what := range a.Asked {
			removed += map[bool]int{true: 1}[what == "delete"]
		}
		if err != nil || len(names) != c.left || removed != c.removed || slices.Contains(names, "writer-1") || slices.Contains(names, "watcher-old") != (c.left != 128-1 || c.removed == 0) {
			t.Errorf("%s: %d are left, and %d removed, %v", name, len(names), removed, err)
		}
	}
	a := &jstest.Server{Refuses: map[string]error{"list consumers": errors.New("away")}, FindsStream: jstest.At(&jetstream.StreamInfo{})}
	if _, err := (&provider{direct: direct{over(a, Options{})}}).listReaders(t.Context(), "watcher", "EV_pods"); err == nil || !strings.Contains(err.Error(), "list the consumers of EV_pods: away") {
		t.Errorf("the readers of a server that is away: %v, want its error", err)
	}
}
