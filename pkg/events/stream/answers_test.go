package stream

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// answers is a server that answers as a test says.
type answers struct {
	jetstream.JetStream
	stream   func(ctx context.Context, name string) (*jetstream.StreamInfo, error)
	consumer func() (*jetstream.ConsumerInfo, error) // as it is found
	refuses  map[string]error                        // by what is asked for
	there    []*jetstream.StreamInfo                 // what it lists
	readers  []*jetstream.ConsumerInfo               // of every stream

	asked   []string // in order
	made    []jetstream.ConsumerConfig
	streams []jetstream.StreamConfig // made or changed
}

func (a *answers) note(what string) error {
	a.asked = append(a.asked, what)
	return a.refuses[what]
}

func (a *answers) Stream(ctx context.Context, name string) (jetstream.Stream, error) {
	_ = a.note("stream")
	info, err := a.stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return crowded{kept{info: info}, a}, nil
}

// crowded is a stream with its consumers.
type crowded struct {
	kept
	by *answers
}

func (c crowded) ListConsumers(context.Context) jetstream.ConsumerInfoLister {
	return consumers{list[*jetstream.ConsumerInfo]{c.by.readers, c.by.note("list consumers")}}
}

func (a *answers) ListStreams(context.Context, ...jetstream.StreamListOpt) jetstream.StreamInfoLister {
	return infos{list[*jetstream.StreamInfo]{a.there, a.note("list streams")}}
}

func (a *answers) StreamNames(context.Context, ...jetstream.StreamListOpt) jetstream.StreamNameLister {
	names := words{list[string]{err: a.note("list names")}}
	for _, info := range a.there {
		names.all = append(names.all, info.Config.Name)
	}
	return names
}

func (a *answers) CreateStream(_ context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if err := a.note("create stream"); err != nil {
		return nil, err
	}
	a.streams = append(a.streams, c)
	return kept{info: &jetstream.StreamInfo{Config: c}}, nil
}

func (a *answers) DeleteStream(_ context.Context, name string) error { return a.note("delete " + name) }

func (a *answers) UpdateStream(_ context.Context, c jetstream.StreamConfig) (jetstream.Stream, error) {
	if err := a.note("update stream"); err != nil {
		return nil, err
	}
	a.streams = append(a.streams, c)
	return kept{info: &jetstream.StreamInfo{Config: c}}, nil
}

func (a *answers) Consumer(context.Context, string, string) (jetstream.Consumer, error) {
	_ = a.note("find")
	info, err := a.consumer()
	if err != nil {
		return nil, err
	}
	return described{info: info}, nil
}

func (a *answers) CreateConsumer(_ context.Context, _ string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return a.make("create", c)
}

func (a *answers) UpdateConsumer(_ context.Context, _ string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	return a.make("update", c)
}

func (a *answers) make(what string, c jetstream.ConsumerConfig) (jetstream.Consumer, error) {
	if err := a.note(what); err != nil {
		return nil, err
	}
	a.made = append(a.made, c)
	return described{info: &jetstream.ConsumerInfo{Name: what, Config: c}}, nil
}

func (a *answers) DeleteConsumer(context.Context, string, string) error { return a.note("delete") }

// described is a consumer as it is found.
type described struct {
	jetstream.Consumer
	info *jetstream.ConsumerInfo
}

func (d described) CachedInfo() *jetstream.ConsumerInfo { return d.info }

// bus is one on such a server.
func (a *answers) bus(o Options) *Bus {
	o.Timeout, o.Log = max(o.Timeout, time.Second), slog.New(slog.DiscardHandler)
	b := &Bus{options: o, js: a, stats: newStats(), closed: make(chan struct{}), mayHaveMissed: make(chan struct{}), waiting: map[*requestGuard]struct{}{}}
	b.make = direct{b}
	return b
}

// standingAt answers with a stream as it is.
func standingAt(info *jetstream.StreamInfo) func(context.Context, string) (*jetstream.StreamInfo, error) {
	return func(context.Context, string) (*jetstream.StreamInfo, error) { return info, nil }
}

