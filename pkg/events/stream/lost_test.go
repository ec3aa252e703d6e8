package stream_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestVolatileConsumerOutlivesItsServer: a consumer in the memory of one server of a
// cluster is made anew when that server dies, and the work goes on without it.
func TestVolatileConsumerOutlivesItsServer(t *testing.T) {
	t.Parallel()
	c := serveMortals(t)
	b := connect(t, stream.Options{URL: c.urls(), Replicas: 3})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	worked := &tally{}
	go func() {
		w := bus.Work{Stream: subject.StateStream("pods"), Durable: "c", Volatile: true, New: true}
		_ = b.Work(t.Context(), w, func(d bus.Delivery) { worked.add(d.Message().Sequence); d.Done() })
	}()
	js := admin(t, c.urls())
	home := 0
	eventually(t, "the consumer is there", func() bool {
		consumer, err := js.Consumer(t.Context(), subject.StateStream("pods"), "c")
		if err != nil || consumer.CachedInfo().Cluster == nil {
			return false
		}
		n, err := fmt.Sscanf(consumer.CachedInfo().Cluster.Leader, "server-%d", &home)
		return err == nil && n == 1
	})
	next := 0
	delivered := func() bool {
		stored, _ := publish(t.Context(), b, next, 1)
		next++
		return len(stored) > 0 && len(worked.all()) > 0
	}
	eventually(t, "there is work", delivered)
	c.kill(home)
	before := len(worked.all())
	eventually(t, "there is work while its server is away", func() bool { return delivered() && len(worked.all()) > before })
}
