package stream_test

import (
	"context"
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

// TestAConsumerWithoutRanksIsTakenOver: the consumer of an older version is updated in place,
// so that unanswered messages come again and answered ones do not.
func TestAConsumerWithoutRanksIsTakenOver(t *testing.T) {
	t.Parallel()
	const controller = "replicaset-controller"
	ctx := t.Context()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureController(ctx, controller); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"answered", "in flight", "untouched"} {
		m := events.Message{Subject: subject.Turn(controller, events.LaneWrite, events.Key{Namespace: "default", Name: name}), Data: []byte(name)}
		if _, err := b.Store(ctx, m, 0); err != nil {
			t.Fatal(err)
		}
	}
	old, err := admin(t, s.URL()).CreateConsumer(ctx, subject.TurnStream(controller), jetstream.ConsumerConfig{
		Durable: "writer", AckPolicy: jetstream.AckExplicitPolicy, AckWait: time.Second, MaxDeliver: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	batch, err := old.Fetch(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := (<-batch.Messages()).DoubleAck(ctx); err != nil {
		t.Fatal(err)
	}
	<-batch.Messages()

	ctx, cancel := context.WithTimeout(ctx, streamtest.Patience)
	defer cancel()
	attempts := map[string]int{}
	err = b.Work(ctx, bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", AckWait: time.Second, Rank: 2}, func(d bus.Delivery) {
		attempts[string(d.Message().Data)] = d.Attempt()
		d.Ack()
		if len(attempts) == 2 {
			cancel()
		}
	})
	if err != nil || len(attempts) != 2 || attempts["in flight"] != 2 || attempts["untouched"] != 1 {
		t.Errorf("came, by attempt: %v; error %v", attempts, err)
	}
}