// Only the answer of a stream's leader counts, which lists the other replicas and not itself.
func TestWhoAnswersForAStream(t *testing.T) {
	t.Parallel()
	of := func(leader string, others ...string) *jetstream.ClusterInfo {
		c := &jetstream.ClusterInfo{Leader: leader}
		for _, name := range others {
			c.Replicas = append(c.Replicas, &jetstream.PeerInfo{Name: name})
		}
		return c
	}
	for name, c := range map[string]struct {
		copies  int
		cluster *jetstream.ClusterInfo
		led     bool
	}{
		"one that stands alone":      {1, nil, true},
		"one that has the only copy": {1, of(""), true},
		"one that says nothing":      {3, nil, true},
		"the leader":                 {3, of("a", "b", "c"), true},
		"another one":                {3, of("a", "a", "c"), false},
		"one without a leader":       {3, of("", "b", "c"), false},
		"one that knows no others":   {3, of("a"), false},
	} {
		a := &answers{stream: standingAt(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: c.copies}, Cluster: c.cluster})}
		if _, err := a.bus(Options{}).led(t.Context(), "TURN_c"); (err == nil) != c.led || err != nil && !errors.Is(err, natserr.ErrNotLed) {
			t.Errorf("%s answers: %v", name, err)
		}
	}
}

// handle asks again for a stream that no server answers for, until the request's deadline; it does not ask
// again for a missing one.
func TestHowLongAStreamIsAskedFor(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context, _ string) (*jetstream.StreamInfo, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	leaderless := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}, Cluster: &jetstream.ClusterInfo{}}
	for name, c := range map[string]struct {
		stream  func(context.Context, string) (*jetstream.StreamInfo, error)
		timeout time.Duration
		within  time.Duration // of the context; 0: it has none
		err     error
		asked   int
		took    time.Duration
	}{
		"there":                {standingAt(&jetstream.StreamInfo{}), 5 * time.Second, 0, nil, 1, 0},
		"not there":            {func(context.Context, string) (*jetstream.StreamInfo, error) { return nil, jetstream.ErrStreamNotFound }, 5 * time.Second, 0, bus.ErrNoStream, 1, 0},
		"no answer":            {hangs, 5 * time.Second, 0, context.DeadlineExceeded, 3, 6 * time.Second},
		"no answer, and hurry": {hangs, time.Second, 0, context.DeadlineExceeded, 2, 2 * time.Second},
		"no answer in time":    {hangs, 5 * time.Second, 500 * time.Millisecond, context.DeadlineExceeded, 1, 500 * time.Millisecond},
		"more time than usual": {hangs, 5 * time.Second, 7 * time.Second, context.DeadlineExceeded, 4, 7 * time.Second},
		"no leader":            {standingAt(leaderless), time.Second, 0, natserr.ErrNotLed, 51, 1020 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, ctx, began := &answers{stream: c.stream}, t.Context(), time.Now()
			if c.within > 0 {
				var done context.CancelFunc
				ctx, done = context.WithTimeout(ctx, c.within)
				defer done()
			}
			if _, err := a.bus(Options{Timeout: c.timeout}).handle(ctx, "TURN_c"); !errors.Is(err, c.err) || len(a.asked) != c.asked || time.Since(began) != c.took {
				t.Errorf("%s: asked for %d times in %v, %v; want %d in %v", name, len(a.asked), time.Since(began), err, c.asked, c.took)
			}
		})
	}
}

