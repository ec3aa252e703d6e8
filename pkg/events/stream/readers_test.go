package stream_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/access"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
)

// TestMadeUpReadersAreBounded: a compromised service gets a bounded number of consumers of a
// stream, however many it asks for. Existing readers continue, other services have their own
// bound, and a replica of the same service that starts later gets a consumer as soon as the
// provisioner finds the others unused.
func TestMadeUpReadersAreBounded(t *testing.T) {
	const orders, at = 10_000, "EV_pods"
	const unused = 5 * time.Second // after so long the provisioner deletes a consumer that is not read
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0", Accounts: accountsOf(t, access.New(measured))})
	provisioner := provide(t, s.URL())
	as := func(user string) *stream.Bus { return connect(t, stream.Options{URL: as(user, s.URL())}) }
	watcher, taken := as("watcher"), as("reconcilers")
	if err := watcher.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	before := reads(t, as("reconcilers"), at)
	all := connect(t, streamOptions(s.URL()))
	eventually(t, "one reads", func() bool { return consumersOf(t, all, at, "reconcilers-") == 1 })
	var refused atomic.Int64
	var flood sync.WaitGroup
	began := time.Now()
	for range 16 {
		flood.Go(func() {
			for range orders / 16 {
				if err := taken.OrderReader(t.Context(), at); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	flood.Wait()
	made := stream.MostReaders * (1 + int64(time.Since(began)/unused))
	if got := consumersOf(t, all, at, "reconcilers-"); got > stream.MostReaders || refused.Load() < orders-made-100 {
		t.Errorf("after %d orders there are %d consumers, want %d at most; %d were refused, want %d at least", orders, got, stream.MostReaders, refused.Load(), orders-made-100)
	}
	if n := refusedReaders(t, provisioner); n < 1 {
		t.Errorf("the metric says that %v orders were refused", n)
	}
	other, after := reads(t, as("writer"), at), reads(t, as("reconcilers"), at)
	if _, err := publish(t.Context(), watcher, 0, 3); err != nil {
		t.Fatal(err)
	}
	for who, got := range map[string]*atomic.Int64{"one that read before": before, "another service": other, "a replica that came later": after} {
		eventually(t, who+" reads", func() bool { return got.Load() == 3 })
	}
}

// reads reads a stream with a bus until the test ends, and counts what it has read.
func reads(t *testing.T, b *stream.Bus, at string) *atomic.Int64 {
	var got atomic.Int64
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	started := make(chan struct{})
	go func() {
		close(started)
		ended <- b.Follow(ctx, at, 1, func(batch []events.Message) error { got.Add(int64(len(batch))); return nil })
	}()
	<-started
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &got
}

// consumersOf is how many consumers a stream has whose names begin like this.
func consumersOf(t *testing.T, b *stream.Bus, at, prefix string) (n int) {
	t.Helper()
	names, err := b.ConsumerNames(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, prefix) {
			n++
		}
	}
	return n
}

// refusedReaders is the provisioner's count of the orders that it refused.
func refusedReaders(t *testing.T, provisioner *stream.Bus) (n float64) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(provisioner)
	found, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range found {
		if family.GetName() == "millrace_bus_readers_refused_total" {
			for _, m := range family.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
