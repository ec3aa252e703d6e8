package membership

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// replica is a membership whose connection to the bus can be cut.
type replica struct {
	bus.Bus
	*Membership
	cut   atomic.Bool
	unfit atomic.Bool
	said  atomic.Int64
	leave func()
}

func (r *replica) Broadcast(topic string, data []byte) error {
	r.said.Add(1)
	if r.cut.Load() {
		return nil
	}
	return r.Bus.Broadcast(topic, data)
}

func (r *replica) Listen(ctx context.Context, topic string, hear func([]byte)) error {
	return r.Bus.Listen(ctx, topic, func(data []byte) {
		if !r.cut.Load() {
			hear(data)
		}
	})
}

func join(t *testing.T, b bus.Bus, id string) *replica { return joinReaching(t, b, id, nil) }

// joinReaching is join for a replica that probes the server.
func joinReaching(t *testing.T, b bus.Bus, id string, reach func(context.Context) error) *replica {
	r := &replica{Bus: b}
	r.Membership = New(Config{Bus: r, Service: "toy", ID: id, Fit: func() bool { return !r.unfit.Load() }, Reach: reach})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	r.leave = func() { cancel(); <-done }
	return r
}

// A replica whose connection is closed is removed as soon as its heartbeat is late. A suspended
// one, which cannot be told from a slow one, is removed after the silence time-out.
func TestAClosedConnectionIsNoticed(t *testing.T) {
	for name, tc := range map[string]struct {
		listens bool
		within  time.Duration
	}{"closed": {false, late + 2*glance}, "stands still": {true, silence + 2*glance}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.Options{})
				one, two := join(t, b, "one"), join(t, b, "two")
				pass(2 * silence)
				if one.Members() != 2 {
					t.Fatalf("%d are there, want 2", one.Members())
				}
				two.cut.Store(true)
				if !tc.listens {
					two.leave()
				}
				pass(tc.within)
				if one.Members() != 1 {
					t.Errorf("after %v the other replica still counts", tc.within)
				}
				if tc.listens {
					two.leave()
				}
				one.leave()
				if err := b.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// pass lets time pass, until all goroutines are idle at its end.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// shares is how much work each replica believes it owns.
func shares(all ...*replica) (counts []int) {
	for _, r := range all {
		n := 0
		for _, w := range works() {
			if r.First(w) {
				n++
			}
		}
		counts = append(counts, n)
	}
	return counts
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func TestReplicasComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		a := join(t, b, "a")
		defer a.leave()
		if a.First("work") || a.Check() == nil {
			t.Error("claims work before it can know of others")
		}
		pass(time.Second)
		if got := shares(a); got[0] != 600 || a.Check() != nil {
			t.Errorf("alone it has %v of 600 pieces of work; %v", got, a.Check())
		}
		// Until the new replica is ready, the others keep their work.
		c := join(t, b, "c")
		pass(silence - heartbeat)
		if got := shares(a, c); got[0] != 600 || got[1] != 0 {
			t.Errorf("beside a fresh one it has %v", got)
		}
		pass(2 * heartbeat)
		if got := shares(a, c); sum(got) != 600 || got[1] < 200 {
			t.Errorf("then they have %v", got)
		}
		c.leave()
		synctest.Wait()
		if got := shares(a); got[0] != 600 {
			t.Errorf("at once after the goodbye it has %v", got)
		}
	})
}

// TestWhoIsAloneIsQuiet: no replica waits for its heartbeats, and still a new replica and it
// notice each other at once. When the other has gone without a goodbye, and its requests have
// expired, the replica is alone again.
func TestWhoIsAloneIsQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		a := join(t, b, "a")
		defer a.leave()
		pass(2 * silence)
		quiet := func(when string) {
			t.Helper()
			before := a.said.Load()
			pass(20 * time.Second)
			if got := a.said.Load() - before; got > 21 {
				t.Errorf("%s a replica announces itself %d times in 20 s, want 21 at most", when, got)
			}
			if err := a.Check(); err != nil || !a.First("work") {
				t.Errorf("%s: %v; has the work: %t", when, err, a.First("work"))
			}
		}
		quiet("alone")
		for before := a.said.Load(); a.said.Load() == before; {
			pass(heartbeat / 10)
		} // the next regular heartbeat is far away
		c := join(t, b, "c")
		defer c.leave()
		pass(heartbeat)
		if c.mu.Lock(); len(c.book.others) != 1 {
			t.Error("a replica that comes has to wait to hear of the one that is there")
		}
		c.mu.Unlock()
		pass(silence + heartbeat)
		if got := shares(a, c); sum(got) != 600 || got[1] < 200 {
			t.Errorf("then they have %v", got)
		}
		before := a.said.Load()
		pass(3 * time.Second)
		if got := a.said.Load() - before; got < 15 || got > 26 {
			t.Errorf("with another replica there it announces itself %d times in 3 s, want 15 to 26", got)
		}
		c.cut.Store(true)
		pass(silence + 2*heartbeat)
		if got := shares(a); got[0] != 600 {
			t.Errorf("when the other is silent the share is %v, want all", got)
		}
		pass(bus.Lingering)
		quiet("alone again")
	})
}

func TestTheSilentAreReplacedAndComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		a, c := join(t, b, "a"), join(t, b, "c")
		defer a.leave()
		defer c.leave()
		pass(time.Second)
		before := shares(a, c)
		a.cut.Store(true)
		pass(silence + 2*heartbeat)
		if got := shares(a, c); got[1] != 600 || got[0] != before[0] {
			t.Errorf("with a cut off the shares are %v, want all of the other, and what a had (%d)", got, before[0])
		}
		if a.Check() == nil {
			t.Error("Check of a replica that is cut off is nil")
		}
		pass(time.Minute)
		a.cut.Store(false)
		for range 10 { // it never claims more than it owned
			pass(silence / 10)
			if got := shares(a); got[0] != before[0] {
				t.Fatalf("after it came back it claims %d, want %d", got[0], before[0])
			}
		}
		pass(2 * heartbeat)
		if got := shares(a, c); got[0] != before[0] || got[1] != before[1] {
			t.Errorf("in the end they have %v, want %v", got, before)
		}
	})
}

func TestNothingMovesWhileTheBusIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		all := []*replica{join(t, b, "a"), join(t, b, "b"), join(t, b, "c")}
		pass(time.Second)
		before := shares(all...)
		changed := all[0].Changed()
		for _, r := range all {
			defer r.leave()
			r.cut.Store(true)
		}
		pass(time.Minute)
		all[1].cut.Store(false)
		pass(heartbeat)
		for _, r := range all {
			r.cut.Store(false)
		}
		pass(time.Second)
		if after := shares(all...); sum(after) != 600 || after[0] != before[0] || after[1] != before[1] {
			t.Errorf("the shares before the outage are %v, and %v after it", before, after)
		}
		select {
		case <-changed:
			t.Error("the outage moved work")
		default:
		}
	})
}

func TestWhoIsUnfitLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		a, c := join(t, b, "a"), join(t, b, "c")
		defer a.leave()
		defer c.leave()
		pass(time.Second)
		a.unfit.Store(true)
		pass(2 * heartbeat)
		if got := shares(a, c); got[0] != 0 || got[1] != 600 || a.Others() != 1 || c.Others() != 0 {
			t.Errorf("with a unfit the shares are %v, a knows %d fit others and c %d; want all of c, 1 and 0", got, a.Others(), c.Others())
		}
		c.unfit.Store(true)
		pass(2 * heartbeat)
		if got := shares(a, c); sum(got) != 600 || got[0] == 0 {
			t.Errorf("with both unfit the shares are %v, want all work, and some of a", got)
		}
	})
}

// TestDeliveriesFollowTheMembership: all go to the owner of the work, and to the other replica
// as soon as the owner has gone, reports itself unfit, or is silent.
func TestDeliveriesFollowTheMembership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memory.New(memory.Options{})
		defer b.Close()
		if err := b.EnsureController(t.Context(), "toy"); err != nil {
			t.Fatal(err)
		}
		replicas := []*replica{join(t, b, "a"), join(t, b, "b")}
		var got [2]atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		for i, r := range replicas {
			defer r.leave()
			ranked := &Ranked{Bus: r.Bus, Membership: r.Membership, Of: func(w bus.Work) string { return w.Stream }}
			go func() {
				err := ranked.Work(ctx, bus.Work{Stream: subject.TurnStream("toy"), Durable: "d"}, func(d bus.Delivery) {
					got[i].Add(1)
					d.Ack()
				})
				if err != nil {
					t.Error(err)
				}
			}()
		}
		pass(time.Second)
		first := 0
		if replicas[1].First(subject.TurnStream("toy")) {
			first = 1
		}
		expect := func(who int, why string) {
			t.Helper()
			before := got[who].Load()
			for i := range 20 {
				m := events.Message{Subject: subject.Turn("toy", events.LaneWrite, events.Key{Name: "k"})}
				if _, err := b.Put(ctx, m, fmt.Sprint(why, i)); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
			if n := got[who].Load() - before; n != 20 {
				t.Errorf("%s: %d of 20 went where they belong", why, n)
			}
		}
		expect(first, "both are there")
		replicas[first].unfit.Store(true)
		pass(2 * heartbeat)
		expect(1-first, "the first is unfit")
		replicas[first].unfit.Store(false)
		pass(2 * heartbeat)
		expect(first, "it is fit again")
		replicas[first].cut.Store(true)
		pass(silence + 2*heartbeat)
		expect(1-first, "the first is silent, and still asks")
		replicas[first].cut.Store(false)
		pass(2 * silence)
		expect(first, "it can be heard again")
		stop()
	})
}

// TestAReplicaHasAnIDThatOthersTake: New rejects an ID that others would reject, because the
// replica would otherwise be alone without an error.
func TestAReplicaHasAnIDThatOthersTake(t *testing.T) {
	for id, taken := range map[string]bool{"": true, "a-1": true, "a 1": false, "ä": false, strings.Repeat("a", 1000): false} {
		func() {
			defer func() {
				if refused := recover() != nil; refused == taken {
					t.Errorf("%.20q: refused: %t", id, refused)
				}
			}()
			New(Config{ID: id})
		}()
	}
	host, err := os.Hostname()
	if err != nil || !proper(host) {
		host = "unnamed"
	}
	if id := New(Config{}).ID(); !strings.HasPrefix(id, fmt.Sprintf("%.64s-%d-", host, os.Getpid())) || id == New(Config{}).ID() {
		t.Errorf("a replica of %s is called %s", host, id)
	}
}
