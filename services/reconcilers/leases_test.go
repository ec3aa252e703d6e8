package reconcilers

import (
	"context"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// TestWhoHoldsTheLeases: a service says of each leased controller, and of no other, whether a writer's
// heartbeats say that it holds the Lease.
func TestWhoHoldsTheLeases(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		s, err := New(Config{Bus: b, Controllers: []reconcile.Any{reader("a"), reader("b"), reader("c")}, Leased: func(c string) bool { return c != "c" }})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		defer running.Wait()
		defer stop()
		running.Go(func() {
			if err := s.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		var mu sync.Mutex
		var told map[string]bool
		running.Go(func() {
			s.WatchLeases(ctx, func(held map[string]bool) {
				mu.Lock()
				defer mu.Unlock()
				told = held
			})
		})
		expect := func(when string, want map[string]bool) {
			t.Helper()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			if !maps.Equal(told, want) {
				t.Errorf("%s, the Leases are held: %v, want %v", when, told, want)
			}
		}
		say := func(leads map[string]uint64) {
			t.Helper()
			if err := b.Broadcast(report.Writers, report.Heartbeat{Writer: "w", Leads: leads}.Encode()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		expect("at the start", map[string]bool{"a": false, "b": false})
		say(map[string]uint64{"a": 1})
		expect("with one of two", map[string]bool{"a": true, "b": false})
		say(map[string]uint64{"a": 1, "b": 1, "c": 1})
		expect("with both", map[string]bool{"a": true, "b": true})
		say(nil)
		expect("when both are given back", map[string]bool{"a": false, "b": false})
	})
}
