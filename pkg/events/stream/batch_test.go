package stream_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestLeadersChangeInTheMiddleOfABatch: a publisher that does not wait for its messages
// continues at the end of the log after each change of its leader, and the log has every
// message once and in order.
func TestLeadersChangeInTheMiddleOfABatch(t *testing.T) {
	c := serveCluster(t)
	b := connect(t, stream.Options{URL: c.urls(), Replicas: 3, Timeout: 2 * time.Second})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	const changes = 10
	var changed atomic.Int64
	go changeLeaders(t.Context(), c.urls(), changes, &changed)
	n, broken := 0, 0
	eventually(t, fmt.Sprint("the log has changed its leader ", changes, " times while it was written"), func() bool {
		a, err := b.Append(t.Context(), kinds.Pods.Name)
		if err != nil {
			return false
		}
		defer a.Close()
		n = int(a.Last())
		for changed.Load() < changes {
			for range 50 {
				if err = a.Append(t.Context(), podDelta(fmt.Sprint("pod-", n), n)); err != nil {
					break
				}
				n++
			}
			if err = errors.Join(err, a.Flush(t.Context())); err != nil {
				broken++
				t.Logf("once more: %v", err)
				return false
			}
		}
		return true
	})
	t.Logf("%d messages; %d batches ended before their time", n, broken)
	if broken == 0 {
		t.Error("no change of leaders has met a batch: the test shows nothing")
	}
	state, err := b.StreamState(t.Context(), subject.LogStream("pods"))
	if err != nil || state.Last != uint64(n) {
		t.Errorf("the log ends at %d (%v), and %d messages were acknowledged", state.Last, err, n)
	}
	c.holds(b, n)
}

// changeLeaders has the log of pods led by one server after the other.
func changeLeaders(ctx context.Context, urls string, changes int64, changed *atomic.Int64) {
	conn, err := nats.Connect(urls)
	if err != nil {
		return
	}
	defer conn.Close()
	for ctx.Err() == nil && changed.Load() < changes {
		time.Sleep(200 * time.Millisecond) // batches are in flight meanwhile
		if answer, err := conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+subject.LogStream("pods"), nil, time.Second); err == nil && len(answer.Data) > 0 {
			changed.Add(1)
		}
	}
}

// TestAServerThatForgetsABatch: a publisher can continue a log that was idle for longer than
// the server remembers batches, also after a restart of the server.
func TestAServerThatForgetsABatch(t *testing.T) {
	dir := t.TempDir()
	s := serve(t, embedded.Options{Dir: dir, Listen: "127.0.0.1:0"})
	url := s.URL()
	b := connect(t, stream.Options{URL: url})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	say := func(n int) {
		t.Helper()
		if err := errors.Join(a.Append(t.Context(), podDelta(fmt.Sprint("pod-", n), n)), a.Flush(t.Context())); err != nil {
			t.Fatalf("message %d: %v", n, err)
		}
	}
	say(0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bus is known to be away", func() bool { return b.Healthy() != nil })
	serve(t, embedded.Options{Dir: dir, Listen: strings.TrimPrefix(url, "nats://")})
	for b.Healthy() != nil { // no longer than it takes: the client's callbacks may not have run yet
		runtime.Gosched()
	}
	say(1)
}

// TestAStreamWithoutFastIngest: Append refuses a log without batches by name before it writes,
// and EnsureKind upgrades a log of an older version.
func TestAStreamWithoutFastIngest(t *testing.T) {
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	b := connect(t, stream.Options{URL: s.URL()})
	js := admin(t, s.URL())
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	change := func(to func(*jetstream.StreamConfig)) {
		t.Helper()
		found, err := js.Stream(t.Context(), subject.LogStream("pods"))
		if err != nil {
			t.Fatal(err)
		}
		config := found.CachedInfo().Config
		to(&config)
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	change(func(c *jetstream.StreamConfig) { c.AllowBatchPublish = false })
	a, err := b.Append(t.Context(), kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Append(t.Context(), podDelta("pod", 0)), a.Flush(t.Context())); err == nil {
		t.Error("a log that takes no batches was written")
	}
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Errorf("a log of an older version: %v", err)
	}
	fillWith(t, b, 1)
	change(func(c *jetstream.StreamConfig) { c.AllowBatchPublish, c.MaxMsgsPerSubject = false, 3 })
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); !errors.Is(err, bus.ErrSettings) {
		t.Errorf("a log that differs in more than that: %v, want ErrSettings", err)
	}
}
