package history_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/cmd/internal/history"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

const (
	patience   = 5 * time.Minute
	controller = "replicaset-controller"
)

// TestThePresentStaysAsItIs generates a history for a few pods of two namespaces, and verifies
// what a service that starts on it finds.
func TestThePresentStaysAsItIs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b := open(t)
	want := populate(ctx, t, b)
	if err := (history.Past{Kind: "pods", Controller: controller, Messages: 1000}).Make(ctx, b); err != nil {
		t.Fatal(err)
	}
	since, err := bus.RecordedSince(ctx, b, "pods")
	if err != nil {
		t.Fatal(err)
	}
	last, there, folded := fold(ctx, t, b, since)
	if fmt.Sprint(there) != fmt.Sprint(want) {
		t.Errorf("a reader that begins at message %d finds %v, want %v", since, there, want)
	}
	if last.Op != events.Mark {
		t.Errorf("the newest delta is %q, want the mark that a watcher resumes from", last.Op)
	}
	expectBooks(ctx, t, b)
	if folded != 7+7*6+1 {
		t.Errorf("it reads %d messages, want 7 objects, the lives of as many that are gone, and the mark", folded)
	}
	for stream, least := range map[string]uint64{
		subject.LogStream("pods"): 750, subject.TurnStream(controller): 100, subject.OutcomeStream(controller): 100,
	} {
		if at, err := b.StreamState(ctx, stream); err != nil || at.Messages < least {
			t.Errorf("%s holds %d messages (%v), want %d", stream, at.Messages, err, least)
		}
	}
	for stream, durable := range map[string]string{subject.TurnStream(controller): "writer", subject.OutcomeStream(controller): controller} {
		expectAnswered(t, b, bus.Work{Stream: stream, Durable: durable})
	}
}

func open(t *testing.T) *stream.Bus {
	t.Helper()
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	b, err := stream.Connect(t.Context(), stream.Options{Server: server, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// populate records a few pods in the log, and one that is gone, and returns their versions.
func populate(ctx context.Context, t *testing.T, b *stream.Bus) map[string]string {
	t.Helper()
	if err := b.EnsureKind(ctx, kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureController(ctx, controller); err != nil {
		t.Fatal(err)
	}
	log, err := b.Append(ctx, "pods")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	want := map[string]string{}
	tell := func(op events.Op, name string, version int) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: fmt.Sprint("ns-", version%2), UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(version),
		}}
		body, err := kinds.Encode(kinds.Pods.Kind, pod)
		if err != nil {
			t.Fatal(err)
		}
		d := events.Delta{
			Kind: "pods", Ref: events.Ref{Kind: "pods", Namespace: pod.Namespace, Name: pod.Name}, Op: op,
			UID: pod.UID, ResourceVersion: pod.ResourceVersion, Form: kinds.Full, ContentType: kinds.Protobuf, Body: body,
		}
		if want[d.Ref.String()] = d.ResourceVersion; op == events.Gone {
			delete(want, d.Ref.String())
		}
		if err := log.Append(ctx, subject.Message(d)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 7 {
		tell(events.Is, fmt.Sprint("web-", i), 100_000+i)
	}
	tell(events.Is, "web-0", 100_010)
	tell(events.Is, "gone", 100_011)
	tell(events.Gone, "gone", 100_013)
	m := subject.Message(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: "200000"})
	if err := log.Append(ctx, m); err != nil {
		t.Fatal(err)
	}
	if err := log.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return want
}

// fold reads the log of pods from a message to its end.
func fold(ctx context.Context, t *testing.T, b *stream.Bus, from uint64) (last events.Delta, there map[string]string, folded int) {
	t.Helper()
	log, err := b.StreamState(ctx, subject.LogStream("pods"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	there = map[string]string{}
	err = b.Follow(ctx, subject.LogStream("pods"), from, func(batch []events.Message) error {
		folded += len(batch)
		for _, m := range batch {
			ref, err := subject.ParseDelta(m.Subject)
			if err != nil {
				return err
			}
			if last, err = events.DecodeDelta(ref, m); err != nil {
				return err
			}
			switch last.Op {
			case events.Is:
				there[ref.String()] = last.ResourceVersion
			case events.Gone:
				delete(there, ref.String())
			case events.Mark, events.Gap:
			}
			if m.Sequence == log.Last {
				done()
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return last, there, folded
}

// expectBooks verifies the log as its readers do: no message is missing before another, and
// the census of each is correct.
func expectBooks(ctx context.Context, t *testing.T, b *stream.Bus) {
	t.Helper()
	end, err := b.StreamState(ctx, subject.LogStream("pods"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, done := context.WithCancel(ctx)
	defer done()
	var chain events.Chain
	var tally events.Tally
	err = b.Follow(ctx, subject.LogStream("pods"), 1, func(batch []events.Message) error {
		for _, m := range batch {
			ref, err := subject.ParseDelta(m.Subject)
			if err != nil {
				return err
			}
			d, err := events.DecodeDelta(ref, m)
			if err != nil {
				return err
			}
			if hole, ok := chain.Next(m, d); !ok {
				return fmt.Errorf("message %d: %s", m.Sequence, hole.Reason)
			}
			if tally.Fold(d); d.Census.Known && d.Census != tally.Census() {
				return fmt.Errorf("message %d says that there is %v, and there is %v", m.Sequence, d.Census, tally.Census())
			}
			if m.Sequence == end.Last {
				done()
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// expectAnswered requires that the only pending delivery is that of a message that it
// stores.
func expectAnswered(t *testing.T, b *stream.Bus, w bus.Work) {
	t.Helper()
	ctx, done := context.WithTimeout(t.Context(), patience)
	defer done()
	before, err := b.StreamState(ctx, w.Stream)
	if err != nil {
		t.Fatal(err)
	}
	m := events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Name: "next"}), Data: []byte("{}")}
	if w.Stream == subject.OutcomeStream(controller) {
		m.Subject = subject.Outcome(controller, events.LaneWrite, events.Key{Name: "next"})
	}
	if _, err := b.Put(ctx, m, "next-"+w.Stream); err != nil {
		t.Fatal(err)
	}
	var first uint64
	if err := b.Work(ctx, w, func(d bus.Delivery) { first = d.Message().Sequence; d.Ack(); done() }); err != nil {
		t.Fatal(err)
	}
	if first != before.Last+1 {
		t.Errorf("%s was given message %d of %s, want %d: the past is not answered", w.Durable, first, w.Stream, before.Last+1)
	}
}
