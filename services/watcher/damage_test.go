package watcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// worn is a bus whose disk has damaged some messages, and lost others.
type worn struct {
	bus.Bus
	damaged, lost map[string]bool // "<stream> <sequence>"
}

func at(stream string, sequence uint64) string { return fmt.Sprint(stream, " ", sequence) }

// wear returns a message as the disk has it.
func (w *worn) wear(m events.Message) (events.Message, bool) {
	place := at(m.Stream, m.Sequence)
	if w.damaged[place] {
		m.Header = maps.Clone(m.Header)
		m.Header[events.HeaderRV] = []string{"1" + m.Get(events.HeaderRV)}
	}
	return m, !w.lost[place]
}

func (w *worn) At(ctx context.Context, stream string, sequence uint64) (events.Message, bool, error) {
	m, there, err := w.Bus.At(ctx, stream, sequence)
	if !there || err != nil {
		return m, there, err
	}
	m, there = w.wear(m)
	return m, there, nil
}

// Last also loses or damages the message.
func (w *worn) Last(ctx context.Context, stream, subject string) (events.Message, bool, error) {
	m, there, err := w.Bus.Last(ctx, stream, subject)
	if !there || err != nil {
		return m, there, err
	}
	m, there = w.wear(m)
	return m, there, nil
}

// StreamState does not count what was lost.
func (w *worn) StreamState(ctx context.Context, stream string) (bus.State, error) {
	state, err := w.Bus.StreamState(ctx, stream)
	for sequence := state.First; err == nil && sequence <= state.Last; sequence++ {
		if w.lost[at(stream, sequence)] {
			state.Messages--
		}
	}
	return state, err
}

func (w *worn) Follow(ctx context.Context, stream string, from uint64, handle func([]events.Message) error) error {
	return w.Bus.Follow(ctx, stream, from, func(batch []events.Message) error {
		kept := batch[:0]
		for _, m := range batch {
			if m, there := w.wear(m); there {
				kept = append(kept, m)
			}
		}
		return handle(kept)
	})
}

func hole(t *testing.T, d events.Delta) (h events.Hole) {
	t.Helper()
	if err := json.Unmarshal(d.Body, &h); err != nil || d.Op != events.Gap {
		t.Fatalf("%s %s: %v", d.Op, d.Body, err)
	}
	return h
}

// TestWhatADiskDidIsMended: each time the first watcher records three pods and stops, the disk does
// something, and the second watcher starts. (F13)
func TestWhatADiskDidIsMended(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		wear []string // what is damaged; with a minus, what is lost
		said []string // by the second watcher
		from uint64
		why  string
	}{
		"nothing":                        {nil, nil, 0, ""},
		"the end is damaged":             {[]string{at(logPods, 4)}, []string{"gap", "mark"}, 4, "the end of the log is damaged"},
		"the end is lost":                {[]string{"-" + at(logPods, 4)}, []string{"gap", "mark"}, 0, "not there any more"},
		"what lies before it is damaged": {[]string{at(logPods, 3)}, []string{"is", "gap", "mark"}, 3, "lost or damaged"},
		"what lies before it is lost":    {[]string{"-" + at(logPods, 3)}, []string{"is", "gap", "mark"}, 3, "lost or damaged"},
		"an object is damaged":           {[]string{at(logPods, 2)}, []string{"is", "gap", "mark"}, 0, "3 objects, 1 of them damaged, where its last message says 3"},
		"an object is lost":              {[]string{"-" + at(logPods, 1)}, []string{"is", "gap", "mark"}, 0, "2 objects, 0 of them damaged, where its last message says 3"},
		"two objects are damaged":        {[]string{at(logPods, 1), at(logPods, 2)}, []string{"is", "is", "gap", "mark"}, 0, "2 of them damaged"},
		"everything is damaged":          {[]string{at(logPods, 1), at(logPods, 2), at(logPods, 3), at(logPods, 4)}, []string{"is", "is", "is", "gap", "mark"}, 4, "the end of the log is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			s, b := serve(t), memory.New(memory.Options{})
			for _, pod := range []string{"a", "b", "c"} {
				s.change("ADDED", pod, 0)
			}
			_, stop := start(t, s, b, "one")
			until(t, func() bool { return len(logOf(t, b)) == 4 })
			stop()
			w := &worn{b, map[string]bool{}, map[string]bool{}}
			for _, place := range tc.wear {
				if rest, lost := strings.CutPrefix(place, "-"); lost {
					w.lost[rest] = true
				} else {
					w.damaged[place] = true
				}
			}
			_, stop = start(t, s, w, "two")
			until(t, func() bool { return len(logOf(t, b)) == 4+len(tc.said) })
			s.change("ADDED", "d", 0)
			until(t, func() bool { return len(logOf(t, b)) == 5+len(tc.said) })
			stop()
			said := logOf(t, b)[4:]
			for i, want := range append(slices.Clone(tc.said), "is") {
				if string(said[i].Op) != want {
					t.Fatalf("the second watcher said %v, want %v", ops(said), tc.said)
				}
			}
			if len(tc.said) > 0 {
				if h := hole(t, said[len(tc.said)-2]); h.From != tc.from || !strings.Contains(h.Reason, tc.why) {
					t.Errorf("the gap says %+v", h)
				}
			}
			if c := said[len(said)-1].Census; c.Objects != 4 {
				t.Errorf("the census behind the last delta is %v", c)
			}
		})
	}
}

