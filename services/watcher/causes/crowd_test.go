package causes

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// However many writers and writes other processes invent, causes keeps a bounded number of them,
// and still hears a known writer.
func TestMadeUpWritesAreBounded(t *testing.T) {
	t.Parallel()
	// In a bubble, where no time passes: causes forgets a writer that is silent for a while.
	synctest.Test(t, boundMadeUpWrites)
}

func boundMadeUpWrites(t *testing.T) {
	c := NewWrites(tracetest.New().Tracer("watcher", trace.Options{}))
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

// The watcher remembers at most maxWriters writers, and forgets those that are silent.
func TestMadeUpWritersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewWrites(tracetest.New().Tracer("watcher", trace.Options{}))
		write := func(writer, id string) trace.Write {
			return trace.Write{Writer: writer, ID: id, Begins: true, About: watchertest.APod("a")}
		}
		for i := range maxWriters {
			c.receive(write(fmt.Sprint("w", i), "1"))
		}
		if c.receive(write("late", "1")); c.inFlightCount != maxWriters || len(c.lastHeard) != maxWriters {
			t.Errorf("%d writes of %d writers are under way", c.inFlightCount, len(c.lastHeard))
		}
		c.receive(write("w0", "1")) // again
		c.receive(write("w0", "2"))
		if c.inFlightCount != maxWriters+1 {
			t.Errorf("%d writes are under way", c.inFlightCount)
		}
		c.endUnlisted(trace.Roll{Writer: "w0", Open: []string{"2"}})
		if c.endUnlisted(trace.Roll{Writer: "late"}); c.inFlightCount != maxWriters {
			t.Errorf("after a roll of another writer %d writes are under way, want as many as before", c.inFlightCount)
		}
		time.Sleep(writerTimeout) // virtual
		if c.silent("w1") {
			t.Error("a writer is silent too soon")
		}
		time.Sleep(1)
		look := make(chan struct{}, 1)
		if !c.silent("w1") || c.await(version{"u", "1"}, false, watchertest.APod("a"), look) {
			t.Error("a silent writer is waited for")
		}
		c.receive(write("late", "1"))
		if !c.await(version{"u", "1"}, false, watchertest.APod("a"), look) || c.await(version{"u", "1"}, false, watchertest.APod("b"), look) || len(c.waiting) != 1 {
			t.Errorf("%d changes wait, want that the one whose write is under way does", len(c.waiting))
		}
		c.await(version{"u", "1"}, false, watchertest.APod("a"), look)
		if len(c.waiting) != 1 {
			t.Error("a change that waits twice is kept twice")
		}
		c.receive(trace.Write{Writer: "late", ID: "1", About: watchertest.APod("a"), UID: "u", Version: "1", Ends: true, Trace: events.Trace{Parent: "p"}})
		if _, ours := c.traceOf(version{"u", "1"}, false); !ours || len(look) != 1 || len(c.waiting) != 0 {
			t.Error("the answer of a write is not known, or not told")
		}
		if _, ours := c.traceOf(version{"u", "2"}, false); ours {
			t.Error("another version is ours")
		}
		if _, ours := c.traceOf(version{"u", "2"}, true); !ours {
			t.Error("the end is not ours")
		}
		before := c.inFlightCount
		if c.giveUp(watchertest.APod("a")); c.inFlightCount != 0 || before == 0 {
			t.Errorf("%d writes are under way of what is despaired of, before %d", c.inFlightCount, before)
		}
		c.receive(write("late", "9"))
		if c.endAllWrites(); c.inFlightCount != 0 || len(c.inFlight) != 0 {
			t.Errorf("%d writes are under way of which no one is heard", c.inFlightCount)
		}
	})
}
