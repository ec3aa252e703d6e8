package provision

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/internal/listing"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// known are options with the defaults of package stream.
func known() Options {
	return Options{Policy: settings.Policy{Replicas: 1, Age: 24 * time.Hour, Began: time.Unix(1000, 0)}}
}

// over creates through a connection to a server.
func over(s *jstest.Server, o Options) *Provision {
	on := s.Connected(conn.Options{})
	return New(on, listing.New(on), o)
}

// Pages are kept for at least as long as a notary says, and no purge removes them; a stream that differs in
// anything else stays as it is.
func TestForHowLongPagesAreKept(t *testing.T) {
	t.Parallel()
	o := known()
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
		have := o.Policy.Notary(c.have)
		if c.change != nil {
			c.change(&have)
		}
		a := &jstest.Server{FindsStream: jstest.Having(have), Refuses: c.refuses}
		err := direct{over(a, o)}.Notary(t.Context(), c.keep)
		var updates []time.Duration
		for _, s := range a.Streams {
			if updates = append(updates, s.MaxAge); !s.DenyPurge {
				t.Errorf("%s: the stream may be purged, want it denied", name)
			}
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || !slices.Equal(updates, c.updates) {
			t.Errorf("%s: the stream is updated to %v, %v; want %v, %q", name, updates, err, c.updates, c.says)
		}
	}
	a := &jstest.Server{FindsStream: jstest.Having()}
	if err := (direct{over(a, o)}).Notary(t.Context(), hour); err != nil || len(a.Streams) != 1 || a.Streams[0].MaxAge != hour {
		t.Errorf("where there is none %+v is made, %v", a.Streams, err)
	}
	a.Refuses = map[string]error{"create stream": errors.New("no")}
	if err := (direct{over(a, o)}).Notary(t.Context(), hour); err == nil || !strings.Contains(err.Error(), "ensure the notary's stream") {
		t.Errorf("where none can be made: %v", err)
	}
}

// A kind has a log, which is made where it is missing. What an earlier version kept beside it is
// removed, and before the log where the kind is forgotten.
func TestTheStreamsOfAKind(t *testing.T) {
	t.Parallel()
	o := known()
	log := o.Policy.Log(kinds.Pods.Kind)
	gone, no := jetstream.ErrStreamNotFound, errors.New("no")
	ensure := func(b direct) error { return b.Kind(t.Context(), kinds.Pods.Kind) }
	forget := func(b direct) error { return b.Forget(t.Context(), kinds.Pods.Name) }
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
		"the streams of a controller":   {nil, nil, func(b direct) error { return b.Controller(t.Context(), "c") }, "create stream, create stream, create stream, create stream", ""},
		"those that cannot be made":     {nil, map[string]error{"create stream": no}, func(b direct) error { return b.Controller(t.Context(), "c") }, "create stream", "ensure the streams of c"},
		"the stream of a shadow":        {nil, nil, func(b direct) error { return b.Shadow(t.Context(), "c") }, "create stream", ""},
		"one that cannot be made":       {nil, map[string]error{"create stream": no}, func(b direct) error { return b.Shadow(t.Context(), "c") }, "create stream", "ensure the stream of the shadow of c"},
	} {
		a := &jstest.Server{FindsStream: jstest.Having(c.have...), Refuses: c.refuses}
		err := c.do(direct{over(a, o)})
		does := slices.DeleteFunc(a.Asked, func(what string) bool { return what == "stream" })
		if got := strings.Join(does, ", "); got != c.does || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %s, %v; want %s, %q", name, got, err, c.does, c.says)
		}
	}
}

