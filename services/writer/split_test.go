package writer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer"
)

// TestWritersOfDisjointControllersWorkSideBySide: writers with different controllers hear each
// other, and each carries out the turns of its own, also when one of two for the same controller
// ends.
func TestWritersOfDisjointControllersWorkSideBySide(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	const another = "job-controller"
	s.must(s.bus.EnsureController(t.Context(), another))
	of := func(name string) func(*writer.Config) {
		return func(c *writer.Config) { c.Controllers[0].Name = name }
	}
	stop := s.writer(of(controller))
	s.writer(of(controller))
	for range 4 {
		s.writer(of(another))
	}
	const keys = 30
	for i := range keys {
		s.store(fmt.Sprint("web", i), nil, creates(fmt.Sprint("web", i), 1)...)
		s.storeOf(another, fmt.Sprint("job", i))
		if i == keys/2 {
			eventually.True(s, eventually.Long, "outcomes", func() bool { return s.outcomes() > 3 })
			stop()
		}
	}
	for i := range keys {
		if o := s.outcome(fmt.Sprint("web", i)); !o.OK() {
			t.Errorf("web%d: %+v", i, o)
		}
	}
	eventually.True(s, eventually.Long, "outcomes of the other controller", func() bool {
		state, err := s.bus.StreamState(t.Context(), subject.OutcomeStream(another))
		s.must(err)
		return state.Messages == keys
	})
	for i := range keys {
		for _, name := range []string{"web", "job"} {
			if n := s.api.Created(fmt.Sprintf("%s%s%d-0", pods, name, i)); n != 1 {
				t.Errorf("the pod of %s%d was made %d times", name, i, n)
			}
		}
	}
}

// storeOf stores a turn of a controller that creates one pod.
func (s *scene) storeOf(name, key string) {
	s.Helper()
	turn := events.Turn{Controller: name, Key: events.Key{Namespace: "ns", Name: key}, Lane: events.LaneWrite, Now: time.Now(), Commands: creates(key, 1)}
	turn.Pack()
	m, err := events.EncodeJSON(turn, turn.Trace)
	s.must(err)
	m.Subject = subject.Turn(name, turn.Lane, turn.Key)
	_, err = s.bus.Put(s.Context(), m, m.Subject)
	s.must(err)
}
