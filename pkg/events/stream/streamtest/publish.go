package streamtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

func testAppend(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	if a.Last() != 0 {
		t.Errorf("an empty log ends at %d", a.Last())
	}
	const n = 3000
	given := map[uint64]events.Message{}
	for i := 1; i <= n; i++ {
		m := k.pod(fmt.Sprintf("pod-%d", i%7), i)
		header := maps.Clone(m.Header)
		k.must(a.Append(k.ctx, m))
		if !maps.EqualFunc(m.Header, header, func(a, b []string) bool { return a[0] == b[0] }) {
			t.Fatal("Append has changed the caller's headers")
		}
		if a.Last() != uint64(i) {
			t.Fatalf("after message %d the last is %d", i, a.Last())
		}
		given[uint64(i)] = m
	}
	k.must(a.Flush(k.ctx))
	if s := k.state(subject.LogStream("pods")); s.Last != n || s.Messages != n || s.First != 1 {
		t.Fatalf("after %d messages the log stands at %+v", n, s)
	}
	r := k.follow(subject.LogStream("pods"), 0)
	eventually.True(k, Patience, "all is read", func() bool { return len(r.messages()) == n })
	for i, m := range r.messages() {
		want := given[uint64(i+1)]
		switch {
		case m.Sequence != uint64(i+1), m.Stream != subject.LogStream("pods"), m.Time.IsZero():
			t.Fatalf("message %d is at %d of %s, %v", i+1, m.Sequence, m.Stream, m.Time)
		case m.Subject != want.Subject, !bytes.Equal(m.Data, want.Data):
			t.Fatalf("message %d is %s %s, want %s %s", i+1, m.Subject, m.Data, want.Subject, want.Data)
		}
		for key, values := range want.Header {
			if m.Get(key) != values[0] {
				t.Fatalf("message %d has header %s: %q, want %q", i+1, key, m.Get(key), values[0])
			}
		}
	}
	again := k.appender(kinds.Pods.Kind)
	if again.Last() != n {
		t.Errorf("opened again, the log ends at %d, want %d", again.Last(), n)
	}
	k.must(again.Close())
	if err := again.Append(k.ctx, k.pod("a", 1)); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("Append after Close: %v, want ErrClosed", err)
	}
}

func testAppendOvertaken(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	old := k.appender(kinds.Pods.Kind)
	k.append(old, k.pod("a", 1))
	young := k.appender(kinds.Pods.Kind)
	k.append(old, k.pod("a", 2)) // the new one has only been opened
	err := young.Append(k.ctx, k.pod("a", 3))
	if err == nil {
		err = young.Flush(k.ctx)
	}
	if !errors.Is(err, bus.ErrOvertaken) {
		t.Fatalf("a publisher that was overtaken: %v, want ErrOvertaken", err)
	}
	if err := young.Append(k.ctx, k.pod("a", 4)); !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("after ErrOvertaken: %v, want it again", err)
	}
	young = k.appender(kinds.Pods.Kind)
	k.append(young, k.pod("a", 3))
	var refused error
	for i := 4; i < 10 && refused == nil; i++ {
		refused = old.Append(k.ctx, k.pod("a", i))
	}
	if refused == nil {
		refused = old.Flush(k.ctx)
	}
	if !errors.Is(refused, bus.ErrOvertaken) {
		t.Errorf("the old publisher: %v, want ErrOvertaken", refused)
	}
	if s := k.state(subject.LogStream("pods")); s.Last != 3 {
		t.Errorf("the log ends at %d, want 3: a refused message was stored", s.Last)
	}
}

func testAppendAfterForget(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	k.append(a, k.pod("a", 1))
	k.must(b.DeleteKind(k.ctx, kinds.Pods.Name))
	err := a.Append(k.ctx, k.pod("a", 2))
	if err == nil {
		err = a.Flush(k.ctx)
	}
	if !errors.Is(err, bus.ErrNoStream) {
		t.Fatalf("append to a forgotten log: %v, want ErrNoStream", err)
	}
	k.must(b.EnsureKind(k.ctx, kinds.Pods.Kind))
	if err := a.Append(k.ctx, k.pod("a", 2)); err == nil {
		t.Error("after an error something was accepted")
	}
}

