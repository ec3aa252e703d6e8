package watcher

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// promptly is the time within which a kind must be watched again, whatever is sent on the bus.
const promptly = 10 * time.Second

// TestForgedEpochsMakeNoRelist: a claim that the storage went back makes a watcher check, and only
// what it sees counts. It still detects a restore.
func TestForgedEpochsMakeNoRelist(t *testing.T) {
	t.Parallel()
	for name, epoch := range map[string]func(n int) uint64{
		"the next one":             func(int) uint64 { return 1 },
		"one more each time":       func(n int) uint64 { return uint64(n) + 1 },
		"one that there cannot be": func(int) uint64 { return 1<<64 - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := watchertest.Serve(t), memory.New(memory.Options{})
			s.PutPod("a", 0)
			service, _ := start(t, s, b, "one")
			watching(t, service)
			lists, asked := s.Listed(), len(s.Asked("pods"))
			began := time.Now()
			for n := 0; time.Since(began) < 3*time.Second; n++ {
				if err := b.Broadcast("epoch", fmt.Appendf(nil, `{"epoch":%d,"by":"mallory"}`, epoch(n))); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if got := s.Listed(); got != lists {
				t.Errorf("%d lists, want %d", got, lists)
			}
			if got := len(s.Asked("pods")) - asked; got > 2 {
				t.Errorf("the API server was asked %d times", got)
			}
			s.PutPod("a", 0)
			watchertest.Eventually(t, b, "is a", "is a")
			s.Restore(2)
			watchertest.Until(t, func() bool { return epochOf(t, b, "pods") == 1 })
		})
	}
}

var resources = []kinds.Name{"configmaps", "endpoints", "events", "limitranges", "pods", "secrets", "serviceaccounts", "services"}

// many has a watcher watch all of them.
func many(c *Config) {
	c.Kinds = nil
	for _, name := range resources {
		c.Kinds = append(c.Kinds, kinds.Kind{Name: name, Version: "v1", Form: kinds.Metadata})
	}
	c.Kinds[slices.Index(resources, "pods")] = kinds.Pods.Kind
}

// TestADeadWatcherIsReplacedAlthoughItIsHeard: a watcher that has shown that it watches its kinds
// dies, and another process goes on sending its heartbeats.
func TestADeadWatcherIsReplacedAlthoughItIsHeard(t *testing.T) {
	t.Parallel()
	s, b := watchertest.Serve(t), memory.New(memory.Options{})
	cables := [2]*cable{newCable(b), newCable(b)}
	var services [2]*Service
	for i, c := range cables {
		services[i], _ = start(t, s, c, fmt.Sprint("watcher-", i), many)
	}
	first, second := services[0], services[1]
	shown := time.Now()
	watchertest.Until(t, func() bool { // and long enough for the second to have asked about each kind
		for _, k := range resources {
			if first.watches(k) == second.watches(k) {
				shown = time.Now()
			}
		}
		return first.Synced() && second.Synced() && time.Since(shown) > 4*time.Second
	})
	if first.watches("pods") && second.watches("pods") {
		t.Fatal("both watch pods")
	}
	marks := 0
	for _, k := range resources {
		marks += len(watchertest.LogOfKind(t, b, k))
	}
	quiet := time.Now()
	watchertest.Until(t, func() bool { return time.Since(quiet) > promptly })
	now := -marks
	for _, k := range resources {
		now += len(watchertest.LogOfKind(t, b, k))
	}
	if most := 2*int(promptly/showEvery) + 2; now > most {
		t.Errorf("%d marks were appended in %v in which nothing changed, want %d at most", now, promptly, most)
	}
	cables[0].store(errDead)
	cables[0].mute.Store(true)
	died := time.Now()
	go func() {
		for t.Context().Err() == nil {
			_ = b.Broadcast("watchers", []byte(`{"id":"watcher-0"}`))
			time.Sleep(heartbeat)
		}
	}()
	for {
		left := slices.IndexFunc(resources, func(k kinds.Name) bool { return !second.watches(k) })
		if left < 0 {
			break
		}
		if time.Since(died) > promptly {
			t.Fatalf("%s is not watched %v after the death of its watcher", resources[left], promptly)
		}
		time.Sleep(10 * time.Millisecond)
	}
	for _, name := range resources {
		s.Edit(string(name), "late", func(*corev1.Pod) {})
	}
	watchertest.Until(t, func() bool {
		return !slices.ContainsFunc(resources, func(k kinds.Name) bool { return watchertest.LastOf(t, b, k).Op != events.Is })
	})
}

// TestMadeUpWatchersLeaveNoKindUnwatched: kinds fall to invented replicas, the same ones or always
// new ones, and the real watchers watch them all the same.
func TestMadeUpWatchersLeaveNoKindUnwatched(t *testing.T) {
	t.Parallel()
	for name, stale := range map[string]func(n, i int) string{
		"always the same":      func(_, i int) string { return fmt.Sprint("stale-", i) },
		"renewed continuously": func(n, i int) string { return fmt.Sprint("stale-", n, "-", i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := watchertest.Serve(t), memory.New(memory.Options{})
			go func() {
				for n := 0; t.Context().Err() == nil; n++ {
					for i := range 200 {
						_ = b.Broadcast("watchers", fmt.Appendf(nil, `{"id":%q}`, stale(n, i)))
					}
					time.Sleep(100 * time.Millisecond)
				}
			}()
			service, _ := start(t, s, b, "one", many)
			began, at := time.Now(), map[kinds.Name]time.Time{}
			for time.Since(began) < 25*time.Second {
				for _, name := range resources {
					if at[name].IsZero() || service.watches(name) {
						at[name] = time.Now()
					}
					if time.Since(at[name]) > promptly {
						t.Fatalf("%s is not watched for %v", name, promptly)
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
			for _, name := range resources {
				s.Edit(string(name), "a", func(*corev1.Pod) {})
			}
			watchertest.Until(t, func() bool {
				return !slices.ContainsFunc(resources, func(k kinds.Name) bool { return !service.watches(k) || watchertest.LastOf(t, b, k).Op != events.Is })
			})
		})
	}
}
