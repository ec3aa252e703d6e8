package membership

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// However many replicas a forger invents, the memory for them is bounded.
func TestMadeUpReplicasAreBounded(t *testing.T) {
	b, now := newBook("self"), time.Unix(0, 0)
	for step := range 200 {
		now = now.Add(glance)
		b.hear(announcement{ID: "self"}, now)
		for ghost := range 50 {
			b.hear(announcement{ID: fmt.Sprint("ghost-", step, "-", ghost)}, now)
		}
		b.turn(now, true)
		if len(b.others) > most || len(b.silent) > most || len(b.seen) > most {
			t.Fatalf("after %v the book has %d others, %d silent, %d seen; want a bound", now.Sub(time.Unix(0, 0)), len(b.others), len(b.silent), len(b.seen))
		}
	}
	for work := range 100 { // both replicas give the same answer
		name := fmt.Sprint(work)
		if first := b.first(name); (first == "self") != (b.rank(name) == 0) {
			t.Errorf("%s falls to %s, and the own rank is %d", name, first, b.rank(name))
		}
	}
}

// A text that is too long, or names no replica, is no heartbeat.
func TestWhatIsAHeartbeat(t *testing.T) {
	padded := func(to int) string { return `{"id":"a"}` + strings.Repeat(" ", to-len(`{"id":"a"}`)) }
	named := func(length int) string { return `{"id":"` + strings.Repeat("a", length) + `"}` }
	for data, want := range map[string]bool{padded(1024): true, padded(1025): false, named(256): true, named(257): false, `{"id":"~"}`: true, `{}`: false} {
		if b, ok := decode([]byte(data)); ok != want || !ok && b != (announcement{}) {
			t.Errorf("%.20q of %d bytes: %t, want %t", data, len(data), ok, want)
		}
	}
}

var errWorkless = errors.New("no work")

// If Work fails, the worker ends and returns the error.
func TestAWorkerEndsWithItsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		r := join(t, b, "self")
		defer r.leave()
		pass(time.Second)
		ranked := &Ranked{Bus: bustest.Wrap(r.Bus).Fail(bustest.Work, errWorkless), Membership: r.Membership, Of: func(w bus.Work) string { return w.Stream }}
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { ended <- ranked.Work(ctx, bus.Work{Stream: "TURN_toy"}, nil) }()
		pass(time.Second)
		select {
		case err := <-ended:
			if !errors.Is(err, errWorkless) {
				t.Errorf("the replica ended with %v, want errWorkless", err)
			}
		default:
			t.Error("the replica goes on without work")
		}
	})
}

// A worker follows eight changes of rank at once, then one every two seconds; after a quiet time
// it follows some at once again.
func TestChangesOfRankAreSavedUp(t *testing.T) {
	at := time.Unix(1000, 0)
	may := moves{most: movesAtOnce, every: moveEvery, left: movesAtOnce, since: at}
	for i := range 10 {
		want := time.Duration(max(0, i-7)) * 2 * time.Second
		if got := may.pause(at); got != want {
			t.Errorf("change %d waits for %v, want %v", i+1, got, want)
		}
	}
	if got := may.pause(at.Add(time.Minute)); got != 0 {
		t.Errorf("after a minute a change waits for %v, want 0", got)
	}
}

func FuzzHeartbeat(f *testing.F) {
	for _, seed := range []string{`{"id":"a"}`, `{"id":"a","standing":2,"bye":true}`, `{"id":"a","standing":-1}`, `{"id":"a b"}`, `{"id":1}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, ok := decode(data)
		if !ok {
			return
		}
		if b.ID == "" || len(b.ID) > longestID || b.Standing < ready || b.Standing > fresh {
			t.Errorf("%q is taken for %+v", data, b)
		}
		k := newBook("self")
		k.hear(b, time.Unix(1, 0))
		k.turn(time.Unix(2, 0), true)
	})
}

// A worker does no work while it re-attaches. Invented replicas change the ranks many times a
// second, and workers must not follow that.
func TestChangesOfRankAreFollowedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		r := join(t, b, "self")
		defer r.leave()
		counted := bustest.Wrap(r.Bus)
		counted.OnWork = func(ctx context.Context, _ bus.Work, _ func(bus.Delivery)) error {
			<-ctx.Done()
			return nil
		}
		ranked := &Ranked{Bus: counted, Membership: r.Membership, Of: func(w bus.Work) string { return w.Stream }}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = ranked.Work(ctx, bus.Work{Stream: "TURN_toy"}, nil) }()
		pass(time.Second)
		ranks, last := 0, -1
		const while = 40 * time.Second
		for began, n := time.Now(), 0; time.Since(began) < while; n++ {
			for ghost := range 3 {
				if err := b.Broadcast("toy", fmt.Appendf(nil, `{"id":"ghost-%d-%d"}`, n, ghost)); err != nil {
					t.Fatal(err)
				}
			}
			pass(100 * time.Millisecond)
			if rank, _ := r.rank("TURN_toy"); rank != last {
				ranks, last = ranks+1, rank
			}
		}
		most := int(1 + movesAtOnce + while/moveEvery + 1)
		if got := counted.Count(bustest.Work); got > most || ranks < 2*most {
			t.Errorf("a worker attached %d times while the rank changed %d times, want %d at most", got, ranks, most)
		}
		stop()
	})
}

// If heartbeats are signed, an unsigned one in the name of any replica does not count.
func TestAHeartbeatThatIsNotSignedDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		good := []byte(`,"signed":"good"}`)
		signed := func(heartbeat []byte) []byte { return append(bytes.TrimSuffix(heartbeat, []byte("}")), good...) }
		r := New(Config{Bus: b, Service: "toy", ID: "self", Sign: signed, Signed: func(heartbeat []byte) bool { return bytes.HasSuffix(heartbeat, good) }})
		var proven, forged atomic.Bool
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		others := func(while time.Duration) int {
			for range while / heartbeat {
				text := fmt.Appendf(nil, `{"id":"other"}`)
				if proven.Load() {
					text = signed(text)
				}
				said := []string{string(text), `{"id":"made-up"}`}
				if forged.Load() {
					said = append(said, `{"id":"other","bye":true}`, `{"id":"self","bye":true}`)
				}
				for _, text := range said {
					if err := b.Broadcast("toy", []byte(text)); err != nil {
						t.Fatal(err)
					}
				}
				pass(heartbeat)
			}
			return r.Members() - 1
		}
		pass(time.Second)
		if n := others(2 * time.Second); n != 0 || !r.First("work") || r.Unfit() {
			t.Errorf("%d others count that have signed nothing", n)
		}
		proven.Store(true)
		if n := others(2 * time.Second); n != 1 {
			t.Errorf("%d others count, want the one that signs", n)
		}
		forged.Store(true)
		if n := others(2 * time.Second); n != 1 {
			t.Errorf("%d others count after a goodbye that is not signed, want 1", n)
		}
		proven.Store(false)
		if n := others(2 * time.Second); n != 0 {
			t.Errorf("%d others count that sign no more", n)
		}
		cancel()
		<-done
	})
}
