package writer_test

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/claim"
)

var historical = flag.Int("history", 5_000, "turns that have been answered before the bus forgets it")

// newJetStreamScene returns a scene on a real bus.
func newJetStreamScene(t *testing.T) *scene {
	t.Helper()
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	b, err := stream.Connect(t.Context(), stream.Options{Server: server, Timeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.Close()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &scene{T: t, bus: b, api: applytest.Serve(t)}
	s.must(b.EnsureController(t.Context(), controller))
	return s
}

// past stores settled turns with their outcomes.
func (s *scene) past(n int) {
	s.Helper()
	turns := make(chan int)
	var storing sync.WaitGroup
	for range 64 {
		storing.Go(func() {
			for i := range turns {
				name := fmt.Sprint("past-", i)
				m := turnOf(s.T, name, nil, creates(name, 1)...)
				at, err := s.bus.Put(s.Context(), m, name)
				if err == nil {
					o := events.Outcome{Controller: controller, Turn: at, Lane: events.LaneWrite, Key: events.Key{Namespace: "ns", Name: name}}
					m, err = events.EncodeJSON(o, events.Trace{})
					m.Subject = subject.Outcome(controller, o.Lane, o.Key)
				}
				if err == nil {
					_, err = s.bus.Put(s.Context(), m, name)
				}
				if err != nil {
					s.Error(err)
				}
			}
		})
	}
	for i := range n {
		turns <- i
	}
	close(turns)
	storing.Wait()
}

// live stores turns, each after the outcome of the one before, and returns the longest time until
// an outcome.
func (s *scene) live(n int) time.Duration {
	s.Helper()
	var took []time.Duration
	for i := range n {
		began, key := time.Now(), fmt.Sprint("live-", i)
		s.store(key, nil, creates(key, 1)...)
		s.outcome(key)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	s.Logf("%d live turns: median %v, longest %v", n, took[n/2], took[n-1])
	return took[n-1]
}

// attached waits until the writers' consumer has passed the past turns.
func (s *scene) attached() {
	s.Helper()
	eventually.True(s, eventually.Long, "consumer behind the past", func() bool {
		all, err := s.bus.(bus.Archive).Consumers(s.Context(), subject.TurnStream(controller))
		s.must(err)
		return len(all) == 1 && all[0].Pending == 0
	})
}

// After the bus has lost the consumer or its position, the writer does none of a long history
// again, and new turns do not wait behind it.
func TestRedeliveryOfEverything(t *testing.T) {
	t.Parallel()
	const since = 2 * time.Second
	for name, forget := range map[string]func(*scene){
		"the consumer is lost": func(*scene) {},
		"its place is lost": func(s *scene) {
			ctx, cancel := context.WithCancel(s.Context())
			job := bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", AckWait: claim.AckWait, MaxPending: 1}
			s.must(s.bus.Work(ctx, job, func(d bus.Delivery) { d.NakWithDelay(0); cancel() }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newJetStreamScene(t)
			s.past(*historical)
			stored := time.Now()
			eventually.True(s, eventually.Long, "age", func() bool { return time.Since(stored) > since+time.Second })
			forget(s)
			before := s.outcomes()
			line, past := bustest.Wrap(s.bus), new(atomic.Int64) // past turns that are delivered
			line.OnWork = func(ctx context.Context, job bus.Work, handle func(bus.Delivery)) error {
				return s.bus.Work(ctx, job, func(d bus.Delivery) {
					if _, _, key, err := subject.ParseTurn(d.Message().Subject); err == nil && strings.HasPrefix(key.Name, "past-") {
						past.Add(1)
					}
					handle(d)
				})
			}
			s.writer(func(c *writer.Config) { c.Bus, c.Since = line, since })
			s.attached() // else new turns may be too old by then
			if longest := s.live(50); longest > 2*time.Second {
				t.Errorf("a live turn took %v", longest)
			}
			if handed := past.Load(); handed > int64(*historical)/50 {
				t.Errorf("%d turns of the past were handed out before what is live", handed)
			}
			if got := s.outcomes() - before; got != 50 {
				t.Errorf("%d outcomes of 50 live turns", got)
			}
			if made := len(s.api.Paths()); made > 100 { // pods, and Events about them
				t.Errorf("%d objects were made", made)
			}
		})
	}
}

// The writer checks each turn of a recent history, and does none again.
func TestRedeliveryOfTheRecentPast(t *testing.T) {
	t.Parallel()
	s := newJetStreamScene(t)
	s.past(*historical / 2)
	before := s.outcomes()
	s.writer(func(c *writer.Config) { c.Since = time.Hour })
	s.live(50)
	eventually.True(s, eventually.Long, "answer to everything", func() bool { return s.unanswered() == 0 })
	if got := s.outcomes() - before; got != 50 {
		t.Errorf("%d outcomes of 50 live turns", got)
	}
	if made := len(s.api.Paths()); made > 100 {
		t.Errorf("%d objects were made", made)
	}
}
