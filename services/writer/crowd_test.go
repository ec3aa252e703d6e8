package writer_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/services/writer"
)

// waited is longer than the age up to which a turn counts as fresh.
const waited = 1200 * time.Millisecond

// crowd stores deletes of n pods, a turn each.
func (s *scene) crowd(n int) {
	s.Helper()
	for i := range n {
		name := fmt.Sprint("pod-", i)
		s.api.Put(pods+name, "uid-"+name, map[string]any{"metadata": map[string]any{"name": name}})
		s.store(name, nil, events.Command{
			Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: name, If: &events.If{UID: types.UID("uid-" + name)},
		})
	}
}

// looks waits until all pods of the crowd are deleted, and returns how often pods were read.
func (s *scene) looks(n int) (looks int) {
	s.Helper()
	for i := range n {
		if o := s.outcome(fmt.Sprint("pod-", i)); !o.OK() || o.Results[0].Status != events.Applied {
			s.Errorf("the outcome is %+v, want Applied", o)
		}
	}
	for _, r := range s.api.Requests() {
		if r.Method == http.MethodGet && strings.HasPrefix(r.Path, pods) {
			looks++
		}
	}
	return looks
}

// age waits until the turns stored so far have waited.
func (s *scene) age() {
	s.Helper()
	stored := time.Now()
	eventually.True(s, eventually.Long, "age", func() bool { return time.Since(stored) > waited })
}

// judged repeats a scenario until it succeeds, unless it fails without an unforeseen expiry. A
// writer whose heartbeats came back too late, because the machine stalled, rightly checks more
// than the scenario expects. wrong is what is wrong with the result.
func judged(t *testing.T, play func(*scene) (wrong string)) {
	t.Helper()
	const plays = 5
	for n := 1; ; n++ {
		s := newScene(t)
		s.started = func(w *writer.Service) { s.service = w }
		wrong := play(s)
		s.age() // the writer counts an expiry when it hears itself again
		switch expiries := s.expiries(); {
		case wrong == "":
			return
		case expiries <= s.foreseen:
			t.Error(wrong)
			return
		case n == plays:
			t.Errorf("the writer had expiries each of %d times: %s", n, wrong)
			return
		default:
			t.Logf("once more after %d of at most %d times, since the writer had %v expiries: %s", n, plays, expiries, wrong)
		}
	}
}

// expiries returns how often the heartbeats of the writer came back too late.
func (s *scene) expiries() float64 {
	s.Helper()
	return metrictest.Collect(s, s.service.Collectors()...).Value(s, "millrace_writer_claim_expiries_total")
}

// listens waits until the writer listens, and ignores its earlier expiries.
func (s *scene) listens() {
	s.Helper()
	s.age()
	s.foreseen = s.expiries()
}

// The writer carries out turns that waited behind each other without a read of earlier effects: no
// other writer can have begun them.
func TestACrowdIsNotLookedAt(t *testing.T) {
	const many = 20
	judged(t, func(s *scene) string {
		s.writer(func(c *writer.Config) { c.Concurrent = map[string]int{controller: 1} })
		s.listens()
		goOn := make(chan struct{})
		s.api.Hold(func(apiservertest.Request) { <-goOn })
		s.crowd(many)
		s.age()
		close(goOn)
		if looks := s.looks(many); looks != 0 {
			return fmt.Sprintf("%d looks at %d pods", looks, many)
		}
		return ""
	})
}

// Another writer may have begun a turn that is older than this writer.
func TestACrowdOfBeforeIsLookedAt(t *testing.T) {
	const many = 20
	judged(t, func(s *scene) string {
		s.crowd(many)
		s.age()
		s.writer()
		s.foreseen = 1 // a new writer has not heard itself yet
		looks := s.looks(many)
		if looks < many {
			t.Errorf("%d looks at %d pods", looks, many)
		}
		if looks > many {
			return fmt.Sprintf("%d looks at %d pods", looks, many)
		}
		return ""
	})
}

// A writer that was starved for a while, and had no other writer beside it, goes on with a turn
// where it was: it neither begins again nor reads its own effects.
func TestAStarvedWriterGoesOn(t *testing.T) { judged(t, starved) }

func starved(s *scene) string {
	const many = 40
	line := &tether{Bus: s.bus}
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var posts atomic.Int64
	s.api.Hold(func(r apiservertest.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == many/2 {
			close(arrived)
			<-goOn
		}
	})
	s.writer(func(c *writer.Config) { c.Bus = line })
	s.listens()
	at := s.say(turnOf(s.T, "web", nil, creates("web", many)...))
	<-arrived
	line.cut.Store(true)
	s.foreseen++
	s.age()
	line.cut.Store(false)
	close(goOn)
	o := s.outcomeOf("web", at)
	if !o.OK() {
		s.Errorf("the result is %+v, want it applied", o.Results[0])
	}
	asked := 0
	for _, r := range s.api.Requests() {
		if strings.HasPrefix(r.Path+"/", pods) {
			asked++
		}
	}
	if asked != many || o.Results[0].Status != events.Applied {
		return fmt.Sprintf("%d requests for %d creates, the first of which is %+v", asked, many, o.Results[0])
	}
	return ""
}
