package watcher

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
)

// However many writers and writes other processes invent, causes keeps a bounded number of them,
// and still hears a known writer.
func TestMadeUpWritesAreBounded(t *testing.T) {
	t.Parallel()
	// In a bubble, where no time passes: causes forgets a writer that is silent for a while.
	synctest.Test(t, boundMadeUpWrites)
}

func boundMadeUpWrites(t *testing.T) {
	c := newRecentWrites(tracetest.New().Tracer("watcher", trace.Options{}))
	about := func(n int) events.Ref { return events.Ref{Kind: "pods", Name: fmt.Sprint("p-", n)} }
	honest := trace.Write{Writer: "w", ID: "1", About: about(-1), Begins: true}
	c.receive(honest)
	for n := range 200_000 {
		c.receive(trace.Write{Writer: fmt.Sprint("stale-", n%100), ID: fmt.Sprint(n), About: about(n % 500), Begins: true})
	}
	for n := range 1000 {
		c.endUnlisted(trace.Roll{Writer: fmt.Sprint("stranger-", n), Open: []string{}})
	}
	c.endUnlisted(trace.Roll{Writer: "w", Open: []string{"1"}})
	flights := 0
	for _, of := range c.inFlight {
		flights += len(of)
	}
	if len(c.lastHeard) > maxWriters || flights > maxWritesInFlight || flights != c.inFlightCount {
		t.Errorf("%d writers and %d writes are remembered (counted %d), want %d and %d at most", len(c.lastHeard), flights, c.inFlightCount, maxWriters, maxWritesInFlight)
	}
	if !c.await(version{uid: "u", number: "2"}, false, honest.About, make(chan struct{}, 1)) {
		t.Error("a change does not wait for the write of a writer that was there before")
	}
	c.giveUp(about(0))
	for n := range 100 {
		c.endUnlisted(trace.Roll{Writer: fmt.Sprint("stale-", n), Open: []string{}})
	}
	c.end(honest)
	c.end(honest) // which changes nothing
	if len(c.inFlight) != 0 || c.inFlightCount != 0 {
		t.Errorf("%d objects have writes under way, and %d are counted, want none", len(c.inFlight), c.inFlightCount)
	}
}

// TestMadeUpDamageIsBounded: the watcher records the reason of any process's damage report, cut
// short. A message that is too long is not a report.
func TestMadeUpDamageIsBounded(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 2 })
	say := func(reason string) {
		data, err := json.Marshal(events.Damage{Kind: kinds.Pods.Name, Hole: events.Hole{Reason: reason}, End: 2})
		if err == nil {
			err = b.Broadcast(events.DamageTopic, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	for time.Since(began) < 2*checkEvery {
		say(strings.Repeat("no report ", 100_000))
		time.Sleep(checkEvery / 10)
	}
	if got := len(logOf(t, b)); got != 2 {
		t.Fatalf("a report of a megabyte has been looked into: %d messages", got)
	}
	until(t, func() bool {
		say(strings.Repeat("long ", 500))
		return len(logOf(t, b)) >= 4
	})
	until(t, func() bool { log := logOf(t, b); return log[len(log)-2].Op == events.Gap })
	log := logOf(t, b)
	if got := hole(t, log[len(log)-2]).Reason; len(got) > 600 {
		t.Errorf("the gap has a reason of %d bytes", len(got))
	}
}
