package stream_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestClusterFaults stops one server after the other, and all at once, in every way that there
// is, while one client publishes, one reads and one works. Acknowledged messages survive, in
// order and once, and all three clients continue without help.
//
// The length of the pause depends mostly on the servers: they elect a new leader 4 to 9 s after
// the last message of a dead one (constants of the server), and at once when one stops
// gracefully.
func TestClusterFaults(t *testing.T) {
	t.Parallel()
	const promised = 20 * time.Second // docs/reliability.md
	c := serveMortals(t)
	b := connect(t, stream.Options{URL: c.urls(), Replicas: 3})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	js := admin(t, c.urls())
	traffic := beginTraffic(t, b)
	for _, fault := range []struct {
		name string
		do   func(leader int)
	}{
		{"the leader is killed", func(leader int) { c.kill(leader); traffic.goesOn(); c.start(leader) }},
		{"a follower is killed", func(leader int) { c.kill((leader + 1) % 3); traffic.goesOn(); c.start((leader + 1) % 3) }},
		{"the leader is stopped in its tracks", func(leader int) {
			c.mortals[leader].signal(syscall.SIGSTOP)
			traffic.goesOn()
			c.mortals[leader].signal(syscall.SIGCONT)
		}},
		{"the leader comes back without its disk", func(leader int) {
			c.kill(leader)
			if err := os.RemoveAll(c.dirs[leader]); err != nil {
				t.Fatal(err)
			}
			c.start(leader)
		}},
		{"all are killed", func(int) {
			for i := range c.mortals {
				c.kill(i)
			}
			for i := range c.mortals {
				c.start(i)
			}
		}},
	} {
		leader := c.leader(js, subject.LogStream("pods"))
		began := time.Now()
		fault.do(leader)
		traffic.goesOn()
		took := time.Since(began).Round(100 * time.Millisecond)
		if t.Logf("%s: all went on within %v", fault.name, took); took > promised {
			t.Errorf("%s: all went on within %v, want %v at most", fault.name, took, promised)
		}
		c.complete(js, subject.LogStream("pods"))
	}
	traffic.end()
	traffic.check()
}

// mortals are a cluster of servers in processes of their own.
type mortals struct {
	*cluster
	mortals []mortal
}

func serveMortals(t *testing.T) *mortals {
	t.Helper()
	c := &mortals{cluster: newCluster(t), mortals: make([]mortal, 3)}
	for i := range c.mortals {
		c.start(i)
	}
	return c
}

func (c *mortals) start(i int) {
	c.t.Helper()
	c.mortals[i] = serveMortal(c.t, c.options(i))
}

func (c *mortals) kill(i int) { c.mortals[i].kill() }

// leader is the server that leads a stream.
func (c *mortals) leader(js jetstream.JetStream, name string) (leader int) {
	c.t.Helper()
	eventually(c.t, "the stream has a leader", func() bool {
		s, err := lookUp(c.t, js, name)
		if err != nil || s.CachedInfo().Cluster == nil {
			return false
		}
		n, err := fmt.Sscanf(s.CachedInfo().Cluster.Leader, "server-%d", &leader)
		return err == nil && n == 1
	})
	return leader
}

// complete waits until every copy of the streams is there and complete.
func (c *cluster) complete(js jetstream.JetStream, names ...string) {
	c.t.Helper()
	for _, name := range names {
		eventually(c.t, "every copy of "+name+" is complete", func() bool {
			s, err := lookUp(c.t, js, name)
			if err != nil {
				return false
			}
			cluster := s.CachedInfo().Cluster
			return cluster != nil && len(cluster.Replicas) == 2 &&
				!slices.ContainsFunc(cluster.Replicas, func(p *jetstream.PeerInfo) bool { return !p.Current || p.Offline })
		})
	}
}

// lookUp asks for a stream, for as long as a leader may take to answer.
func lookUp(t *testing.T, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	ctx, done := context.WithTimeout(t.Context(), time.Second)
	defer done()
	return js.Stream(ctx, name)
}

// traffic is one client that publishes without a pause, one that reads and one that works.
type traffic struct {
	t            *testing.T
	bus          *stream.Bus
	read, worked *tally
	stored       *tally
	names        map[uint64]string // of what is known to be stored
	stop         context.CancelFunc
	over         sync.WaitGroup
}

func beginTraffic(t *testing.T, b *stream.Bus) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	f := &traffic{t: t, bus: b, stored: &tally{}, names: map[uint64]string{}, stop: stop}
	t.Cleanup(f.end)
	f.read, f.worked = watch(t, b)
	f.over.Go(func() {
		for n := 0; ctx.Err() == nil; {
			n = f.publish(ctx, n)
		}
	})
	f.goesOn()
	return f
}

// publish publishes until an error, and records what is known to be stored.
func (f *traffic) publish(ctx context.Context, n int) int {
	// So that the machine has time for something else.
	pace := time.NewTicker(5 * time.Millisecond)
	defer pace.Stop()
	a, err := f.bus.Append(ctx, kinds.Pods.Name)
	if err != nil {
		return n
	}
	defer a.Close()
	for ; ; n++ {
		select {
		case <-ctx.Done():
			return n
		case <-pace.C:
		}
		name := fmt.Sprint("pod-", n)
		if a.Append(ctx, podDelta(name, 1)) != nil || a.Flush(ctx) != nil {
			return n + 1
		}
		f.names[a.Last()] = name
		f.stored.add(a.Last())
	}
}

// goesOn waits until something that is published from now on has been stored, read
// and worked on.
func (f *traffic) goesOn() {
	f.t.Helper()
	before := len(f.stored.all())
	var next uint64
	deadline := time.Now().Add(streamtest.Patience)
	for {
		if all := f.stored.all(); next == 0 && len(all) > before+1 {
			next = all[before+1] // the one before may have been under way
		}
		if next != 0 && slices.Contains(f.read.all(), next) && slices.Contains(f.worked.all(), next) {
			return
		}
		if time.Now().After(deadline) {
			f.t.Fatalf("in the end %d was stored (0: nothing), %d messages were read and %d worked on", next, len(f.read.all()), len(f.worked.all()))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (f *traffic) end() {
	f.stop()
	f.over.Wait()
}

// check compares the acknowledged messages with the stored and with the delivered ones.
func (f *traffic) check() {
	f.t.Helper()
	stored := f.stored.all()
	f.t.Logf("%d messages were acknowledged", len(stored))
	eventually(f.t, "everything is read and worked on", func() bool {
		return contains(f.read.all(), stored) && contains(f.worked.distinct(), stored)
	})
	if read := f.read.all(); !slices.IsSorted(read) || len(slices.Compact(read)) != len(f.read.all()) {
		f.t.Error("the messages were read out of order, or twice")
	}
	var log []string
	last := stored[len(stored)-1]
	ctx, done := context.WithCancel(f.t.Context())
	defer done()
	err := f.bus.Follow(ctx, subject.LogStream("pods"), 1, func(batch []events.Message) error {
		for _, m := range batch {
			log = append(log, m.Subject)
		}
		if batch[len(batch)-1].Sequence >= last {
			done()
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
	for sequence, name := range f.names {
		if at := int(sequence) - 1; at >= len(log) || !strings.HasSuffix(log[at], "."+name) {
			f.t.Fatalf("%s was acknowledged as %d and is not there", name, sequence)
		}
	}
}

// contains reports whether a sorted list holds all of another.
func contains(all, some []uint64) bool {
	return !slices.ContainsFunc(some, func(n uint64) bool {
		_, found := slices.BinarySearch(all, n)
		return !found
	})
}