// overtaking is a bus on which the newest message of pods arrives when the last mark is looked up.
type overtaking struct {
	bus.Bus
	came atomic.Bool
}

// before returns the log's end as it was before that message.
func (l *overtaking) before(last uint64) uint64 {
	if l.came.Load() {
		return last
	}
	return last - 1
}

func (l *overtaking) StreamState(ctx context.Context, stream string) (bus.State, error) {
	state, err := l.Bus.StreamState(ctx, stream)
	if stream == logPods {
		state.Last = l.before(state.Last)
	}
	return state, err
}

func (l *overtaking) Append(ctx context.Context, kind kinds.Name) (bus.Appender, error) {
	a, err := l.Bus.Append(ctx, kind)
	if err != nil || kind != "pods" || l.came.Load() {
		return a, err
	}
	return &opened{a, l.before(a.Last())}, nil
}

func (l *overtaking) Last(ctx context.Context, stream, of string) (events.Message, bool, error) {
	if of == subject.Mark("pods") {
		defer l.came.Store(true)
	}
	return l.Bus.Last(ctx, stream, of)
}

// opened is an appender that knows no message later than those at the time when it was opened.
type opened struct {
	bus.Appender
	last uint64
}

func (o *opened) Last() uint64 { return o.last }

// Append is refused where another watcher has appended since.
func (o *opened) Append(ctx context.Context, m events.Message) error {
	if o.last != o.Appender.Last() {
		return bus.ErrOvertaken
	}
	return o.Appender.Append(ctx, m)
}

// TestALogThatGoesOnIsNoDamage: another watcher appends while this one finds out what exists, so the
// log refuses what this one appends. It then opens the log anew, and records nothing again.
func TestALogThatGoesOnIsNoDamage(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 3 })
	s.change("MODIFIED", "a", 0)
	until(t, func() bool { return len(logOf(t, b)) == 4 })
	stop()
	l := &overtaking{Bus: b}
	start(t, s, l, "two")
	until(t, l.came.Load)
	s.change("ADDED", "c", 0)
	until(t, func() bool { return len(logOf(t, b)) >= 5 })
	told := ops(logOf(t, b))
	slices.Sort(told[:2]) // a list has no order
	if got := fmt.Sprint(told); got != "[is a is b mark is a is c]" {
		t.Errorf("the log tells %s", got)
	}
}

// TestAStoppedReaderHearsNoSilence: a stream is not silent while its reader is stopped, and a
// reader that listens all the time notices silence in time.
func TestAStoppedReaderHearsNoSilence(t *testing.T) {
	now := time.Now()
	s := quietTime{lastRan: now}
	if lasts := s.elapsed(now.Add(time.Hour)); lasts != maxElapsed {
		t.Errorf("after a stop of an hour it lasts for %v", lasts)
	}
	s = quietTime{lastRan: now}
	for range int(readPatience / readPoll) {
		now = now.Add(readPoll)
		s.elapsed(now)
	}
	if s.total != readPatience {
		t.Errorf("who has listened for %v has heard %v", readPatience, s.total)
	}
}

