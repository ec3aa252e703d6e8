package stream

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
	"github.com/millrace/millrace/pkg/events/stream/settings"
	"github.com/millrace/millrace/pkg/events/stream/space"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestForHowLongAListingIsBelieved: a listing is valid for a minute, for the same streams, and until this
// connection has reason to believe that they were recreated.
func TestForHowLongAListingIsBelieved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var l listing
		logs, found := []string{"EV_pods"}, []kinds.Kind{kinds.Pods.Kind}
		expect := func(when string, known, same bool) {
			t.Helper()
			if got, _ := l.due(); got != known {
				t.Errorf("%s it is known: %t", when, got)
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
			t.Error("it is believed of other streams")
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
			t.Errorf("what was given to it is changed to %v", all)
		}
	})
}

// of is a stream of some settings that takes up so many bytes.
func of(c jetstream.StreamConfig, bytes uint64) *jetstream.StreamInfo {
	return &jetstream.StreamInfo{Config: c, State: jetstream.StreamState{Bytes: bytes}}
}

// The kinds are those whose logs there are, by name. Their settings are asked for where the names of the logs
// are others than they were, or a minute has passed; else the names alone.
func TestWhenLogsAreDescribed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := func(kind kinds.Kind) *jetstream.StreamInfo {
			return of(jetstream.StreamConfig{Name: subject.LogStream(kind.Name), Metadata: settings.Policy{}.Log(kind).Metadata}, 0)
		}
		pods, nodes := log(kinds.Pods.Kind), log(kinds.Nodes.Kind)
		stranger, former := of(jetstream.StreamConfig{Name: "OTHER"}, 0), of(jetstream.StreamConfig{Name: "STATE_pods", Metadata: settings.Policy{}.Log(kinds.Pods.Kind).Metadata}, 0)
		a := &answers{refuses: map[string]error{}, there: []*jetstream.StreamInfo{stranger, former, pods}}
		b := a.bus(Options{})
		expect := func(when, asked, want string) {
			t.Helper()
			a.asked = nil
			var names []string
			found, err := b.Kinds(t.Context())
			for _, k := range found {
				names = append(names, string(k.Name))
			}
			if got := strings.Join(names, " "); err != nil || got != want || strings.Join(a.asked, ", ") != asked {
				t.Errorf("%s the kinds are %q, %v, and asked was %q; want %q and %q", when, got, err, a.asked, want, asked)
			}
		}
		expect("at first", "list streams", "pods")
		expect("again", "list names", "pods")
		a.there = []*jetstream.StreamInfo{pods, nodes, stranger, former}
		expect("with another", "list names, list streams", "nodes pods")
		time.Sleep(time.Minute) // of virtual time
		expect("after a minute", "list streams", "nodes pods")
		for _, of := range []string{"list names", "list streams"} {
			away := errors.New("away")
			a.refuses = map[string]error{of: away}
			if of == "list streams" {
				b.listing.drop()
			}
			if _, err := b.Kinds(t.Context()); !errors.Is(err, away) || !strings.Contains(err.Error(), "list streams") {
				t.Errorf("where it cannot %s: %v", of, err)
			}
		}
		a.refuses, a.there = nil, []*jetstream.StreamInfo{of(jetstream.StreamConfig{Name: "EV_x", Metadata: map[string]string{"millrace.kind": "{"}}, 0)}
		if _, err := b.Kinds(t.Context()); err == nil || !strings.Contains(err.Error(), "stream EV_x") {
			t.Errorf("of a log whose kind cannot be read: %v", err)
		}
	})
}

// Controllers and shadows are those of whom there are streams.
func TestWhoseStreamsThereAre(t *testing.T) {
	t.Parallel()
	a := &answers{refuses: map[string]error{}}
	for _, name := range []string{"TURN_b", "TURN_a", "OUTCOME_a", "SHADOW_c", "OTHER"} {
		a.there = append(a.there, of(jetstream.StreamConfig{Name: name}, 0))
	}
	b := a.bus(Options{})
	if got, err := b.Controllers(t.Context()); err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the controllers are %v, %v", got, err)
	}
	if got, err := b.Shadows(t.Context()); err != nil || !slices.Equal(got, []string{"c"}) {
		t.Errorf("the shadows are %v, %v", got, err)
	}
	a.refuses["list names"] = errors.New("away")
	if _, err := b.Controllers(t.Context()); err == nil || !strings.Contains(err.Error(), "list streams: away") {
		t.Errorf("of a server that is away: %v", err)
	}
}

