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
	"github.com/millrace/millrace/services/writer"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
)

// waited is longer than a turn is taken for new only because it is young.
const waited = 1200 * time.Millisecond

// crowd stores deletes of so many pods, a turn each.
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

// looks is how often pods were looked at, once all of the crowd are gone.
func (s *scene) looks(n int) (looks int) {
	s.Helper()
	for i := range n {
		if o := s.outcome(fmt.Sprint("pod-", i)); !o.OK() || o.Results[0].Status != events.Applied {
			s.Errorf("%+v", o)
		}
	}
	for _, r := range s.api.Requests() {
		if r.Method == http.MethodGet && strings.HasPrefix(r.Path, pods) {
			looks++
		}
	}
	return looks
}

// age waits until what is stored now has waited.
func (s *scene) age() {
	s.Helper()
	stored := time.Now()
	s.eventually("age", func() bool { return time.Since(stored) > waited })
}

// Turns of a crowd that wait behind each other are carried out without a look at what
// may have been done of them before: nobody else can have begun them.
func TestACrowdIsNotLookedAt(t *testing.T) {
	const many = 20
	s := newScene(t)
	s.writer(func(c *writer.Config) { c.Concurrent = map[string]int{controller: 1} })
	s.age() // it listens
	goOn := make(chan struct{})
	s.api.Hold(func(fakeserver.Request) { <-goOn })
	s.crowd(many)
	s.age()
	close(goOn)
	if looks := s.looks(many); looks != 0 {
		t.Errorf("%d looks at %d pods", looks, many)
	}
}

// What has waited since before a writer was there may have been begun by another one.
func TestACrowdOfBeforeIsLookedAt(t *testing.T) {
	const many = 20
	s := newScene(t)
	s.crowd(many)
	s.age()
	s.writer()
	if looks := s.looks(many); looks != many {
		t.Errorf("%d looks at %d pods", looks, many)
	}
}

// A writer that was starved for a while, while nobody else was there, goes on with
// a turn where it was: it does not begin anew, nor look at what it has done.
func TestAStarvedWriterGoesOn(t *testing.T) {
	const many = 40
	s := newScene(t)
	line := &tether{Bus: s.bus}
	arrived, goOn := make(chan struct{}), make(chan struct{})
	var posts atomic.Int64
	s.api.Hold(func(r fakeserver.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == many/2 {
			close(arrived)
			<-goOn
		}
	})
	s.writer(func(c *writer.Config) { c.Bus = line })
	s.age() // it listens
	at := s.say(turnOf(t, "web", nil, births("web", many)...))
	<-arrived
	line.cut.Store(true)
	s.age()
	line.cut.Store(false)
	close(goOn)
	if o := s.outcomeOf("web", at); !o.OK() || o.Results[0].Status != events.Applied {
		t.Errorf("%+v", o.Results[0])
	}
	asked := 0
	for _, r := range s.api.Requests() {
		if strings.HasPrefix(r.Path+"/", pods) {
			asked++
		}
	}
	if asked != many {
		t.Errorf("%d requests for %d births", asked, many)
	}
}
