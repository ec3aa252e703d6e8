package stream_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

const shortenedController = "replicaset-controller"

// storeTurns stores turns of many keys and gives the last one's sequence.
func storeTurns(t *testing.T, b bus.Bus, from, n int) (last uint64) {
	t.Helper()
	for i := from; i < from+n; i++ {
		key := events.Key{Namespace: "default", Name: fmt.Sprint("key-", i)}
		m := events.Message{Subject: subject.Turn(shortenedController, events.LaneWrite, key), Data: []byte(`{}`), Header: map[string][]string{"n": {fmt.Sprint(i)}}}
		var err error
		if last, err = b.Put(t.Context(), m, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	return last
}

// working starts a worker and gives its deliveries, which it answers.
func working(t *testing.T, b bus.Bus, w bus.Work) <-chan bus.Delivery {
	t.Helper()
	came, ended := make(chan bus.Delivery, 10_000), make(chan struct{})
	t.Cleanup(func() { <-ended })
	go func() {
		defer close(ended)
		_ = b.Work(t.Context(), w, func(d bus.Delivery) { d.Ack(); came <- d })
	}()
	return came
}

func waitFor(t *testing.T, came <-chan bus.Delivery, sequence uint64) (before int) {
	t.Helper()
	limit := time.After(streamtest.Patience)
	for {
		select {
		case d := <-came:
			if d.Message().Sequence == sequence {
				return before
			}
			before++
		case <-limit:
			t.Fatalf("message %d has not come; %d others have", sequence, before)
		}
	}
}

// TestAConsumerBeyondItsStreamGoesOn: the server lost the end of a stream, and the consumer's
// position is beyond the new end. The consumer would not deliver the messages that replace the
// lost ones.
func TestAConsumerBeyondItsStreamGoesOn(t *testing.T) {
	t.Parallel()
	dir, job := t.TempDir(), bus.Work{Stream: subject.TurnStream(shortenedController), Durable: "writer", Since: time.Hour}
	session := func(run func(b bus.Bus)) {
		server, err := embedded.Serve(embedded.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		b := connect(t, stream.Options{Server: server})
		defer func() {
			_ = b.Close()
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		}()
		run(b)
	}
	var messages string
	backup := filepath.Join(t.TempDir(), "msgs")
	session(func(b bus.Bus) {
		if err := b.EnsureController(t.Context(), shortenedController); err != nil {
			t.Fatal(err)
		}
		waitFor(t, working(t, b, job), storeTurns(t, b, 0, 20))
	})
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", job.Stream, "msgs"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the messages are in %v (%v)", found, err)
	}
	messages = found[0]
	if err := os.CopyFS(backup, os.DirFS(messages)); err != nil {
		t.Fatal(err)
	}
	session(func(b bus.Bus) { waitFor(t, working(t, b, job), storeTurns(t, b, 20, 30)) })
	if err := os.RemoveAll(messages); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(messages, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	session(func(b bus.Bus) {
		came := working(t, b, job)
		last := storeTurns(t, b, 100, 5)
		if last != 25 {
			t.Fatalf("the stream goes on at %d, so that nothing was lost", last)
		}
		waitFor(t, came, last)
	})
}

// TestHistoryIsCutShort: a consumer that goes through its history once more, as one does whose
// position the server has forgotten, is recreated, so that new messages do not wait behind
// those that were dealt with long ago.
func TestHistoryIsCutShort(t *testing.T) {
	t.Parallel()
	const history, since = 5 * bus.Backlog, 500 * time.Millisecond
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureController(t.Context(), shortenedController); err != nil {
		t.Fatal(err)
	}
	storeTurns(t, b, 0, history)
	stored := time.Now()
	eventually(t, "the turns are old", func() bool { return time.Since(stored) > 2*since })
	job := bus.Work{Stream: subject.TurnStream(shortenedController), Durable: "writer", AckWait: time.Second, Since: since}
	if _, err := admin(t, s.URL()).CreateConsumer(t.Context(), job.Stream, jetstream.ConsumerConfig{
		Durable: job.Durable, AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1,
	}); err != nil {
		t.Fatal(err)
	}
	came := working(t, b, job)
	// What has become old before the consumer is there is none of its business: so there
	// is a new one until one comes.
	for stored, end := history, time.Now().Add(streamtest.Patience); ; stored++ {
		if time.Now().After(end) {
			t.Fatal("no new turn comes")
		}
		storeTurns(t, b, stored, 1)
		select {
		case d := <-came:
			if n := d.Message().Sequence; n <= history {
				t.Errorf("old turn %d came before a new one", n)
			}
			return
		case <-time.After(since / 2):
		}
	}
}