// A consumer that seems to be beyond the end of its stream in two checks, a second apart, has lost its
// position: in a single check two servers may have answered.
func TestWhenAConsumerStandsBeyondItsStream(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		delivered func(look int) (uint64, error)
		took      time.Duration // until it is told; 0: it is not
		looks     int           // in 20.5 s, usually every 5 s
	}{
		"at its end":         {func(int) (uint64, error) { return 7, nil }, 0, 5},
		"beyond it":          {func(int) (uint64, error) { return 8, nil }, time.Second, 2},
		"beyond it, at once": {func(look int) (uint64, error) { return map[bool]uint64{true: 8}[look == 1], nil }, 0, 5},
		"beyond it, later":   {func(look int) (uint64, error) { return map[bool]uint64{true: 8}[look > 2], nil }, 11 * time.Second, 4},
		"no answer between": {func(look int) (uint64, error) {
			if look%2 == 0 {
				return 0, errors.New("away")
			}
			return 8, nil
		}, 0, 8},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, looks, began := &answers{stream: standingAt(&jetstream.StreamInfo{State: jetstream.StreamState{LastSeq: 7}})}, 0, time.Now()
			a.consumer = func() (*jetstream.ConsumerInfo, error) {
				looks++
				n, err := c.delivered(looks)
				return &jetstream.ConsumerInfo{Delivered: jetstream.SequenceInfo{Stream: n}}, err
			}
			ctx, done := context.WithTimeout(t.Context(), 20500*time.Millisecond)
			defer done()
			broken := make(chan error, 1)
			w := &worker{bus: a.bus(Options{}), work: bus.Work{Stream: "TURN_c", Durable: "writer"}}
			w.watchPosition(ctx, broken, 5*time.Second)
			took := time.Since(began)
			select {
			case err := <-broken:
				if c.took == 0 || took != c.took || !errors.Is(err, errPositionLost) {
					t.Errorf("%s: after %v it is told %v, want after %v", name, took, err, c.took)
				}
			default:
				if c.took > 0 {
					t.Errorf("%s: it is not told", name)
				}
			}
			if looks != c.looks {
				t.Errorf("%s: it is looked at %d times, want %d", name, looks, c.looks)
			}
		})
	}
}

// orders is a maker that records the orders.
type orders struct {
	maker
	all []settings.Consumer
}

func (o *orders) consumer(_ context.Context, order settings.Consumer) (jetstream.Consumer, error) {
	o.all = append(o.all, order)
	return described{}, nil
}

// A worker uses an existing consumer, has different settings updated, and has a consumer recreated that is
// missing or has lost its position, unless another worker has done so.
func TestWhichConsumerAWorkerTakes(t *testing.T) {
	t.Parallel()
	made, away := time.Unix(100, 0), errors.New("away")
	work := bus.Work{Stream: "TURN_c", Durable: "writer", AckWait: time.Minute}
	like := (&worker{work: work}).order().Config()
	other := like
	other.AckWait = time.Hour
	for name, c := range map[string]struct {
		positionLost   bool
		created        time.Time
		config         jetstream.ConsumerConfig
		finds          error
		asks           bool
		update, remake bool
		err            error
	}{
		"as it should be":                     {false, made, like, nil, false, false, false, nil},
		"another":                             {false, made, other, nil, true, true, false, nil},
		"missing":                             {false, made, like, jetstream.ErrConsumerNotFound, true, false, false, nil},
		"of a server that is off":             {false, made, like, away, false, false, false, away},
		"its position is lost":                {true, made, like, nil, true, false, true, nil},
		"its position is lost, and made anew": {true, made.Add(1), like, nil, false, false, false, nil},
	} {
		a, by := &answers{}, &orders{}
		a.consumer = func() (*jetstream.ConsumerInfo, error) {
			return &jetstream.ConsumerInfo{Created: c.created, Config: c.config}, c.finds
		}
		b := a.bus(Options{})
		b.make = by
		_, err := (&worker{bus: b, work: work, made: made, positionLost: c.positionLost}).durable(t.Context())
		if !errors.Is(err, c.err) || len(by.all) != map[bool]int{true: 1}[c.asks] {
			t.Errorf("%s: ordered is %+v, %v", name, by.all, err)
			continue
		}
		if c.asks && (by.all[0].Update != c.update || by.all[0].Remake != c.remake || by.all[0].Durable != "writer") {
			t.Errorf("%s: ordered is %+v", name, by.all[0])
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
		a := &answers{refuses: c.refuses, consumer: func() (*jetstream.ConsumerInfo, error) { return &jetstream.ConsumerInfo{Config: c.have}, c.finds }}
		got, err := direct{a.bus(Options{})}.consumer(t.Context(), c.order)
		if asked := strings.Join(a.asked, " "); asked != c.asked || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) || err == nil && got == nil {
			t.Errorf("%s: %s, %v, want %s", name, asked, err, c.asked)
		}
		if c.order.Update && len(a.made) > 0 && (a.made[0].DeliverPolicy != jetstream.DeliverByStartSequencePolicy || a.made[0].OptStartSeq != 9 || a.made[0].AckWait != time.Second) {
			t.Errorf("%s: it is changed to %+v", name, a.made[0])
		}
	}
	a := &answers{}
	for name, o := range map[string]settings.Consumer{"reader-": {Acks: true}, "r": settings.Consumer{Acks: true}.Named("r"), "": {}} {
		a.made = nil
		if _, err := (direct{a.bus(Options{})}).consumer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		if got := a.made[0].Durable + a.made[0].Name; !strings.HasPrefix(got, name) || (len(got) > 7) != (name == "reader-") {
			t.Errorf("the consumer of %+v is called %q", o, got)
		}
	}
}

