package causes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/trace"
	"github.com/millrace/millrace/pkg/events/trace/tracetest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// causes remembers a bounded number of writes in flight, and counts a write that begins twice once.
func TestHowManyWritesAreRemembered(t *testing.T) {
	t.Parallel()
	c := NewWrites(tracetest.New().Tracer("watcher", trace.Options{}))
	begins := func(id string) {
		c.receive(trace.Write{Writer: "w", ID: id, Begins: true, About: watchertest.APod("a")})
	}
	for i := range maxWritesInFlight - 1 {
		begins(fmt.Sprint(i))
	}
	begins("0")
	if begins("last"); c.inFlightCount != 16384 {
		t.Errorf("%d writes are remembered", c.inFlightCount)
	}
	if begins("more"); c.inFlightCount != 16384 || len(c.inFlight[watchertest.APod("a")]) != 16384 {
		t.Errorf("%d writes are remembered, where there is room for one less", c.inFlightCount)
	}
}

// A waiting change is woken when a write in flight ends, and only then.
func TestWhoWaitsIsToldOfWhatEnds(t *testing.T) {
	t.Parallel()
	c := NewWrites(tracetest.New().Tracer("watcher", trace.Options{}))
	look := make(chan struct{}, 1)
	begins := func(id string) {
		c.receive(trace.Write{Writer: "w", ID: id, Begins: true, About: watchertest.APod("a")})
	}
	begins("1")
	begins("2")
	waits := func() bool { return c.await(version{"u", "1"}, false, watchertest.APod("a"), look) }
	if !waits() {
		t.Fatal("a change does not wait for a write under way")
	}
	if c.endUnlisted(trace.Roll{Writer: "w", Open: []string{"1", "2"}}); len(look) != 0 || c.inFlightCount != 2 {
		t.Errorf("a roll that names all tells of news, and %d are under way", c.inFlightCount)
	}
	if c.endUnlisted(trace.Roll{Writer: "w", Open: []string{"2"}}); len(look) != 1 || c.inFlightCount != 1 || len(c.inFlight) != 1 {
		t.Errorf("a roll that names one of two writes is no news, or %d are under way, want 1", c.inFlightCount)
	}
	<-look
	if !waits() {
		t.Fatal("a change does not wait for the other write")
	}
	if c.receive(trace.Write{Writer: "w", ID: "2", About: watchertest.APod("a")}); len(look) != 1 || c.inFlightCount != 0 || len(c.inFlight) != 0 {
		t.Errorf("the end of the last one is not told, and %d are under way", c.inFlightCount)
	}
	if _, ours := c.traceOf(version{"", ""}, false); ours {
		t.Error("traceOf knows a write without a version")
	}
	if waits() {
		t.Error("a change waits when no write is under way")
	}
	begins("3")
	c.receive(trace.Write{Writer: "w", ID: "4", About: watchertest.APod("b"), UID: "u", Version: "1"})
	if waits() {
		t.Error("a change waits although its cause is known")
	}
}

// The watcher retries once a second to listen to the writers.
func TestWhatCannotBeHeardIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := bustest.Wrap(memory.New(memory.Options{})).Fail(bustest.Listen, errors.New("closed"))
		w := NewWrites(tracetest.New().Tracer("watcher", trace.Options{}))
		w.receive(trace.Write{Writer: "w", ID: "1", Begins: true, About: watchertest.APod("a")})
		logging, log := watchertest.Logged(t)
		ctx, cancel := context.WithCancel(logging)
		time.AfterFunc(4500*time.Millisecond, cancel) // virtual
		watches := func(kinds.Name) bool { return true }
		w.Listen(ctx, c, watches)
		if tried := c.Count(bustest.Listen); tried != 5 || strings.Count(log(), "Cannot subscribe") != 5 {
			t.Errorf("in 4.5 s the watcher subscribed %d times, want 5; the log is\n%s", tried, log())
		}
		if w.inFlightCount != 0 {
			t.Error("a write of which nothing can be heard is waited for")
		}
		none := NewWrites(nil)
		none.Listen(t.Context(), c, watches)
		if tried := c.Count(bustest.Listen); tried != 5 || len(none.Collectors()) != 0 || len(w.Collectors()) != 1 {
			t.Errorf("without traces the watcher subscribes, %d times in all", tried)
		}
	})
}
