package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/port"
	"github.com/millrace/millrace/pkg/events/subject"
)

// The size of an ordinary pod without managedFields.
var podBody = bytes.Repeat([]byte(`{"name":"container","image":"registry/app:1"},`), 70)

func openBench(b *testing.B) *stream.Bus {
	b.Helper()
	bus := connect(b, stream.Options{Server: serve(b, embedded.Options{})})
	if err := errors.Join(bus.EnsureKind(b.Context(), kinds.Pods.Kind), bus.EnsureController(b.Context(), "c")); err != nil {
		b.Fatal(err)
	}
	return bus
}

// fill appends n deltas of pods, of 3.2 KB each.
func fill(b *testing.B, to *stream.Bus, n int) {
	b.Helper()
	a, err := to.Append(b.Context(), kinds.Pods.Name)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	for i := range n {
		m := podDelta(fmt.Sprint("pod-", i%10000), i)
		m.Data = podBody
		if err := a.Append(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
	if err := a.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
}

func perSecond(b *testing.B) { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s") }

func BenchmarkAppend(b *testing.B) {
	bus := openBench(b)
	b.ReportAllocs()
	b.ResetTimer()
	fill(b, bus, b.N)
	perSecond(b)
}

func BenchmarkFollow(b *testing.B) {
	bus := openBench(b)
	fill(b, bus, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	read := 0
	err := bus.Follow(ctx, subject.LogStream("pods"), 0, func(batch []events.Message) error {
		if read += len(batch); read >= b.N {
			cancel()
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	perSecond(b)
}

func BenchmarkWork(b *testing.B) {
	on := openBench(b)
	fill(b, on, b.N)
	b.ReportAllocs()
	b.ResetTimer()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	var done atomic.Int64
	job := bus.Work{Stream: subject.LogStream("pods"), Durable: "c"}
	err := on.Work(ctx, job, func(d bus.Delivery) {
		d.Ack()
		if done.Add(1) == int64(b.N) {
			cancel()
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	perSecond(b)
}

func BenchmarkStore(b *testing.B) {
	bus := openBench(b)
	b.ReportAllocs()
	m := events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "a"}), Data: podBody}
	last := uint64(0)
	for b.Loop() {
		var err error
		if last, err = bus.Store(b.Context(), m, last); err != nil {
			b.Fatal(err)
		}
	}
	perSecond(b)
}

// BenchmarkLastOf looks up keys of which there is nothing, so many together.
func BenchmarkLastOf(b *testing.B) {
	for _, together := range []int{1, 2, 8, 64, 512} {
		b.Run(fmt.Sprint(together), func(b *testing.B) {
			on := openBench(b)
			if _, err := on.Store(b.Context(), events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "there"}), Data: podBody}, 0); err != nil {
				b.Fatal(err)
			}
			subjects := make([]string, together)
			for i := range subjects {
				subjects[i] = subject.Turn("c", events.LaneWrite, events.Key{Namespace: "default", Name: fmt.Sprint("pod-", i)})
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := on.LastOf(b.Context(), subject.TurnStream("c"), subjects); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*together), "ns/key")
		})
	}
}

// BenchmarkAppendInCluster appends to the log of one kind on three servers, each of which
// syncs every message.
func BenchmarkAppendInCluster(b *testing.B) {
	bus := connect(b, stream.Options{URL: threeServers(b), Replicas: 3})
	if err := bus.EnsureKind(b.Context(), kinds.Pods.Kind); err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	fill(b, bus, b.N)
	perSecond(b)
}

// threeServers are the addresses of a cluster that syncs always.
func threeServers(b *testing.B) (urls string) {
	b.Helper()
	var free [6]string
	for i := range free {
		at, err := port.Free()
		if err != nil {
			b.Fatal(err)
		}
		free[i] = fmt.Sprintf("127.0.0.1:%d", at)
	}
	listen, routes := free[:3], free[3:]
	for i := range listen {
		s := serve(b, embedded.Options{
			Dir: b.TempDir(), Listen: listen[i], Name: fmt.Sprint("server-", i), SyncAlways: true,
			Cluster: embedded.ClusterOptions{Listen: routes[i], Routes: routes},
		})
		b.Cleanup(func() { _ = s.Close() })
	}
	return "nats://" + strings.Join(listen, ",nats://")
}