// Existing streams are compared, and get what this version adds. Those that differ are named and stay as
// they are; a different retention is changed.
func TestHowStreamsAreCompared(t *testing.T) {
	t.Parallel()
	began := time.Unix(1000, 0)
	o, err := Options{URL: "a", Began: began}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	want := o.policy().Log(kinds.Pods.Kind)
	change := func(c func(*jetstream.StreamConfig)) jetstream.StreamConfig {
		s := o.policy().Log(kinds.Pods.Kind)
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
		a := &answers{refuses: c.refuses, stream: func(context.Context, string) (*jetstream.StreamInfo, error) {
			return &jetstream.StreamInfo{Config: c.have}, c.finds
		}}
		b := a.bus(o)
		b.options.orders = c.asks
		there, err := b.compare(t.Context(), want)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || len(a.streams) != c.updates || err == nil && !slices.Equal(there, []bool{c.there}) {
			t.Errorf("one %s: there: %v, changed to %+v, %v; want %q", name, there, a.streams, err, c.says)
		}
		if strings.HasPrefix(c.says, "EV_pods: ") && !errors.Is(err, bus.ErrSettings) {
			t.Errorf("one %s: %v", name, err)
		}
		if c.updates > 0 && len(settings.Differences(a.streams[0], want)) > 0 || c.updates > 0 && name == "kept for less" && a.streams[0].Metadata["millrace.kept-since"] != began.UTC().Format(time.RFC3339Nano) {
			t.Errorf("one %s is changed to %+v", name, a.streams[0])
		}
	}
}

// Missing streams are created; a stream that another process created first is compared.
func TestHowStreamsAreMade(t *testing.T) {
	t.Parallel()
	o, err := Options{URL: "a"}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	log, turns := o.policy().Log(kinds.Pods.Kind), o.policy().Turns("c")
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
		a := &answers{refuses: c.refuses, stream: standingAt(&jetstream.StreamInfo{Config: c.have})}
		err := direct{a.bus(o)}.create(t.Context(), c.there, log, turns)
		var made []string
		for _, s := range a.streams {
			made = append(made, s.Name)
		}
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || !slices.Equal(made, c.made) {
			t.Errorf("%s: made are %v, %v; want %v, %q", name, made, err, c.made, c.says)
		}
	}
}

// list is what a server lists, to its end or until it fails.
type list[T any] struct {
	all []T
	err error
}

func (l list[T]) each() <-chan T {
	out := make(chan T, len(l.all))
	for _, item := range l.all {
		out <- item
	}
	close(out)
	return out
}

func (l list[T]) Err() error { return l.err }

// infos, words and consumers are lists in the form of the client library.
type (
	infos     struct{ list[*jetstream.StreamInfo] }
	words     struct{ list[string] }
	consumers struct{ list[*jetstream.ConsumerInfo] }
)

func (l infos) Info() <-chan *jetstream.StreamInfo       { return l.each() }
func (l words) Name() <-chan string                      { return l.each() }
func (l consumers) Info() <-chan *jetstream.ConsumerInfo { return l.each() }