// TestAGhostIsBuried: an object was deleted while no watcher ran, and the log's message about it is
// damaged.
func TestAGhostIsBuried(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	s.change("ADDED", "stale", 0)
	_, stop := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 3 })
	stop()
	var of uint64
	for i, d := range logOf(t, b) {
		if d.Ref.Name == "stale" {
			of = uint64(i + 1)
		}
	}
	s.change("DELETED", "stale", 0)
	s.forget()
	start(t, s, &worn{b, map[string]bool{at(logPods, of): true}, nil}, "two")
	until(t, func() bool { return len(logOf(t, b)) == 6 })
	if got := fmt.Sprint(ops(logOf(t, b)[3:])); got != "[gone stale gap mark]" {
		t.Errorf("the relist told %s", got)
	}
	if c := logOf(t, b)[5].Census; c.Objects != 1 {
		t.Errorf("the census is %v, want one object", c)
	}
}

// TestReadersAreHeard: the watcher acts on a reader's report once, however often the reader repeats
// it. When the damage returns at once, the watcher records every object again.
func TestReadersAreHeard(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 2 })
	told := func(end uint64, reason string) {
		data, err := json.Marshal(events.Damage{Kind: "pods", Hole: events.Hole{Reason: reason}, End: end})
		if err != nil {
			t.Fatal(err)
		}
		until(t, func() bool {
			if err := b.Broadcast(events.DamageTopic, data); err != nil {
				t.Fatal(err)
			}
			log := logOf(t, b)
			if len(log) < 4 || log[len(log)-2].Op != events.Gap {
				return false // the watcher has not recorded everything yet
			}
			return strings.Contains(hole(t, log[len(log)-2]).Reason, reason)
		})
	}
	told(2, "it lacks an object")
	if got := fmt.Sprint(ops(logOf(t, b))); got != "[is a mark gap mark]" {
		t.Errorf("the log is %s: of one damage there is one gap", got)
	}
	told(4, "it still does")
	log := logOf(t, b)
	if got := fmt.Sprint(ops(log)); got != "[is a mark gap mark is a gap mark]" {
		t.Fatalf("the log is %s: where readers begin, everything is to be said again", got)
	}
	if !log[4].Sync || log[6].Since != 5 || log[6].Census.Objects != 1 {
		t.Errorf("it is said again %+v, and readers begin with %d", log[4], log[6].Since)
	}
}

