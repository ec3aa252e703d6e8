package listing

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestForHowLongAListingIsBelieved: a listing is valid for a minute, for the same streams, and until this
// connection has reason to believe that they were recreated.
func TestForHowLongAListingIsBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l cache
		logs, found := []string{"EV_pods"}, []kinds.Kind{kinds.Pods.Kind}
		expect := func(when string, known, same bool) {
			t.Helper()
			if got, _ := l.due(); got != known {
				t.Errorf("%s the list is known: %t, want %t", when, got, known)
			}
			if all, got := l.of(logs); got != same || same && len(all) != 1 {
				t.Errorf("%s the kinds are %v, %t", when, all, got)
			}
		}
		expect("before there is one", false, false)
		_, drops := l.due()
		l.keep(time.Now(), drops, logs, found)
		expect("at first", true, true)
		if _, same := l.of([]string{"EV_nodes", "EV_pods"}); same {
			t.Error("the list is taken for that of other streams")
		}
		time.Sleep(time.Minute - 1) // of virtual time
		expect("within a minute", true, true)
		time.Sleep(1)
		expect("after a minute", false, true)
		_, drops = l.due()
		begun := time.Now()
		l.drop() // while it is made anew
		l.keep(begun, drops, logs, found)
		expect("when it was overtaken", false, false)
		_, drops = l.due()
		l.keep(begun, drops, logs, found)
		expect("when it was made again", true, true)
		found[0].Name = "other"
		if all, _ := l.of(logs); all[0].Name != "pods" {
			t.Errorf("a change of the list that was kept shows in it: %v", all)
		}
	})
}

// The kinds are those whose logs there are, by name. Their settings are asked for where the names of the logs
// are others than they were, or a minute has passed; else the names alone.
func TestWhenLogsAreDescribed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := func(kind kinds.Kind) *jetstream.StreamInfo {
			return jstest.Of(jetstream.StreamConfig{Name: subject.LogStream(kind.Name), Metadata: settings.Policy{}.Log(kind).Metadata}, 0)
		}
		pods, nodes := log(kinds.Pods.Kind), log(kinds.Nodes.Kind)
		stranger, former := jstest.Of(jetstream.StreamConfig{Name: "OTHER"}, 0), jstest.Of(jetstream.StreamConfig{Name: "STATE_pods", Metadata: settings.Policy{}.Log(kinds.Pods.Kind).Metadata}, 0)
		a := &jstest.Server{Refuses: map[string]error{}, There: []*jetstream.StreamInfo{stranger, former, pods}}
		b := New(a.Connected(conn.Options{}))
		expect := func(when, asked, want string) {
			t.Helper()
			a.Asked = nil
			var names []string
			found, err := b.Kinds(t.Context())
			for _, k := range found {
				names = append(names, string(k.Name))
			}
			if got := strings.Join(names, " "); err != nil || got != want || strings.Join(a.Asked, ", ") != asked {
				t.Errorf("%s the kinds are %q, %v, and asked was %q; want %q and %q", when, got, err, a.Asked, want, asked)
			}
		}
		expect("at first", "list streams", "pods")
		expect("again", "list names", "pods")
		a.There = []*jetstream.StreamInfo{pods, nodes, stranger, former}
		expect("with another", "list names, list streams", "nodes pods")
		time.Sleep(time.Minute) // of virtual time
		expect("after a minute", "list streams", "nodes pods")
		for _, of := range []string{"list names", "list streams"} {
			away := errors.New("away")
			a.Refuses = map[string]error{of: away}
			if of == "list streams" {
				b.Drop()
			}
			if _, err := b.Kinds(t.Context()); !errors.Is(err, away) || !strings.Contains(err.Error(), "list streams") {
				t.Errorf("where it cannot %s: %v", of, err)
			}
		}
		a.Refuses, a.There = nil, []*jetstream.StreamInfo{jstest.Of(jetstream.StreamConfig{Name: "EV_x", Metadata: map[string]string{"millrace.kind": "{"}}, 0)}
		if _, err := b.Kinds(t.Context()); err == nil || !strings.Contains(err.Error(), "stream EV_x") {
			t.Errorf("the kinds with a log whose kind cannot be read: %v, want an error that names the stream", err)
		}
	})
}

