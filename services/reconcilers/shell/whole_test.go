package shell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// TestWhatIsNotWholeIsNotBelieved: the follower's verdict on what it has folded, at the end of
// its log.
func TestWhatIsNotWholeIsNotBelieved(t *testing.T) {
	pod := func(at uint64) events.Message {
		return delta(kinds.Pods.Kind, events.Is, aPod(fmt.Sprint("p", at), "", int(at)), at)
	}
	one, two, mark := pod(1), pod(2), markAt(kinds.Pods.Kind, "2", 3)
	damaged := events.Seal(two)
	damaged.Header[events.HeaderRV] = []string{"200"}
	for name, tc := range map[string]struct {
		told   []events.Message
		broken bool
		found  int // times that the damage is found again before a census agrees
	}{
		"whole":               {[]events.Message{one, two, said(mark, one, two)}, false, 0},
		"no census":           {[]events.Message{one, two, mark}, false, 0},
		"one is missing":      {[]events.Message{two, said(mark, one, two)}, true, 1},
		"one too many":        {[]events.Message{one, two, said(mark, two)}, true, 1},
		"one is another":      {[]events.Message{one, two, said(mark, one, pod(3))}, true, 1},
		"one is damaged":      {[]events.Message{one, damaged, mark}, true, 2},
		"the mark is damaged": {[]events.Message{one, two, {Subject: mark.Subject, Sequence: 3, Header: map[string][]string{events.HeaderSum: {"0"}}}}, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var trouble []error
			f := Follower{
				Bus: edges{log: shape{3, 3}}, Cache: cache.New(), Kind: kinds.Pods.Kind, goal: 3,
				Troubled: func(err error) { trouble = append(trouble, err) },
			}
			f.Cache.Follow(f.Kind)
			f.Cache.Fold(f.Kind.Name, tc.told)
			err := f.checkCensus()
			if tc.broken != errors.Is(err, events.ErrDamaged) || !tc.broken && err != nil {
				t.Fatalf("the check of the census ends with %v", err)
			}
			if !tc.broken {
				return
			}
			// After the second fold the engine stays shut until a census agrees.
			f.reportDamage(err)
			if f.open(); f.opened || len(trouble) != 1 || trouble[0] == nil {
				t.Errorf("with damage the kind is open: %t, and the reports are %v; want it shut, and one report", f.opened, trouble)
			}
			f.Cache.Forget(f.Kind.Name)
			f.Cache.Fold(f.Kind.Name, tc.told) // damage on disk comes again
			if err := f.checkCensus(); err != nil || f.isConsistent() {
				t.Errorf("folded again, the check of the census ends with %v; want no error, and the kind not consistent yet", err)
			}
			three := markAt(kinds.Pods.Kind, "3", 6)
			f.Cache.Fold(f.Kind.Name, []events.Message{again(one, 4), again(two, 5), three})
			if err := f.checkCensus(); err != nil || f.isConsistent() {
				t.Errorf("without a census in the last message the check ends with %v; want no error, and the kind not consistent yet", err)
			}
			for at := range uint64(2) {
				f.Cache.Fold(f.Kind.Name, []events.Message{said(markAt(kinds.Pods.Kind, "4", 7+at), one, two)})
				if err := f.checkCensus(); err != nil {
					t.Fatal(err)
				}
			}
			if f.open(); !f.opened || len(trouble) != 2+tc.found || trouble[len(trouble)-1] != nil {
				t.Errorf("after the repair the kind is open: %t, and the reports are %v; want it open, and the end of the trouble last", f.opened, trouble)
			}
		})
	}
}

// again is a message stored once more.
func again(m events.Message, at uint64) events.Message {
	m.Sequence = at
	return m
}

// heard is a bus that keeps the published messages.
type heard struct {
	edges
	said chan []byte
}

func (h heard) Broadcast(topic string, data []byte) error {
	if topic == report.DamageTopic {
		h.said <- data
	}
	return nil
}

// TestTroubleIsSaidUntilItEnds, so that a watcher that comes late hears it.
func TestTroubleIsSaidUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var trouble damageReport
		b := heard{said: make(chan []byte, 100)}
		go trouble.run(t.Context(), b)
		wait := func(want int) {
			t.Helper()
			<-time.After(10 * reportEvery)
			synctest.Wait()
			if got := len(b.said); got != want {
				t.Fatalf("in ten seconds the damage was reported %d times, want %d", got, want)
			}
		}
		wait(0)
		trouble.begin(events.ErrDamaged, report.Damage{Kind: "pods", End: 7})
		wait(10)
		var d report.Damage
		if err := json.Unmarshal(<-b.said, &d); err != nil || d.Kind != "pods" || d.End != 7 {
			t.Errorf("the reported damage is %+v, %v; want pods with the end 7", d, err)
		}
		trouble.end()
		wait(9)
	})
}

// mute is a bus that does not tell how far a stream reaches while last is 0.
type mute struct {
	heard
	last *atomic.Uint64
}

func (m mute) StreamState(context.Context, string) (bus.State, error) {
	if m.last.Load() == 0 {
		return bus.State{}, errors.New("away")
	}
	return bus.State{Last: m.last.Load()}, nil
}

// A watcher ignores a report without End. A follower whose bus did not tell the end when the trouble
// began asks for it before it reports, and keeps that end.
func TestTroubleIsSaidWithTheEndOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last atomic.Uint64
		b := mute{heard: heard{said: make(chan []byte, 100)}, last: &last}
		f := &Follower{Bus: b, Cache: cache.New(), Kind: kinds.Pods.Kind}
		f.reportDamage(events.ErrDamaged)
		go f.trouble.run(t.Context(), b)
		time.Sleep(3*reportEvery + 1)
		if len(b.said) != 0 {
			t.Errorf("damage without a known end of the log was reported %d times, want 0", len(b.said))
		}
		last.Store(7)
		time.Sleep(2 * reportEvery)
		last.Store(9)
		time.Sleep(2 * reportEvery)
		synctest.Wait()
		if len(b.said) != 4 {
			t.Fatalf("the damage was reported %d times, want 4", len(b.said))
		}
		for range 4 {
			var d report.Damage
			if err := json.Unmarshal(<-b.said, &d); err != nil || d.Kind != "pods" || d.End != 7 {
				t.Errorf("the reported damage is %+v, %v; want pods with the end 7", d, err)
			}
		}
	})
}
