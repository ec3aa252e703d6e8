package kindlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// The scrubber does not report lost messages that a gap in the log reports, or that have expired.
func TestTheScrubberFindsHoles(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 5, 0)
	pass := func() []events.Hole {
		t.Helper()
		found, err := (&scrubber{bus: k.bus, kind: "pods"}).pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if found := pass(); len(found) != 0 {
		t.Errorf("in a whole log the scrubber finds %+v, want nothing", found)
	}
	s := &scrubber{bus: k.bus, kind: "pods", next: 1}
	watchertest.Lose(a, 6)
	watchertest.Lose(a, 5)
	if held, err := s.lastHeld(t.Context(), 6); err != nil || held != 4 {
		t.Errorf("the last message that the log holds is %d, %v; want 4", held, err)
	}
	a.Fail(bustest.Follow, events.ErrDamaged)
	if found := pass(); len(found) != 1 || found[0].From != 1 || found[0].To != 4 {
		t.Errorf("in a log that cannot be read the scrubber finds %+v, want 1 to 4", found)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	a.Fail(bustest.Follow, nil)
	if _, err := (&scrubber{bus: k.bus, kind: "pods"}).pass(ended); err == nil {
		t.Error("a pass with an ended context returns no error")
	}
}

// The scrubber reads windows of a thousand messages, two seconds apart. It reports neither messages
// that gaps report nor expired ones.
func TestHowALogIsReadThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 2500, 0)
		began := time.Now()
		s := scrubber{bus: k.bus, kind: "pods", pause: scrubPause}
		if found, err := s.pass(t.Context()); err != nil || len(found) != 0 || time.Since(began) != 3*scrubPause || s.next != 2502 {
			t.Errorf("the scrubber finds %+v, %v, in %v, up to %d; want nothing, in three pauses, up to 2502", found, err, time.Since(began), s.next)
		}
		k, a = recorded(t, 5, 0)
		w := watchertest.Worn(a, logPods, nil, 1, 2)
		pass := func() []events.Hole {
			t.Helper()
			found, err := (&scrubber{bus: w, kind: "pods"}).pass(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if found := pass(); len(found) != 0 {
			t.Errorf("before the first message the scrubber finds %+v, want nothing", found)
		}
		w = watchertest.Worn(a, logPods, nil, 3, 4)
		if found := pass(); len(found) != 1 || found[0].From != 3 || found[0].To != 4 {
			t.Errorf("of two lost messages the scrubber finds %+v, want 3 to 4", found)
		}
		for first, want := range map[uint64]string{1: "[3-4]", 4: "[4-4]", 5: "[]"} {
			s, got := scrubber{bus: a, kind: "pods"}, []string{}
			for _, sequence := range []uint64{2, 5} {
				log := watchertest.StateOf(t, a.Bus, logPods)
				log.First = first // so when the scrubber asks
				watchertest.Stand(a, logPods, log)
				m, _, err := a.At(t.Context(), logPods, sequence)
				if err != nil || s.check(t.Context(), m) != nil {
					t.Fatal("it cannot be checked", err)
				}
			}
			for _, h := range s.found {
				got = append(got, fmt.Sprint(h.From, "-", h.To))
			}
			if fmt.Sprint(got) != want {
				t.Errorf("in a log that begins with %d by now the scrubber finds %v, want %s", first, got, want)
			}
		}
		a.OnStreamState = nil
		s = scrubber{bus: w, kind: "pods", next: 1}
		a.Fail(bustest.StreamState, away, logPods)
		if err := s.window(t.Context(), 6); !errors.Is(err, away) {
			t.Errorf("a window of a log that is away: %v, want the error of the bus", err)
		}
		if _, there, _ := a.Bus.Last(t.Context(), logPods, subject.Mark("pods")); !there {
			t.Error("there is no mark")
		}
	})
}

// The scrubber reads a log ten to twenty minutes after the start, and then every six hours.
func TestWhenALogIsReadThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a := recorded(t, 5, 0)
		logging, log := watchertest.Logged(t)
		ctx, cancel := context.WithCancel(logging)
		done := make(chan struct{})
		w := watchertest.Worn(a, logPods, []uint64{2})
		var mu sync.Mutex
		var findings []events.Hole
		reports := make(chan struct{}, 1) // a token, as a watch gets it
		go func() {
			defer close(done)
			Scrub(ctx, w, "pods", func(found []events.Hole) {
				mu.Lock()
				defer mu.Unlock()
				findings = append(findings, found...)
				select {
				case reports <- struct{}{}:
				default:
				}
			})
		}()
		found := func() int {
			mu.Lock()
			defer mu.Unlock()
			return len(findings)
		}
		if time.Sleep(scrubFirst - 1); found() != 0 || len(reports) != 0 { // virtual
			t.Error("the log is scrubbed before ten minutes are over")
		}
		time.Sleep(scrubFirst + scrubPause)
		first := found()
		if first == 0 || len(reports) != 1 {
			t.Errorf("after twenty minutes %d holes are found and reported %d times, want some, and once", first, len(reports))
		}
		<-reports
		time.Sleep(scrubEvery - scrubFirst - scrubPause - 1)
		if found() != first || len(reports) != 0 {
			t.Errorf("before six hours are over %d more holes are found, want none", found()-first)
		}
		a.Fail(bustest.StreamState, away, logPods)
		if time.Sleep(scrubFirst + 2*scrubPause); found() != first || !strings.Contains(log(), "Cannot read the log through") || len(reports) != 1 {
			t.Errorf("with a log that is away %d more holes are found, and the log says\n%s", found()-first, log())
		}
		a.Fail(bustest.StreamState, nil, logPods)
		if time.Sleep(scrubEvery); found() != 2*first {
			t.Errorf("after that %d holes are found, want %d", found()-first, first)
		}
		cancel()
		<-done
	})
}
