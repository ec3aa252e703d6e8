package stream

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/quota"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// having answers with the streams of some settings; there are no others.
func having(all ...jetstream.StreamConfig) func(context.Context, string) (*jetstream.StreamInfo, error) {
	return func(_ context.Context, name string) (*jetstream.StreamInfo, error) {
		for _, c := range all {
			if c.Name == name {
				return &jetstream.StreamInfo{Config: c, State: jetstream.StreamState{LastSeq: 7}}, nil
			}
		}
		return nil, jetstream.ErrStreamNotFound
	}
}

// known are options with their defaults.
func known(t *testing.T) Options {
	t.Helper()
	o, err := Options{URL: "a", Began: time.Unix(1000, 0)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Pages are kept for at least as long as a notary says, and no purge removes them; a stream that differs in
// anything else stays as it is.
func TestForHowLongPagesAreKept(t *testing.T) {
	t.Parallel()
	o := known(t)
	const hour = time.Hour
	for name, c := range map[string]struct {
		have, keep time.Duration
		change     func(c *jetstream.StreamConfig)
		refuses    map[string]error
		updates    []time.Duration
		says       string
	}{
		"as long":             {have: 48 * hour, keep: 48 * hour},
		"longer":              {have: 49 * hour, keep: 48 * hour},
		"not as long":         {have: 47 * hour, keep: 48 * hour, updates: []time.Duration{48 * hour}},
		"for ever":            {have: 0, keep: 48 * hour},
		"not for ever":        {have: 48 * hour, keep: 0, updates: []time.Duration{0}},
		"for ever, as wanted": {have: 0, keep: 0},
		"and may be purged":   {have: 48 * hour, keep: 48 * hour, change: func(c *jetstream.StreamConfig) { c.DenyPurge = false }, updates: []time.Duration{48 * hour}},
		"on other subjects":   {have: 48 * hour, keep: 48 * hour, change: func(c *jetstream.StreamConfig) { c.Subjects = []string{"x"} }, says: "NOTARY: [subjects is [x]"},
		"and cannot be kept":  {have: 47 * hour, keep: 48 * hour, refuses: map[string]error{"update stream": errors.New("no")}, says: "keep the notary's stream for 48h0m0s: no"},
	} {
		have := o.policy().Notary(c.have)
		if c.change != nil {
			c.change(&have)
		}
		a := &answers{stream: having(have), refuses: c.refuses}
		err := direct{a.bus(o)}.notary(t.Context(), c.keep)
		var updates []time.Duration
		for _, s := range a.streams {
			if updates = append(updates, s.MaxAge); !s.DenyPurge {
				t.Errorf("%s: it may be purged", name)
			}
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || !slices.Equal(updates, c.updates) {
			t.Errorf("%s: it is changed to %v, %v; want %v, %q", name, updates, err, c.updates, c.says)
		}
	}
	a := &answers{stream: having()}
	if err := (direct{a.bus(o)}).notary(t.Context(), hour); err != nil || len(a.streams) != 1 || a.streams[0].MaxAge != hour {
		t.Errorf("where there is none %+v is made, %v", a.streams, err)
	}
	a.refuses = map[string]error{"create stream": errors.New("no")}
	if err := (direct{a.bus(o)}).notary(t.Context(), hour); err == nil || !strings.Contains(err.Error(), "ensure the notary's stream") {
		t.Errorf("where none can be made: %v", err)
	}
}

// A kind has a log, which is made where it is missing. What an earlier version kept beside it is
// removed, and before the log where the kind is forgotten.
func TestTheStreamsOfAKind(t *testing.T) {
	t.Parallel()
	o := known(t)
	log := o.policy().Log(kinds.Pods.Kind)
	gone, no := jetstream.ErrStreamNotFound, errors.New("no")
	ensure := func(b direct) error { return b.kind(t.Context(), kinds.Pods.Kind) }
	forget := func(b direct) error { return b.forget(t.Context(), kinds.Pods.Name) }
	for name, c := range map[string]struct {
		have    []jetstream.StreamConfig
		refuses map[string]error
		do      func(b direct) error
		does    string
		says    string
	}{
		"none":                          {nil, nil, ensure, "create stream, delete STATE_pods", ""},
		"a log":                         {[]jetstream.StreamConfig{log}, nil, ensure, "delete STATE_pods", ""},
		"a log alone":                   {[]jetstream.StreamConfig{log}, map[string]error{"delete STATE_pods": gone}, ensure, "delete STATE_pods", ""},
		"a log that cannot be made":     {nil, map[string]error{"create stream": no}, ensure, "create stream", "ensure the log of pods: create stream EV_pods: no"},
		"a former stream that stays":    {[]jetstream.StreamConfig{log}, map[string]error{"delete STATE_pods": no}, ensure, "delete STATE_pods", "ensure the log of pods: delete stream STATE_pods: no"},
		"what is forgotten":             {nil, map[string]error{"delete STATE_pods": gone}, forget, "delete STATE_pods, delete EV_pods", ""},
		"what cannot be forgotten":      {nil, map[string]error{"delete EV_pods": no}, forget, "delete STATE_pods, delete EV_pods", "forget pods: delete stream EV_pods: no"},
		"what cannot go from beside it": {nil, map[string]error{"delete STATE_pods": no}, forget, "delete STATE_pods", "forget pods: delete stream STATE_pods: no"},
		"the streams of a controller":   {nil, nil, func(b direct) error { return b.controller(t.Context(), "c") }, "create stream, create stream, create stream, create stream", ""},
		"those that cannot be made":     {nil, map[string]error{"create stream": no}, func(b direct) error { return b.controller(t.Context(), "c") }, "create stream", "ensure the streams of c"},
		"the stream of a shadow":        {nil, nil, func(b direct) error { return b.shadow(t.Context(), "c") }, "create stream", ""},
		"one that cannot be made":       {nil, map[string]error{"create stream": no}, func(b direct) error { return b.shadow(t.Context(), "c") }, "create stream", "ensure the stream of the shadow of c"},
	} {
		a := &answers{stream: having(c.have...), refuses: c.refuses}
		err := c.do(direct{a.bus(o)})
		does := slices.DeleteFunc(a.asked, func(what string) bool { return what == "stream" })
		if got := strings.Join(does, ", "); got != c.does || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %s, %v; want %s, %q", name, got, err, c.does, c.says)
		}
	}
}

// As many kinds are recorded as there is room for, and those that are go on.
func TestHowManyKindsAreRecorded(t *testing.T) {
	t.Parallel()
	o := known(t)
	there := func(n int) (all []*jetstream.StreamInfo) {
		for i := range n {
			all = append(all, of(jetstream.StreamConfig{Name: fmt.Sprint("EV_", i)}, 0))
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
		"one that is there":     {2000, []jetstream.StreamConfig{o.policy().Log(kinds.Pods.Kind)}, nil, 0, ""},
		"where they are untold": {1999, nil, map[string]error{"list names": errors.New("away")}, 0, "away"},
	} {
		a := &answers{stream: having(c.have...), there: there(c.kinds), refuses: c.refuses}
		p := &provider{direct: direct{a.bus(o)}}
		_, err := p.carryOut(t.Context(), access.Watcher, access.MakeKind, order{Kind: &kinds.Pods.Kind})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || len(a.streams) != c.made {
			t.Errorf("%s: %d streams are made, %v; want %d, %q", name, len(a.streams), err, c.made, c.says)
		}
	}
}

// An order of a service that has reason to give it is carried out, and what is made is named.
func TestOrdersThatAreCarriedOut(t *testing.T) {
	t.Parallel()
	o := known(t)
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
		a := &answers{stream: having()}
		p := &provider{direct: direct{a.bus(o)}, controllers: []string{"c", "namespace-controller"}}
		p.readers = quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, nil })
		done, err := p.carryOut(t.Context(), c.user, c.verb, c.order)
		if err != nil || !slices.ContainsFunc(a.asked, func(what string) bool { return strings.HasPrefix(what, c.does) }) || !strings.HasPrefix(done.Name, c.says) || (done.Name == "") != (c.says == "") {
			t.Errorf("%s: %v, named %q, %v", name, a.asked, done.Name, err)
		}
		if c.user == access.Watcher && c.verb == access.MakeConsumer && p.readers.Of(c.user) != 1 {
			t.Errorf("%s: counted are %d", name, p.readers.Of(c.user))
		}
	}
	a := &answers{stream: having(), refuses: map[string]error{"create": errors.New("no")}}
	p := &provider{direct: direct{a.bus(o)}}
	p.readers = quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, nil })
	if _, err := p.carryOut(t.Context(), access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Stream: "EV_pods"}}); err == nil || p.readers.Of(access.Watcher) != 0 {
		t.Errorf("of one that was not made: %v, counted are %d", err, p.readers.Of(access.Watcher))
	}
	p.readers = quota.NewReaders(func(context.Context, string, string) ([]string, error) { return nil, bus.ErrNoStream })
	if _, err := p.carryOut(t.Context(), access.Watcher, access.MakeConsumer, order{Consumer: &settings.Consumer{Stream: "EV_x"}}); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("of a stream that is not there: %v", err)
	}
}
