// Package streamtest is the conformance suite of every bus: the contract in package bus, as
// tests. Run it with [Conform].
package streamtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Patience is how long a test waits for what must happen, on a slow disk too.
const Patience = time.Minute

// suite is the contract, test by test.
var suite = []struct {
	name string
	test func(*testing.T, bus.Bus)
}{
	{"Streams", testStreams},
	{"Settings", testSettings},
	{"Forget", testForget},
	{"Sealed", testSealed},
	{"NoStream", testNoStream},
	{"Append", testAppend},
	{"AppendOvertaken", testAppendOvertaken},
	{"AppendAfterForget", testAppendAfterForget},
	{"Newest", testNewest},
	{"LastIsFoldOfLog", testLastIsFoldOfLog},
	{"Store", testStore},
	{"StoreRace", testStoreRace},
	{"Put", testPut},
	{"TooLarge", testTooLarge},
	{"LargestObject", testLargestObject},
	{"Schedule", testSchedule},
	{"Last", testLast},
	{"LastOf", testLastOf},
	{"LastOfLarge", testLastOfLarge},
	{"LastOfLog", testLastOfLog},
	{"Follow", testFollow},
	{"FollowHandlerError", testFollowHandlerError},
	{"FollowForgotten", testFollowForgotten},
	{"FollowBeyondTheEnd", testFollowBeyondTheEnd},
	{"Consume", testConsume},
	{"ConsumeWhatIsLeft", testConsumeWhatIsLeft},
	{"Work", testWork},
	{"WorkAnswers", testWorkAnswers},
	{"WorkSince", testWorkSince},
	{"StateTellsTheTime", testStateTellsTheTime},
	{"WorkShared", testWorkShared},
	{"WorkRanked", testWorkRanked},
	{"WorkMaxPending", testWorkMaxPending},
	{"Managers", testManagers},
	{"Archive", testArchive},
	{"Peers", testPeers},
	{"Close", testClose},
}

// Conform tests a bus. Each test opens an empty bus, which bounds messages by 8 MiB; open
// closes it in t.Cleanup.
func Conform(t *testing.T, open func(t *testing.T) bus.Bus) { ConformPartly(t, nil, open) }

// ConformPartly is Conform for a bus that lacks a part of the contract: lacks has the names of the tests that
// do not apply to it, with reasons.
func ConformPartly(t *testing.T, lacks map[string]string, open func(t *testing.T) bus.Bus) {
	left := maps.Clone(lacks)
	for _, c := range suite {
		if _, lacking := lacks[c.name]; lacking {
			delete(left, c.name)
			continue
		}
		t.Run(c.name, func(t *testing.T) { c.test(t, open(t)) })
	}
	for name := range left {
		t.Errorf("the suite has no test %s, want the names of its tests", name)
	}
}

// Expire tests that everything expires from a log, and that the log then goes on. The bus of open
// keeps its logs for age, and its time passes by itself.
func Expire(t *testing.T, age time.Duration, open func(t *testing.T) bus.Bus) {
	b := open(t)
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	k.append(a, k.pod("goes", 1))
	k.append(a, k.gone("goes", 2))
	eventually.True(k, Patience, "the log is empty", func() bool {
		_, there, err := b.Last(k.ctx, subject.LogStream("pods"), subject.Delta(podRef("goes")))
		return err == nil && !there && k.state(subject.LogStream("pods")).Messages == 0
	})
	// The log continues with the next sequence.
	k.append(a, k.pod("late", 3))
	if got := a.Last(); got != 3 {
		t.Errorf("after expiry the log goes on at %d, want 3", got)
	}
}

// kit is shared by the tests.
type kit struct {
	*testing.T
	bus bus.Bus
	ctx context.Context
}

func newKit(t *testing.T, b bus.Bus) *kit {
	t.Helper()
	k := &kit{T: t, bus: b, ctx: t.Context()}
	k.must(b.EnsureKind(k.ctx, kinds.Pods.Kind))
	k.must(b.EnsureController(k.ctx, controller))
	return k
}

const controller = "replicaset-controller"

func (k *kit) must(err error) {
	k.Helper()
	if err != nil {
		k.Fatal(err)
	}
}

func podRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
}

// pod is a delta of a pod; its body is its version.
func (k *kit) pod(name string, version int) events.Message {
	return k.delta(name, version, events.Is)
}

func (k *kit) gone(name string, version int) events.Message {
	return k.delta(name, version, events.Gone)
}

func (k *kit) delta(name string, version int, op events.Op) events.Message {
	ref := podRef(name)
	return subject.Message(events.Delta{
		Kind: ref.Kind, Ref: ref, Op: op, UID: "uid-of-pod", ResourceVersion: strconv.Itoa(version),
		Form: kinds.Full, ContentType: kinds.JSON, Body: fmt.Appendf(nil, `{"version":%d}`, version),
		Trace: events.Trace{Parent: "00-aa-bb-01"},
	})
}