// Existing streams are compared, and get what this version adds. Those that differ are named and stay as
// they are; a different retention is changed.
func TestHowStreamsAreCompared(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	o := known()
	want := o.Policy.Log(kinds.Pods.Kind)
	change := func(c func(*jetstream.StreamConfig)) jetstream.StreamConfig {
		s := o.Policy.Log(kinds.Pods.Kind)
		c(&s)
		return s
	}
	for name, c := range map[string]struct {
		have    jetstream.StreamConfig
		finds   error
		asks    bool
		refuses map[string]error
		there   bool
		updates int
		says    string // of an error
	}{
		"as it should be":                          {have: want, there: true},
		"missing":                                  {finds: jetstream.ErrStreamNotFound},
		"of a server that is off":                  {finds: errors.New("away"), says: "away"},
		"of other subjects":                        {have: change(func(c *jetstream.StreamConfig) { c.Subjects = []string{"x"} }), says: "EV_pods: subjects is [x]"},
		"that may be purged":                       {have: change(func(c *jetstream.StreamConfig) { c.DenyPurge = false }), there: true, updates: 1},
		"without batches":                          {have: change(func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false }), there: true, updates: 1},
		"that may be purged, sealed":               {have: change(func(c *jetstream.StreamConfig) { c.DenyPurge, c.Sealed = false, true }), says: "EV_pods: sealed is true"},
		"that may be purged, and another makes it": {have: change(func(c *jetstream.StreamConfig) { c.DenyPurge = false }), asks: true, there: true},
		"that cannot be changed":                   {have: change(func(c *jetstream.StreamConfig) { c.DenyPurge = false }), refuses: map[string]error{"update stream": errors.New("no")}, says: "upgrade the settings of stream EV_pods"},
		"kept for less":                            {have: change(func(c *jetstream.StreamConfig) { c.MaxAge, c.Metadata["millrace.kept-since"] = time.Hour, "" }), there: true, updates: 1},
		"kept for less, lately":                    {have: change(func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }), there: true},
		"kept for less, for good":                  {have: change(func(c *jetstream.StreamConfig) { c.MaxAge, c.Metadata["millrace.kept-since"] = time.Hour, "" }), refuses: map[string]error{"update stream": errors.New("no")}, says: "change how much is kept of stream EV_pods"},
	} {
		a := &jstest.Server{Refuses: c.refuses, FindsStream: func(context.Context, string) (*jetstream.StreamInfo, error) {
			return &jetstream.StreamInfo{Config: c.have}, c.finds
		}}
		b := over(a, o)
		b.Asks = c.asks
		there, err := b.compare(t.Context(), want)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || len(a.Streams) != c.updates || err == nil && !slices.Equal(there, []bool{c.there}) {
			t.Errorf("one %s: there: %v, changed to %+v, %v; want %q", name, there, a.Streams, err, c.says)
		}
		if strings.HasPrefix(c.says, "EV_pods: ") && !errors.Is(err, bus.ErrSettings) {
			t.Errorf("one %s: %v", name, err)
		}
		if c.updates > 0 && len(settings.Differences(a.Streams[0], want)) > 0 || c.updates > 0 && name == "kept for less" && a.Streams[0].Metadata["millrace.kept-since"] != began.UTC().Format(time.RFC3339Nano) {
			t.Errorf("one %s is changed to %+v", name, a.Streams[0])
		}
	}
}