// TestTheLogIsReadThrough: the scrubber finds holes that no gap reports yet, and the session
// records each once.
func TestTheLogIsReadThrough(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	for i := range 20 {
		s.change("ADDED", fmt.Sprint("p", i), 0)
	}
	service, _ := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 21 })
	stream := subject.LogStream("pods")
	w := &worn{b, map[string]bool{at(stream, 5): true}, map[string]bool{at(stream, 9): true, at(stream, 10): true}}
	pass := func() []events.Hole {
		scrubber := scrubber{bus: w, kind: "pods"}
		found, err := scrubber.pass(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	found := pass()
	if len(found) != 3 || found[0].From != 5 || found[1].From != 5 || found[2].From != 9 || found[2].To != 10 {
		t.Fatalf("found %+v", found)
	}
	service.mu.Lock()
	watch := service.kinds["pods"].watch
	service.mu.Unlock()
	watch.mu.Lock()
	watch.findings = found
	watch.mu.Unlock()
	until(t, func() bool { return len(logOf(t, b)) == 25 })
	if got := fmt.Sprint(ops(logOf(t, b)[21:])); got != "[gap gap gap mark]" {
		t.Errorf("recorded was %s", got)
	}
	if again := pass(); len(again) != 0 {
		t.Errorf("found again: %+v", again)
	}
}

// TestASuspicionThatTheLogHasAnsweredIsNone: a reader that has read nothing for long, since no
// watcher ran, suspects damage although the log by now agrees with the API server.
func TestASuspicionThatTheLogHasAnsweredIsNone(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	s.change("ADDED", "b", 0)
	start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 3 })
	s.change("DELETED", "b", 0)
	until(t, func() bool { return len(logOf(t, b)) == 4 })
	log := logOf(t, b)
	suspicion := func(name string, removed bool) events.Damage {
		i := slices.IndexFunc(log, func(d events.Delta) bool { return d.Ref.Name == name })
		return events.Damage{Kind: "pods", Suspected: true, About: log[i].Ref, UID: log[i].UID, Removed: removed}
	}
	k := &kindWatch{bus: b, kind: kinds.Pods.Kind}
	recreated := suspicion("a", true)
	recreated.UID = "another"
	before, behind := suspicion("b", false), suspicion("b", false)
	before.Version, behind.Version = log[1].ResourceVersion, "1"+log[3].ResourceVersion // the log does not reach the latter
	earlier := suspicion("b", true)
	earlier.About, earlier.UID = events.Ref{}, ""
	for name, c := range map[string]struct {
		damage   events.Damage
		answered bool
	}{
		"it is gone, and the log says so":           {suspicion("b", true), true},
		"it is gone, and the log does not say so":   {suspicion("a", true), false},
		"it is there, and the log says so":          {suspicion("a", false), true},
		"it is there, and the log says it is gone":  {suspicion("b", false), false},
		"it was there, and then the log says gone":  {before, true},
		"it is there, where the log does not reach": {behind, false},
		"it is gone, and the log has another of it": {recreated, true},
		"an earlier version does not say what":      {earlier, false},
		"the log has never had it":                  {events.Damage{Kind: "pods", Suspected: true, About: events.Ref{Kind: "pods", Namespace: "default", Name: "c"}, UID: "c", Removed: true}, false},
		"it is damage, and no suspicion":            {events.Damage{Kind: "pods", About: suspicion("b", true).About, UID: suspicion("b", true).UID, Removed: true}, false},
	} {
		if got := k.agreesByNow(t.Context(), c.damage); got != c.answered {
			t.Errorf("%s: answered %t, want %t", name, got, c.answered)
		}
	}
	// A bus without a leader for a moment is no reason for a gap: the reader reports again.
	k.bus = &ailing{Bus: b, last: map[string]error{logPods: away}}
	if !k.agreesByNow(t.Context(), suspicion("a", true)) {
		t.Error("a suspicion is taken for damage while the log cannot be asked")
	}
}

// TestAnAnsweredSuspicionIsNoDamage: the watcher continues, and its log gets no gap.
func TestAnAnsweredSuspicionIsNoDamage(t *testing.T) {
	t.Parallel()
	s, b := serve(t), memory.New(memory.Options{})
	s.change("ADDED", "a", 0)
	service, _ := start(t, s, b, "one")
	until(t, func() bool { return len(logOf(t, b)) == 2 })
	of := logOf(t, b)[0]
	service.mu.Lock()
	watch := service.kinds["pods"].watch
	service.mu.Unlock()
	suspect := func(removed bool) {
		watch.report(events.Damage{Kind: "pods", Suspected: true, About: of.Ref, UID: of.UID, Removed: removed, End: 9})
		until(t, func() bool {
			watch.mu.Lock()
			defer watch.mu.Unlock()
			return watch.reported == nil
		})
	}
	suspect(false)
	s.change("ADDED", "b", 0)
	until(t, func() bool { return len(logOf(t, b)) == 3 })
	suspect(true) // which the log does not say
	until(t, func() bool { return len(logOf(t, b)) > 4 })
	if got := fmt.Sprint(ops(logOf(t, b))[2:5]); got != "[is b gap mark]" {
		t.Errorf("the log goes on with %s", got)
	}
}

// TestASuspicionIsLookedIntoOnceAMinute, and it is no reason to record everything again.
func TestASuspicionIsLookedIntoOnceAMinute(t *testing.T) {
	t.Parallel()
	k := &kindWatch{}
	suspicion := events.Damage{Kind: "pods", End: 9, Suspected: true}
	if err := k.reportedDamage(suspicion); !errors.Is(err, events.ErrDamaged) {
		t.Errorf("the first: %v", err)
	}
	for range 3 {
		if err := k.reportedDamage(suspicion); err != nil || k.recordAll {
			t.Errorf("again: %v, all again %t", err, k.recordAll)
		}
	}
	k.reportActedOn = time.Now().Add(-repairEvery)
	if err := k.reportedDamage(suspicion); !errors.Is(err, events.ErrDamaged) || k.recordAll {
		t.Errorf("after a minute: %v, all again %t", err, k.recordAll)
	}
}