func (k *kit) appender(kind kinds.Kind) bus.Appender {
	k.Helper()
	a, err := k.bus.Append(k.ctx, kind.Name)
	k.must(err)
	k.Cleanup(func() { _ = a.Close() })
	return a
}

func (k *kit) append(a bus.Appender, messages ...events.Message) {
	k.Helper()
	for _, m := range messages {
		k.must(a.Append(k.ctx, m))
	}
	k.must(a.Flush(k.ctx))
}

func (k *kit) state(stream string) bus.State {
	k.Helper()
	s, err := k.bus.StreamState(k.ctx, stream)
	k.must(err)
	return s
}

// last is the newest message about a pod; the zero one when there is none.
func (k *kit) last(stream, pod string) events.Message {
	k.Helper()
	m, _, err := k.bus.Last(k.ctx, stream, subject.Delta(podRef(pod)))
	k.must(err)
	return m
}

func key(name string) events.Key { return events.Key{Namespace: "default", Name: name} }

func turn(name, body string) events.Message {
	return events.Message{
		Subject: subject.Turn(controller, events.LaneWrite, key(name)),
		Header:  map[string][]string{events.HeaderContentType: {kinds.JSON}}, Data: []byte(body),
	}
}

// reading is a running Follow, and the messages that it has read.
type reading struct {
	mu     sync.Mutex
	read   []events.Message
	ended  chan struct{}
	err    error
	cancel context.CancelFunc
}

func (k *kit) follow(stream string, from uint64) *reading {
	return k.reads(func(ctx context.Context, r *reading) error { return k.bus.Follow(ctx, stream, from, r.take) })
}

// reads runs a reader until it is cancelled.
func (k *kit) reads(read func(context.Context, *reading) error) *reading {
	ctx, cancel := context.WithCancel(k.ctx)
	r := &reading{ended: make(chan struct{}), cancel: cancel}
	k.Cleanup(func() { cancel(); <-r.ended })
	go func() {
		defer close(r.ended)
		r.err = read(ctx, r)
	}()
	return r
}

func (r *reading) take(batch []events.Message) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read = append(r.read, batch...)
	return nil
}

func (r *reading) messages() []events.Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.read[:len(r.read):len(r.read)]
}

func (r *reading) sequences() []uint64 {
	var all []uint64
	for _, m := range r.messages() {
		all = append(all, m.Sequence)
	}
	return all
}

// end waits for the end of a Follow, and returns its error.
func (k *kit) end(r *reading) error {
	k.Helper()
	select {
	case <-r.ended:
		return r.err
	case <-time.After(Patience):
		k.Fatalf("Follow has not ended after %v", Patience)
		return nil
	}
}

// working is a running Work.
type working struct {
	deliveries chan bus.Delivery
	ended      chan struct{}
	err        error
	cancel     context.CancelFunc
}

func (k *kit) work(w bus.Work) *working {
	ctx, cancel := context.WithCancel(k.ctx)
	r := &working{deliveries: make(chan bus.Delivery, 10000), ended: make(chan struct{}), cancel: cancel}
	k.Cleanup(func() { cancel(); <-r.ended })
	go func() {
		defer close(r.ended)
		r.err = k.bus.Work(ctx, w, func(d bus.Delivery) { r.deliveries <- d })
	}()
	return r
}

// made waits until a consumer exists, and returns its state. It asks at intervals only: a
// cluster that is asked while it creates the consumer answers 4 s later.
func (k *kit) made(stream, durable string) (c bus.Consumer) {
	k.Helper()
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	eventually.True(k, Patience, "there is a consumer "+durable, func() bool {
		<-pause.C
		all, err := k.bus.(bus.Archive).Consumers(k.ctx, stream)
		k.must(err)
		i := slices.IndexFunc(all, func(c bus.Consumer) bool { return c.Name == durable })
		if i >= 0 {
			c = all[i]
		}
		return i >= 0
	})
	return c
}

func (k *kit) stop(w *working) {
	k.Helper()
	w.cancel()
	select {
	case <-w.ended:
		k.must(w.err)
	case <-time.After(Patience):
		k.Fatalf("Work has not ended after %v", Patience)
	}
}

func (k *kit) next(w *working) bus.Delivery {
	k.Helper()
	select {
	case d := <-w.deliveries:
		return d
	case <-w.ended:
		k.Fatalf("Work has ended: %v", w.err)
	case <-time.After(Patience):
		k.Fatalf("no delivery after %v", Patience)
	}
	return nil
}

// silence: nothing arrives for a while that is long beside the bus's own delays.
func (k *kit) silence(w *working, while time.Duration) {
	k.Helper()
	select {
	case d := <-w.deliveries:
		k.Fatalf("unexpected delivery of %d, attempt %d", d.Message().Sequence, d.Attempt())
	case <-time.After(while):
	}
}