func testNewest(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	mark := subject.Message(events.Delta{Kind: "pods", Op: events.Mark, ResourceVersion: "5", Since: 3})
	k.append(a, k.pod("a", 1), k.pod("b", 2), k.pod("a", 3), k.gone("b", 4), mark)
	stream := subject.LogStream("pods")
	if m := k.last(stream, "a"); m.Sequence != 3 || m.Stream != stream || string(m.Data) != `{"version":3}` {
		t.Errorf("a is %d of %s: %s", m.Sequence, m.Stream, m.Data)
	}
	if m := k.last(stream, "b"); m.Sequence != 4 || m.Get(events.HeaderOp) != "gone" {
		t.Errorf("b is at %d, op %s", m.Sequence, m.Get(events.HeaderOp))
	}
	if since, err := bus.RecordedSince(k.ctx, b, "pods"); err != nil || since != 3 {
		t.Errorf("everything is recorded since %d, %v", since, err)
	}
	if m, ok, err := b.At(k.ctx, stream, 1); err != nil || !ok || string(m.Data) != `{"version":1}` {
		t.Errorf("the log's first message: %s, %v, %v", m.Data, ok, err)
	}
}

// testLastIsFoldOfLog: the last message of each subject is the last one that was appended,
// whatever was appended.
func testLastIsFoldOfLog(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	a := k.appender(kinds.Pods.Kind)
	version := 0
	fold := map[string]uint64{}
	rapid.Check(t, func(r *rapid.T) {
		for _, pod := range rapid.SliceOfN(rapid.IntRange(0, 12), 0, 40).Draw(r, "pods") {
			version++
			m := k.delta(fmt.Sprintf("pod.%d", pod), version, rapid.SampledFrom([]events.Op{events.Is, events.Gone}).Draw(r, "op"))
			k.must(a.Append(k.ctx, m))
			fold[m.Subject] = a.Last()
		}
		k.must(a.Flush(k.ctx))
		if a.Last() != uint64(version) {
			r.Fatalf("the log ends at %d after %d messages", a.Last(), version)
		}
	})
	found, err := b.LastOf(k.ctx, subject.LogStream("pods"), slices.Collect(maps.Keys(fold)))
	k.must(err)
	got := map[string]uint64{}
	for on, m := range found {
		got[on] = m.Sequence
	}
	if !maps.Equal(got, fold) {
		t.Errorf("the last messages are %v, want %v", got, fold)
	}
}

func testStore(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	first, err := b.Store(k.ctx, turn("a", "1"), 0)
	k.must(err)
	other, err := b.Store(k.ctx, turn("b", "1"), 0)
	k.must(err)
	if first != 1 || other != 2 {
		t.Errorf("stored at %d and %d, want 1 and 2", first, other)
	}
	for _, wrong := range []uint64{0, 2, 99} {
		if _, err := b.Store(k.ctx, turn("a", "x"), wrong); !errors.Is(err, bus.ErrOvertaken) {
			t.Errorf("expecting %d where %d is: %v, want ErrOvertaken", wrong, first, err)
		}
	}
	second, err := b.Store(k.ctx, turn("a", "2"), first)
	k.must(err)
	if second != 3 {
		t.Errorf("stored at %d, want 3: a refused message was stored", second)
	}
}

// testStoreRace: of many stores that expect the same sequence, exactly one succeeds.
func testStoreRace(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	last := uint64(0)
	for round := range 20 {
		var (
			wg   sync.WaitGroup
			mu   sync.Mutex
			won  []uint64
			errs []error
		)
		for i := range 8 {
			wg.Go(func() {
				n, err := b.Store(k.ctx, turn("a", fmt.Sprintf("%d-%d", round, i)), last)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won = append(won, n)
				} else if !errors.Is(err, bus.ErrOvertaken) {
					errs = append(errs, err)
				}
			})
		}
		wg.Wait()
		if len(won) != 1 || len(errs) > 0 {
			t.Fatalf("round %d: stored at %v, errors %v", round, won, errs)
		}
		last = won[0]
	}
}

func testPut(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	m := turn("a", "outcome")
	m.Subject = subject.Outcome(controller, events.LaneWrite, key("a"))
	first, err := b.Put(k.ctx, m, "one")
	k.must(err)
	again, err := b.Put(k.ctx, m, "one")
	k.must(err)
	other, err := b.Put(k.ctx, m, "two")
	k.must(err)
	if again != first || other != first+1 {
		t.Errorf("stored at %d, the same id at %d, another at %d", first, again, other)
	}
	if s := k.state(subject.OutcomeStream(controller)); s.Messages != 2 {
		t.Errorf("the stream holds %d messages, want 2", s.Messages)
	}
}

func testTooLarge(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	m := turn("a", "")
	m.Data = make([]byte, 9<<20)
	if _, err := b.Store(k.ctx, m, 0); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("Store of 9 MiB: %v, want ErrTooLarge", err)
	}
	if _, err := b.Put(k.ctx, m, "id"); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("Put of 9 MiB: %v, want ErrTooLarge", err)
	}
	a := k.appender(kinds.Pods.Kind)
	m.Subject = subject.Delta(podRef("a"))
	err := a.Append(k.ctx, m)
	if err == nil {
		err = a.Flush(k.ctx)
	}
	if !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("Append of 9 MiB: %v, want ErrTooLarge", err)
	}
}

