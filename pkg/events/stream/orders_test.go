package stream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/delivery"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
	"github.com/millrace/millrace/pkg/events/stream/settings"
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
		t.Errorf("what was done is told as %v", err)
	}
}

// That no provisioner answered counts until one does.
func TestWhetherThereIsAProvisioner(t *testing.T) {
	t.Parallel()
	b := &Bus{}
	b.noteProvisioner(fmt.Errorf("ask: %w", nats.ErrNoResponders))
	if b.noProvisionerSince.IsZero() || time.Since(b.noProvisionerSince) > time.Minute {
		t.Errorf("where none answers there is none since %v", b.noProvisionerSince)
	}
	for _, err := range []error{nil, nats.ErrTimeout} {
		b.noProvisionerSince = time.Now()
		if b.noteProvisioner(err); !b.noProvisionerSince.IsZero() {
			t.Errorf("after %v there is none since %v", err, b.noProvisionerSince)
		}
	}
}

// A delivery that is older than its consumer may have been delivered by an earlier one; an old
// one, far from the end, that was dealt with shows that the consumer goes through its history.
func TestWhatShowsAHistory(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		since    time.Duration
		attempt  int
		made     time.Time // the consumer
		stored   time.Time // the message
		pending  uint64
		asked    time.Time
		known    func() bool
		want     bool
		attempts int
	}{
		"new":                           {time.Hour, 1, now.Add(-time.Minute), now, 5000, time.Time{}, nil, false, 1},
		"old, far behind":               {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, true, 1},
		"older than the consumer":       {time.Hour, 1, now.Add(-time.Minute), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, true, 2},
		"old, with few behind it":       {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1000, time.Time{}, nil, false, 1},
		"not so old":                    {3 * time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, false, 1},
		"asked just now":                {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, now, nil, false, 1},
		"asked a while ago":             {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, now.Add(-2 * time.Second), nil, true, 1},
		"known":                         {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, func() bool { return true }, true, 1},
		"not dealt with":                {time.Hour, 1, now.Add(-3 * time.Hour), now.Add(-2 * time.Hour), 1001, time.Time{}, func() bool { return false }, false, 1},
		"again":                         {time.Hour, 2, now.Add(-time.Minute), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, false, 2},
		"of a consumer without a bound": {0, 1, now.Add(-time.Minute), now.Add(-2 * time.Hour), 1001, time.Time{}, nil, false, 1},
	} {
		w := &worker{work: bus.Work{Since: c.since}, made: c.made, asked: c.asked}
		if c.known != nil {
			w.work.Known = func(events.Message) bool { return c.known() }
		}
		p := delivery.Position{Attempt: c.attempt, Time: c.stored, Pending: c.pending}
		if got := w.isRedeliveringHistory(blankMsg{}, &p); got != c.want || p.Attempt != c.attempts {
			t.Errorf("%s: it is a history: %t, attempt %d", name, got, p.Attempt)
		}
	}
}

// blankMsg is a delivery of nothing.
type blankMsg struct{ jetstream.Msg }

func (blankMsg) Subject() string      { return "" }
func (blankMsg) Headers() nats.Header { return nil }
func (blankMsg) Data() []byte         { return nil }

// do refuses an order that no service has reason to give before it asks the server.
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

// noted is a delivery that knows how it was answered.
type noted struct {
	blankMsg
	said *[]string
}

func (s noted) note(text string) error             { *s.said = append(*s.said, text); return nil }
func (s noted) Ack() error                         { return s.note("done") }
func (s noted) Nak() error                         { return s.note("again") }
func (s noted) NakWithDelay(d time.Duration) error { return s.note(fmt.Sprint("again in ", d)) }
func (s noted) InProgress() error                  { return s.note("working") }
func (s noted) TermWithReason(r string) error      { return s.note("term: " + r) }

// A delivery is answered with what its worker says, in a line; it comes again within a minute.
func TestHowADeliveryIsAnswered(t *testing.T) {
	t.Parallel()
	var said []string
	d := &workDelivery{wire: noted{said: &said}, stream: "TURN_c", place: delivery.Position{Attempt: 3, Sequence: 7, Time: time.Unix(7, 0)}}
	d.Ack()
	d.InProgress()
	for _, delay := range []time.Duration{-1, 0, 1, time.Minute, time.Minute + 1} {
		d.NakWithDelay(delay)
	}
	d.Term(" it is\r\n no  use")
	want := []string{"done", "working", "again", "again", "again in 1ns", "again in 1m0s", "again in 1m0s", "term: it is no use"}
	if !slices.Equal(said, want) {
		t.Errorf("it is answered %q, want %q", said, want)
	}
	if m := d.Message(); d.Attempt() != 3 || m.Sequence != 7 || m.Stream != "TURN_c" || !m.Time.Equal(time.Unix(7, 0)) {
		t.Errorf("it is %+v, at attempt %d", m, d.Attempt())
	}
}

// What a worker leaves open has a default; its rank is one that there is.
func TestWhatAWorkerAsksFor(t *testing.T) {
	t.Parallel()
	for rank, want := range map[int]uint8{-1: 0, 0: 0, 1: 1, bus.LastRank: bus.LastRank, bus.LastRank + 1: bus.LastRank, 1 << 20: bus.LastRank} {
		if got := (&worker{work: bus.Work{Rank: rank}}).rank(); got != want {
			t.Errorf("rank %d is asked for as %d, want %d", rank, got, want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			work  bus.Work
			wait  time.Duration
			most  int
			since bool
		}{
			"nothing":    {bus.Work{}, 30 * time.Second, 5000, false},
			"everything": {bus.Work{AckWait: time.Second, MaxPending: 7, Since: time.Hour}, time.Second, 7, true},
		} {
			c.work.Stream, c.work.Durable = "TURN_c", "writer"
			o := (&worker{work: c.work}).order()
			if o.Stream != "TURN_c" || o.Durable != "writer" || o.AckWait != c.wait || o.MaxPending != c.most || (o.Since != nil) != c.since || c.since && !o.Since.Equal(time.Now().Add(-time.Hour)) {
				t.Errorf("of one who says %s it is %+v", name, o)
			}
		}
	})
	for name, c := range map[string]struct {
		policy jetstream.AckPolicy
		asking int
		want   bool
	}{"one that has ended": {jetstream.AckAllPolicy, 0, true}, "one that reads": {jetstream.AckAllPolicy, 1, false}, "of several": {jetstream.AckExplicitPolicy, 0, false}, "that does not acknowledge": {jetstream.AckNonePolicy, 0, false}} {
		if got := hasEndedReader(&jetstream.ConsumerInfo{Config: jetstream.ConsumerConfig{AckPolicy: c.policy}, NumWaiting: c.asking}); got != c.want {
			t.Errorf("the consumer of %s has ended: %t", name, got)
		}
	}
}
