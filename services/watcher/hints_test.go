package watcher

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// TestForgedEpochsMakeNoRelist: a claim that the storage went back makes a watcher look,
// and what it sees counts. A restore is found all the same.
func TestForgedEpochsMakeNoRelist(t *testing.T) {
	for name, epoch := range map[string]func(n int) uint64{
		"the next one":             func(int) uint64 { return 1 },
		"one more each time":       func(n int) uint64 { return uint64(n) + 1 },
		"one that there cannot be": func(int) uint64 { return 1<<64 - 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, b := serve(t), memory.New(memory.Options{})
			s.change("ADDED", "a", 0)
			service, _ := start(t, s, b, "one")
			watching(t, service)
			lists, asked := s.listed(), len(s.asks())
			began := time.Now()
			for n := 0; time.Since(began) < 3*time.Second; n++ {
				if err := b.Say("epoch", fmt.Appendf(nil, `{"epoch":%d,"by":"mallory"}`, epoch(n))); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
			}
			if got := s.listed(); got != lists {
				t.Errorf("%d lists, want %d", got, lists)
			}
			if got := len(s.asks()) - asked; got > 2 {
				t.Errorf("the API server was asked %d times", got)
			}
			s.change("MODIFIED", "a", 0)
			eventually(t, b, "is a", "is a")
			s.restore(2)
			until(t, func() bool { return epochOf(t, b, "pods") == 1 })
		})
	}
}

// asks are the times at which the server was asked for pods.
func (s *server) asks() (times []time.Time) {
	s.set(func() { times = append(times, s.since...) })
	return times
}