// testLargestObject: an object of the size that etcd can hold arrives whole on every path.
func testLargestObject(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	const n = 6
	a := k.appender(kinds.Pods.Kind)
	body := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16)
	for i := range n {
		m := k.pod(fmt.Sprint("large-", i), i)
		m.Data = body
		k.append(a, m)
	}
	r := k.follow(subject.LogStream("pods"), 0)
	w := k.work(bus.Work{Stream: subject.LogStream("pods"), Durable: "d"})
	for range n {
		d := k.next(w)
		if !bytes.Equal(d.Message().Data, body) {
			t.Errorf("a body of %d bytes was delivered as %d", len(body), len(d.Message().Data))
		}
		d.Ack()
	}
	eventually.True(k, Patience, "all is read", func() bool { return len(r.messages()) == n })
	for _, m := range r.messages() {
		if !bytes.Equal(m.Data, body) {
			t.Errorf("a body of %d bytes was read as %d", len(body), len(m.Data))
		}
	}
}

func testSchedule(t *testing.T, b bus.Bus) {
	k := newKit(t, b)
	fires := k.fires()
	start := time.Now()
	early, second := k.replaced()
	k.must(b.Schedule(k.ctx, wake("past", start.Add(-time.Hour), "past")))
	k.must(b.Schedule(k.ctx, wake("zero", time.Time{}, "zero")))
	k.must(b.Schedule(k.ctx, wake("far", start.AddDate(2000, 0, 0), "far")))
	for missing := map[string]bool{second: true, "past": true, "zero": true}; len(missing) > 0; {
		got := k.fired(<-fires)
		if !missing[got] && !early[got] {
			t.Errorf("%q has fired", got)
		}
		delete(missing, got)
	}
	for silent := time.After(500 * time.Millisecond); silent != nil; {
		select {
		case m := <-fires:
			if got := k.fired(m); !early[got] {
				t.Errorf("%q has fired in the end", got)
			}
		case <-silent:
			silent = nil
		}
	}
	// A key can be woken again after its wake has fired.
	k.must(b.Schedule(k.ctx, wake("past", time.Now(), "again")))
	for got := ""; got != "again"; {
		if got = k.fired(<-fires); got != "again" && !early[got] {
			t.Fatalf("the second wake is %q", got)
		}
	}
}

func wake(name string, at time.Time, because string) events.Wake {
	return events.Wake{Controller: controller, Key: key(name), At: at, Because: because, Trace: events.Trace{Parent: "00-11-22-01"}}
}

// replaced sets a wake and, before its time, another one in its place, whose reason it returns.
// If the machine stalled in between, the first wake rightly fired, and replaced tries again
// with another key; early are the reasons of those wakes.
func (k *kit) replaced() (early map[string]bool, counts string) {
	k.Helper()
	early = map[string]bool{}
	for round := 1; ; round++ {
		name, first := fmt.Sprint("replaced-", round), time.Now().Add(time.Duration(round)*300*time.Millisecond)
		counts = fmt.Sprint("second-", round)
		k.must(k.bus.Schedule(k.ctx, wake(name, first, fmt.Sprint("first-", round))))
		k.must(k.bus.Schedule(k.ctx, wake(name, first.Add(400*time.Millisecond), counts)))
		if time.Now().Before(first) {
			return early, counts
		}
		early[fmt.Sprint("first-", round)], early[counts] = true, true
	}
}

// fires delivers the wakes of the controller that fire from now on.
func (k *kit) fires() <-chan events.Message {
	out := make(chan events.Message, 1000)
	k.reads(func(ctx context.Context, _ *reading) error {
		return k.bus.Follow(ctx, subject.WakeStream, 1, func(batch []events.Message) error {
			for _, m := range batch {
				// The stream also has the wakes that are only set.
				if of, key, err := subject.ParseWake(m.Subject); err == nil && of == controller && m.Subject == subject.Wake(controller, key) {
					out <- m
				}
			}
			return nil
		})
	})
	return out
}

// fired gives the reason of a wake.
func (k *kit) fired(m events.Message) (because string) {
	k.Helper()
	var got events.Wake
	k.must(events.DecodeJSON(m, &got))
	if m.Subject != subject.Wake(controller, got.Key) {
		k.Errorf("the wake of %v came on %s", got.Key, m.Subject)
	}
	if now := time.Now(); now.Before(got.At) {
		k.Errorf("%s fired %v early", got.Because, got.At.Sub(now))
	}
	if m.Get(events.HeaderTraceParent) != "00-11-22-01" {
		k.Error("the wake has lost its trace")
	}
	return got.Because
}
