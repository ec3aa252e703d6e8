package kindlog

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/services/watcher/watchertest"
)

// Replay reads a stream up to its end at the start, as long as messages arrive.
func TestAStreamIsReadToItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, a := recorded(t, 5, 0)
		all := watchertest.StateOf(t, a.Bus, logPods)
		read := func(from uint64, at bus.State) (got []uint64, err error) {
			err = Replay(t.Context(), k.bus, "pods", from, at, func(m events.Message) error { got = append(got, m.Sequence); return nil })
			return got, err
		}
		shorter, none := all, all
		shorter.Last, none.Messages = 4, 0
		for what, c := range map[string]struct {
			from uint64
			at   bus.State
			want string
		}{
			"from the first": {0, all, "[1 2 3 4 5 6]"}, "from the second": {2, all, "[2 3 4 5 6]"}, "to the fourth": {1, shorter, "[1 2 3 4]"},
			"the last": {6, all, "[6]"}, "behind the last": {7, all, "[]"}, "nothing": {1, none, "[]"},
		} {
			if got, err := read(c.from, c.at); err != nil || fmt.Sprint(got) != c.want {
				t.Errorf("%s: %v, %v, want %s", what, got, err, c.want)
			}
		}
		full := errors.New("full")
		if err := Replay(t.Context(), k.bus, "pods", 1, all, func(events.Message) error { return full }); !errors.Is(err, full) {
			t.Errorf("Replay to a handler that fails: %v, want its error", err)
		}
		more := all
		more.Last, more.Messages = all.Last+5, all.Messages+5
		watchertest.Stand(a, logPods, more)
		began := time.Now()
		if _, err := read(1, more); !errors.Is(err, events.ErrDamaged) || time.Since(began) < readPatience || time.Since(began) > 2*readPatience {
			t.Errorf("Replay of a stream that says that it goes on: %v after %v, want ErrDamaged after the patience", err, time.Since(began))
		}
		a.OnStreamState = nil
		if got, err := read(1, more); err != nil || len(got) != 6 {
			t.Errorf("Replay of a stream that has fewer messages by now: %v, %v; want 6", got, err)
		}
		a.Fail(bustest.StreamState, away, logPods)
		if _, err := read(1, more); !errors.Is(err, away) {
			t.Errorf("Replay of a stream whose state cannot be read: %v, want the error of the bus", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := Replay(ended, k.bus, "pods", 1, all, func(events.Message) error { return nil }); err == nil {
			t.Error("Replay with an ended context returns no error")
		}
	})
}

// A silence lasts only while this process runs and can hear.
func TestASilenceIsHeard(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := quietTime{lastRan: now}
	for _, c := range []struct{ after, want time.Duration }{
		{300 * time.Millisecond, 300 * time.Millisecond}, {700 * time.Millisecond, time.Second}, {time.Hour, 2 * time.Second}, {time.Second, 3 * time.Second},
	} {
		now = now.Add(c.after)
		if got := s.elapsed(now); got != c.want {
			t.Errorf("after %v it has lasted %v, want %v", c.after, got, c.want)
		}
	}
}

// A reader that begins behind the first message waits for the last message that still exists.
func TestWhatIsLeftOfAStream(t *testing.T) {
	t.Parallel()
	k, a := recorded(t, 30, 0)
	for what, c := range map[string]struct {
		from, read uint64
		missing    []uint64
		want       uint64
		err        error
	}{
		"from the first":           {1, 0, []uint64{31}, 31, nil},
		"all is there":             {2, 5, nil, 31, nil},
		"the last is gone":         {2, 5, []uint64{31}, 30, nil},
		"two are gone":             {2, 5, []uint64{31, 30}, 29, nil},
		"all behind what was read": {2, 28, []uint64{31, 30, 29}, 28, nil},
		"sixteen are gone":         {2, 5, []uint64{31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16}, 15, nil},
		"seventeen are gone":       {2, 5, []uint64{31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16, 15}, 15, nil},
		"the bus is away":          {2, 5, nil, 31, away},
	} {
		a.OnAt = nil
		for _, m := range c.missing {
			watchertest.Lose(a, m)
		}
		a.Fail(bustest.At, c.err, logPods)
		state := watchertest.StateOf(t, a.Bus, logPods)
		state.Messages += 7
		if err := left(t.Context(), k.bus, logPods, c.from, c.read, &state); !errors.Is(err, c.err) || state.Last != c.want || state.Messages != 31 {
			t.Errorf("%s: %d messages up to %d are left, %v; want up to %d", what, state.Messages, state.Last, err, c.want)
		}
	}
	state := bus.State{Messages: 3, Last: 31}
	if err := left(t.Context(), k.bus, logPods, 1, 0, &state); err != nil || state.Messages != 3 {
		t.Errorf("of a stream that has more messages by now %d are left to read, %v; want 3", state.Messages, err)
	}
}

// TestAStoppedReaderHearsNoSilence: a stream is not silent while its reader is stopped, and a
// reader that listens all the time notices silence in time.
func TestAStoppedReaderHearsNoSilence(t *testing.T) {
	now := time.Now()
	s := quietTime{lastRan: now}
	if lasts := s.elapsed(now.Add(time.Hour)); lasts != maxElapsed {
		t.Errorf("after a stop of an hour the silence lasts %v, want the maximum of a step", lasts)
	}
	s = quietTime{lastRan: now}
	for range int(readPatience / readPoll) {
		now = now.Add(readPoll)
		s.elapsed(now)
	}
	if s.total != readPatience {
		t.Errorf("a reader that has listened for %v has counted %v of silence", readPatience, s.total)
	}
}
