package apply_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// When a turn is lost no more of its requests are made than were in flight, however many might
// have been made at once.
func TestALostTurnMakesNoMoreRequests(t *testing.T) {
	const (
		many   = 30
		flying = 3
		kept   = 10
	)
	s := applytest.Serve(t)
	var commands []events.Command
	for i := range many {
		name := fmt.Sprint("web-", i)
		s.Put(podPath+name, name, map[string]any{})
		commands = append(commands, deletion(name, types.UID(name)))
	}
	var answered atomic.Int64
	s.Hold(func(apiservertest.Request) { answered.Add(1) })
	d := open(t, s, func(c *apply.Config) { c.MaxInFlight = flying })
	p := plan.New(events.Turn{Controller: actor.Controller, Lane: events.LaneWrite, Commands: commands}, plan.Options{})
	holds := func() bool { return answered.Load() < kept }
	_, done := d.Execute(t.Context(), actor, p, holds, func(command, try int) string { return strconv.Itoa(command) })
	if made := len(s.Requests()); done || made < kept || made > kept+flying {
		t.Errorf("%d requests were made, done: %t; the turn was lost after %d, %d at a time", made, done, kept, flying)
	}
}

// A request that waits for its retry is not made if the turn was lost meanwhile: another writer
// may be done with the turn by then, and its key decided anew.
func TestATurnThatIsLostInAPauseMakesNoMoreRequests(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(podPath+"web-0", "web-0", map[string]any{})
	s.Break(func(apiservertest.Request) apiservertest.Fault {
		return apiservertest.Fault{Code: http.StatusTooManyRequests}
	})
	p := plan.New(events.Turn{Controller: actor.Controller, Lane: events.LaneWrite, Commands: []events.Command{deletion("web-0", "web-0")}}, plan.Options{})
	asked := 0
	holds := func() bool { asked++; return asked <= 2 } // until the second try is waiting
	_, done := open(t, s).Execute(t.Context(), actor, p, holds, func(command, try int) string { return strconv.Itoa(command) })
	if made := len(s.Requests()); done || made != 1 {
		t.Errorf("%d requests were made, done: %t; the turn was lost before the second", made, done)
	}
}

// A pause ends with its turn, however long the API server asked to wait.
func TestALostTurnDoesNotWait(t *testing.T) {
	s := applytest.Serve(t)
	for _, name := range []string{"web-0", "web-1"} {
		s.Put(podPath+name, name, map[string]any{})
	}
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if strings.HasSuffix(r.Path, "web-0") {
			return apiservertest.Fault{Code: http.StatusTooManyRequests, RetryAfter: 20}
		}
		return apiservertest.Fault{}
	})
	turn := events.Turn{Controller: actor.Controller, Lane: events.LaneWrite, Commands: []events.Command{deletion("web-0", "web-0"), deletion("web-1", "web-1")}}
	holds := func() bool { return s.Answered("DELETE "+podPath+"web-1") == 0 }
	began := time.Now()
	_, done := open(t, s).Execute(t.Context(), actor, plan.New(turn, plan.Options{}), holds, func(command, try int) string { return strconv.Itoa(command) })
	if took := time.Since(began); done || took > 10*time.Second {
		t.Errorf("a turn that is lost at once ends after %v, done: %t; want not done, in 10 s at most", took, done)
	}
}

// No more requests of a turn are started than may be in flight: one that waits for its slot would
// be made after the turn was lost.
func TestNoRequestWaitsForItsPlace(t *testing.T) {
	const flying = 2
	s := applytest.Serve(t)
	var commands []events.Command
	for i := range 5 {
		name := fmt.Sprint("web-", i)
		s.Put(podPath+name, name, map[string]any{})
		commands = append(commands, deletion(name, types.UID(name)))
	}
	var arrived atomic.Int64
	all := make(chan struct{})
	s.Hold(func(apiservertest.Request) {
		if arrived.Add(1) == flying {
			close(all)
		}
		<-all
	})
	holds := func() bool { return arrived.Load() < flying }
	p := plan.New(events.Turn{Controller: actor.Controller, Lane: events.LaneWrite, Commands: commands}, plan.Options{})
	_, done := open(t, s, func(c *apply.Config) { c.MaxInFlight = flying }).Execute(t.Context(), actor, p, holds, func(command, try int) string { return strconv.Itoa(command) })
	if made := len(s.Requests()); done || made != flying {
		t.Errorf("%d requests were made, done: %t; the turn was lost when %d were under way", made, done, flying)
	}
}

// An answer that arrives counts, also when the writer was told to stop meanwhile: its effect need
// not be looked for again.
func TestAnAnswerThatCameCounts(t *testing.T) {
	s := applytest.Serve(t)
	s.Put(podPath+"web-0", "web-0", map[string]any{})
	ctx, cancel := context.WithCancel(t.Context())
	door := open(t, s, func(c *apply.Config) {
		c.Announce = func(_ context.Context, w trace.Write) {
			if !w.Begins {
				cancel()
			}
		}
	})
	p := plan.New(events.Turn{Controller: actor.Controller, Lane: events.LaneWrite, Commands: []events.Command{deletion("web-0", "web-0")}}, plan.Options{})
	results, done := door.Execute(ctx, actor, p, always, func(command, try int) string { return strconv.Itoa(command) })
	if !done || len(results) != 1 || results[0].Status != events.Applied {
		t.Errorf("done: %t, %+v", done, results)
	}
}

// Only repeated requests count as retries.
func TestRetriesAreCounted(t *testing.T) {
	s := applytest.Serve(t)
	var asked atomic.Int64
	s.Break(func(apiservertest.Request) apiservertest.Fault {
		if asked.Add(1) == 1 {
			return apiservertest.Fault{Code: http.StatusTooManyRequests}
		}
		return apiservertest.Fault{}
	})
	metrics := apply.NewMetrics()
	carry(t, open(t, s, func(c *apply.Config) { c.Metrics = metrics }), plan.Options{}, creates(3)...)
	if n := metrictest.Collect(t, metrics.Collectors()...).Sum("millrace_writer_retries_total", "create"); n != 1 {
		t.Errorf("%v retries are counted after one refusal", n)
	}
}