// A record is imported beside other imports alone.
func TestBesideWhatARecordIsImported(t *testing.T) {
	t.Parallel()
	was := of(jetstream.StreamConfig{Name: "TURN_c", Metadata: map[string]string{importedKey: "{}"}}, 0)
	a := &answers{refuses: map[string]error{}, there: []*jetstream.StreamInfo{was, was}}
	b := a.bus(Options{})
	if err := b.MayImport(t.Context()); err != nil {
		t.Errorf("beside what was imported: %v", err)
	}
	a.there = []*jetstream.StreamInfo{was, of(jetstream.StreamConfig{Name: "EV_pods"}, 0), of(jetstream.StreamConfig{Name: "EV_nodes"}, 0)}
	if err := b.MayImport(t.Context()); !errors.Is(err, ErrServed) || !strings.Contains(err.Error(), "the stream EV_pods") {
		t.Errorf("beside what services made: %v", err)
	}
	a.refuses["list streams"] = errors.New("away")
	if err := b.MayImport(t.Context()); err == nil || errors.Is(err, ErrServed) {
		t.Errorf("where that cannot be told: %v", err)
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
	a := &answers{refuses: map[string]error{}, stream: standingAt(&jetstream.StreamInfo{})}
	b := a.bus(Options{})
	if _, ok, err := b.Acknowledged(t.Context(), "TURN_c"); ok || err != nil {
		t.Errorf("of a stream without readers one has ended: %v", err)
	}
	a.readers = []*jetstream.ConsumerInfo{worker, passing, reader("reads", 1, 1, 1)}
	if _, ok, err := b.Acknowledged(t.Context(), "TURN_c"); ok || err != nil {
		t.Errorf("of a stream whose readers read one has ended: %v", err)
	}
	a.readers = append(a.readers, reader("b", 9, 1, 0), reader("a", 0, 8, 0), reader("c", 8, 1, 0))
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
	a.refuses["list consumers"] = errors.New("away")
	if _, err := b.Consumers(t.Context(), "TURN_c"); err == nil || !strings.Contains(err.Error(), "list the consumers of TURN_c: away") {
		t.Errorf("of a server that is away: %v", err)
	}
	if _, _, err := b.Acknowledged(t.Context(), "TURN_c"); err == nil || !strings.Contains(err.Error(), "list the readers of TURN_c: away") {
		t.Errorf("of a server that is away: %v", err)
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
		a := &answers{refuses: map[string]error{"delete": c.refuses}, stream: standingAt(&jetstream.StreamInfo{})}
		a.readers = append(a.readers, reader("writer-1", 0, time.Hour), reader("watcher-old", 0, 5*time.Second), reader("watcher-new", 0, 5*time.Second-1), reader("watcher-asks", 1, time.Hour))
		for i := range c.reading {
			a.readers = append(a.readers, reader(fmt.Sprint("watcher-", i), 1, time.Hour))
		}
		p := &provider{direct: direct{a.bus(Options{})}}
		names, err := p.listReaders(t.Context(), "watcher", "EV_pods")
		removed := 0
		for _, what := range a.asked {
			removed += map[bool]int{true: 1}[what == "delete"]
		}
		if err != nil || len(names) != c.left || removed != c.removed || slices.Contains(names, "writer-1") || slices.Contains(names, "watcher-old") != (c.left != 128-1 || c.removed == 0) {
			t.Errorf("%s: %d are left, and %d removed, %v", name, len(names), removed, err)
		}
	}
	a := &answers{refuses: map[string]error{"list consumers": errors.New("away")}, stream: standingAt(&jetstream.StreamInfo{})}
	if _, err := (&provider{direct: direct{a.bus(Options{})}}).listReaders(t.Context(), "watcher", "EV_pods"); err == nil || !strings.Contains(err.Error(), "list the consumers of EV_pods: away") {
		t.Errorf("of a server that is away: %v", err)
	}
}

// When the store is scarce, the largest streams are bounded, and their metadata records it; otherwise no
// stream is touched.
func TestWhenStreamsAreBounded(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	there := []*jetstream.StreamInfo{
		of(jetstream.StreamConfig{Name: "EV_b", Metadata: map[string]string{"other": "kept"}}, 450*mb), of(jetstream.StreamConfig{Name: "EV_a"}, 300*mb), of(jetstream.StreamConfig{Name: "WAKE"}, 50*mb),
	}
	for name, c := range map[string]struct {
		most    int64
		refuses map[string]error
		bounded map[string]int64
		says    string
	}{
		"with room":           {1001 * mb, nil, nil, ""},
		"where it is scarce":  {1000 * mb, nil, map[string]int64{"EV_b": 400 * mb}, ""},
		"much too small":      {400 * mb, nil, map[string]int64{"EV_a": 125 * mb, "EV_b": 125 * mb}, ""},
		"it does not list":    {1000 * mb, map[string]error{"list streams": errors.New("away")}, nil, "list the streams: away"},
		"it does not let one": {1000 * mb, map[string]error{"update stream": errors.New("no")}, nil, "bound stream EV_b: no"},
	} {
		a := &answers{refuses: c.refuses, there: there}
		s := a.bus(Options{}).StoreLimit(c.most)
		err := s.freeSpace(t.Context())
		bounded := map[string]int64{}
		for _, stream := range a.streams {
			bounded[stream.Name] = stream.MaxBytes
			if b := space.BoundOf(stream.Metadata); b.Bytes != stream.MaxBytes || time.Since(b.At) > time.Minute || stream.Name == "EV_b" && stream.Metadata["other"] != "kept" {
				t.Errorf("%s: noted is %v in %s", name, stream.Metadata, stream.Name)
			}
		}
		if fmt.Sprint(bounded) != fmt.Sprint(c.bounded) || (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) || s.cut.Load() != uint64(len(c.bounded)) {
			t.Errorf("%s: bounded are %v, %v; want %v, %q", name, bounded, err, c.bounded, c.says)
		}
		if listed := c.refuses["list streams"] == nil; s.checked.Load() != listed || listed && s.used.Load() != 800*mb {
			t.Errorf("%s: it has been looked at: %t, and used are %d", name, s.checked.Load(), s.used.Load())
		}
	}
}