// Controllers and shadows are those of whom there are streams.
func TestWhoseStreamsThereAre(t *testing.T) {
	t.Parallel()
	a := &jstest.Server{Refuses: map[string]error{}}
	for _, name := range []string{"TURN_b", "TURN_a", "OUTCOME_a", "SHADOW_c", "OTHER"} {
		a.There = append(a.There, jstest.Of(jetstream.StreamConfig{Name: name}, 0))
	}
	b := New(a.Connected(conn.Options{}))
	if got, err := b.Controllers(t.Context()); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the controllers are %v, %v", got, err)
	}
	if got, err := b.Shadows(t.Context()); err != nil || !slices.Equal(got, []string{"c"}) {
		t.Errorf("the shadows are %v, %v", got, err)
	}
	a.Refuses["list names"] = errors.New("away")
	if _, err := b.Controllers(t.Context()); err == nil || !strings.Contains(err.Error(), "list streams: away") {
		t.Errorf("the controllers of a server that is away: %v, want its error", err)
	}
}

// Consumers lists durable consumers, and Left says how far all ended readers had got.
func TestConsumersOfAStream(t *testing.T) {
	t.Parallel()
	last := time.Unix(7, 0)
	reader := func(name string, floor, start uint64, asking int) *jetstream.ConsumerInfo {
		c := jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckAllPolicy, OptStartSeq: start}
		return &jetstream.ConsumerInfo{Name: name, Config: c, AckFloor: jetstream.SequenceInfo{Stream: floor}, NumWaiting: asking}
	}
	worker := &jetstream.ConsumerInfo{
		Name: "writer", Config: jetstream.ConsumerConfig{Durable: "writer", AckPolicy: jetstream.AckExplicitPolicy}, AckFloor: jetstream.SequenceInfo{Stream: 3},
		Delivered: jetstream.SequenceInfo{Last: &last}, NumAckPending: 4, NumPending: 5, NumRedelivered: 6,
	}
	passing := &jetstream.ConsumerInfo{Name: "x", Config: jetstream.ConsumerConfig{Name: "x"}}
	a := &jstest.Server{Refuses: map[string]error{}, FindsStream: jstest.At(&jetstream.StreamInfo{})}
	b := New(a.Connected(conn.Options{}))
	if _, ok, err := b.Acknowledged(t.Context(), "TURN_c"); ok || err != nil {
		t.Errorf("a stream without readers is acknowledged: %v", err)
	}
	a.Readers = []*jetstream.ConsumerInfo{worker, passing, reader("reads", 1, 1, 1)}
	if _, ok, err := b.Acknowledged(t.Context(), "TURN_c"); ok || err != nil {
		t.Errorf("a stream whose readers do not acknowledge is acknowledged: %v", err)
	}
	a.Readers = append(a.Readers, reader("b", 9, 1, 0), reader("a", 0, 8, 0), reader("c", 8, 1, 0))
	if dealt, ok, err := b.Acknowledged(t.Context(), "TURN_c"); !ok || dealt != 7 || err != nil { // that began with message 8
		t.Errorf("those that have ended had come to %d (%t), %v", dealt, ok, err)
	}
	found, err := b.Consumers(t.Context(), "TURN_c")
	var names []string
	for _, c := range found {
		names = append(names, fmt.Sprint(c.Name, " ", c.Ended))
	}
	if err != nil || !slices.Equal(names, []string{"a true", "b true", "c true", "reads false", "writer false"}) {
		t.Fatalf("the consumers are %v, %v", names, err)
	}
	if w := found[4]; w != (bus.Consumer{Name: "writer", Answered: 3, Unanswered: 4, Pending: 5, Again: 6, Active: last}) {
		t.Errorf("a worker's is %+v", w)
	}
	a.Refuses["list consumers"] = errors.New("away")
	if _, err := b.Consumers(t.Context(), "TURN_c"); err == nil || !strings.Contains(err.Error(), "list the consumers of TURN_c: away") {
		t.Errorf("the consumers of a server that is away: %v, want its error", err)
	}
	if _, _, err := b.Acknowledged(t.Context(), "TURN_c"); err == nil || !strings.Contains(err.Error(), "list the readers of TURN_c: away") {
		t.Errorf("the acknowledgements of a server that is away: %v, want its error", err)
	}
}

// A consumer that acknowledges and that nothing reads belongs to a reader that has ended.
func TestWhichReaderHasEnded(t *testing.T) {
	t.Parallel()
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
