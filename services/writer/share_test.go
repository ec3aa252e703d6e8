package writer_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/cutconn"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/services/writer"
)

// TestAWriterWithoutAnAPIServerLeavesTheTurnsToOthers: a writer's connections are cut silently,
// with a turn in flight. The other writer carries out that turn and the later ones, and each
// effect exists once.
func TestAWriterWithoutAnAPIServerLeavesTheTurnsToOthers(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var cut [2]cutconn.Dialer
	var services []*writer.Service
	s.started = func(w *writer.Service) { services = append(services, w) }
	for i := range cut {
		s.writer(func(c *writer.Config) { c.REST.Dial = cut[i].Dial })
	}
	// While they discover each other, and one of them has not reached the API server yet, a writer
	// may have turns for which it does not rank first.
	first, divided := 0, time.Now()
	eventually.True(s, eventually.Long, "division of the turns", func() bool {
		of := 0
		if active(t, services[1]) {
			of = 1
		}
		known := services[0].Checks()["writer-replicas"]() == nil && services[1].Checks()["writer-replicas"]() == nil
		if !known || active(t, services[0]) == active(t, services[1]) || of != first {
			first, divided = of, time.Now()
		}
		return time.Since(divided) > 2*time.Second
	})
	s.store("before", nil, creates("before", 1)...)
	s.outcome("before")
	cut[first].Cut()
	s.store("in-flight", nil, creates("in-flight", 2)...)
	s.outcome("in-flight")
	s.store("after", nil, creates("after", 1)...)
	s.outcome("after")
	eventually.True(s, eventually.Long, "turns that fall to the writer with an API server", func() bool { return !active(t, services[first]) && active(t, services[1-first]) })
	for _, name := range []string{"before-0", "in-flight-0", "in-flight-1", "after-0"} {
		if n := s.api.Created(pods + name); n != 1 {
			t.Errorf("%s was created %d times", name, n)
		}
	}
	cut[first].Mend()
	eventually.True(s, eventually.Long, "return of the turns", func() bool { return active(t, services[first]) && !active(t, services[1-first]) })
}

// active reports whether a writer has the controller's turns, by its metrics.
func active(t *testing.T, w *writer.Service) bool {
	t.Helper()
	return metrictest.Collect(t, w.Collectors()...).Value(t, "millrace_writer_active") > 0
}