// Missing streams are created; a stream that another process created first is compared.
func TestHowStreamsAreMade(t *testing.T) {
	t.Parallel()
	o := known()
	log, turns := o.Policy.Log(kinds.Pods.Kind), o.Policy.Turns("c")
	taken := map[string]error{"create stream": jetstream.ErrStreamNameAlreadyInUse}
	for name, c := range map[string]struct {
		there   []bool
		refuses map[string]error
		have    jetstream.StreamConfig
		made    []string
		says    string
	}{
		"both":                 {[]bool{false, false}, nil, log, []string{"EV_pods", "TURN_c"}, ""},
		"one":                  {[]bool{true, false}, nil, log, []string{"TURN_c"}, ""},
		"none":                 {[]bool{true, true}, nil, log, nil, ""},
		"another was quicker":  {[]bool{false, true}, taken, log, nil, ""},
		"and has made another": {[]bool{false, true}, taken, turns, nil, "create stream EV_pods"},
		"it could not be made": {[]bool{false, true}, map[string]error{"create stream": errors.New("no")}, log, nil, "create stream EV_pods: no"},
	} {
		a := &jstest.Server{Refuses: c.refuses, FindsStream: jstest.At(&jetstream.StreamInfo{Config: c.have})}
		err := direct{over(a, o)}.create(t.Context(), c.there, log, turns)
		var made []string
		for _, s := range a.Streams {
			made = append(made, s.Name)
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || !slices.Equal(made, c.made) {
			t.Errorf("%s: made are %v, %v; want %v, %q", name, made, err, c.made, c.says)
		}
	}
}

// A consumer is created, unless one with the wanted settings exists. A replacement deletes the old one
// first; an update leaves the position as it is.
func TestHowAConsumerIsMade(t *testing.T) {
	t.Parallel()
	away, exists := errors.New("away"), map[string]error{"create": jetstream.ErrConsumerExists}
	several := settings.Consumer{Stream: "TURN_c", Durable: "writer", AckWait: time.Second, MaxPending: 7}
	change := func(c func(o *settings.Consumer)) settings.Consumer {
		o := several
		c(&o)
		return o
	}
	remake, update := change(func(o *settings.Consumer) { o.Remake = true }), change(func(o *settings.Consumer) { o.Update = true })
	other := several.Config()
	other.AckWait++
	for name, c := range map[string]struct {
		order   settings.Consumer
		refuses map[string]error
		have    jetstream.ConsumerConfig
		finds   error
		asked   string
		err     error
	}{
		"made":                        {several, nil, several.Config(), nil, "create", nil},
		"there, and as it should be":  {several, exists, several.Config(), nil, "create find", nil},
		"there, and another":          {several, exists, other, nil, "create find", jetstream.ErrConsumerExists},
		"there, and gone":             {several, exists, several.Config(), away, "create find", jetstream.ErrConsumerExists},
		"a reader's that is there":    {settings.Consumer{Stream: "TURN_c"}.Named("r"), exists, several.Config(), nil, "create", jetstream.ErrConsumerExists},
		"not made":                    {several, map[string]error{"create": away}, several.Config(), nil, "create", away},
		"replaced":                    {remake, nil, several.Config(), nil, "delete create", nil},
		"replaced, and was not there": {remake, map[string]error{"delete": jetstream.ErrConsumerNotFound}, several.Config(), nil, "delete create", nil},
		"not removed":                 {remake, map[string]error{"delete": away}, several.Config(), nil, "delete", away},
		"changed":                     {update, nil, jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 9}, nil, "find update", nil},
		"changed, and is not there":   {update, nil, several.Config(), away, "find", away},
	} {
		a := &jstest.Server{Refuses: c.refuses, FindsConsumer: func() (*jetstream.ConsumerInfo, error) { return &jetstream.ConsumerInfo{Config: c.have}, c.finds }}
		got, err := direct{over(a, Options{})}.Consumer(t.Context(), c.order)
		if asked := strings.Join(a.Asked, " "); asked != c.asked || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || err == nil && got == nil {
			t.Errorf("%s: the server is asked for %s, %v; want %s", name, asked, err, c.asked)
		}
		if c.order.Update && len(a.Made) > 0 && (a.Made[0].DeliverPolicy != jetstream.DeliverByStartSequencePolicy || a.Made[0].OptStartSeq != 9 || a.Made[0].AckWait != time.Second) {
			t.Errorf("%s: the consumer is updated to %+v, want it to begin at 9 still, with the new ack wait", name, a.Made[0])
		}
	}
	a := &jstest.Server{}
	for name, o := range map[string]settings.Consumer{"reader-": {Acks: true}, "r": settings.Consumer{Acks: true}.Named("r"), "": {}} {
		a.Made = nil
		if _, err := (direct{over(a, Options{})}).Consumer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got := a.Made[0].Durable + a.Made[0].Name; !strings.HasPrefix(got, name) || (len(got) > 7) != (name == "reader-") {
			t.Errorf("the consumer of %+v is called %q", o, got)
		}
	}
}

// Of how much is kept of a stream, the process that began last has the word; where a provisioner says it, no service.
func TestWhoSaysHowMuchIsKept(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	o := Options{Policy: settings.Policy{
		Replicas: 1, Age: time.Hour, Bytes: 7, Began: began,
		Retention: map[string]bus.Retention{"pods": {Age: time.Minute}, "nodes": {Bytes: 9}, "c": {Age: time.Second, Bytes: 1}},
	}}
	turns := o.Policy.Turns("c")
	for name, c := range map[string]struct {
		asks    bool
		age     time.Duration
		since   string
		resizes bool
	}{
		"the same":              {false, time.Second, "", false},
		"one that began before": {false, time.Hour, began.Add(-1).UTC().Format(time.RFC3339Nano), true},
		"one that began then":   {false, time.Hour, began.UTC().Format(time.RFC3339Nano), false},
		"one that began later":  {false, time.Hour, began.Add(1).UTC().Format(time.RFC3339Nano), false},
		"an operator":           {false, time.Hour, "", true},
		"where another says it": {true, time.Hour, "", false},
	} {
		have := o.Policy.Turns("c")
		have.MaxAge, have.Metadata = c.age, map[string]string{}
		if c.since != "" {
			have.Metadata["millrace.kept-since"] = c.since
		}
		b := over(&jstest.Server{}, o)
		b.Asks = c.asks
		if got := b.resizes(have, turns); got != c.resizes {
			t.Errorf("%s: the stream is resized: %t, want %t", name, got, c.resizes)
		}
		if b.resizes(jetstream.StreamConfig{}, o.Policy.Wakes()) {
			t.Error("wakes are kept otherwise")
		}
	}
}
