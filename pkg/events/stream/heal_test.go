package stream_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestClusterHealsFromPeers: a server of three repairs lost or damaged data on its disk from
// the others; even when it leads, readers get only what was stored.
func TestClusterHealsFromPeers(t *testing.T) {
	t.Parallel()
	const n = 300
	for _, damage := range []struct {
		name string
		do   func(t *testing.T, block []byte) []byte
	}{
		{"the end of the newest block is missing", func(_ *testing.T, b []byte) []byte { return b[:len(b)-len(b)/10] }},
		{"the newest block is empty", func(*testing.T, []byte) []byte { return nil }},
		{"a bit is flipped in the middle", func(_ *testing.T, b []byte) []byte { b[len(b)/2] ^= 4; return b }},
		{"a bit is flipped near the end", func(_ *testing.T, b []byte) []byte { b[len(b)-len(b)/20] ^= 1; return b }},
	} {
		t.Run(damage.name, func(t *testing.T) {
			t.Parallel()
			c := serveCluster(t)
			b := connect(t, stream.Options{URL: c.urls(), Replicas: 3})
			if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
				t.Fatal(err)
			}
			fillWith(t, b, n)
			const victim = 1
			c.lead(0, subject.LogStream("pods"))
			eventually(t, "the server has made a snapshot of its journal", func() bool {
				return c.servers[victim].Compact(subject.LogStream("pods")) == nil
			})
			c.stop(victim)
			c.spoil(victim, subject.LogStream("pods"), func(block []byte) []byte { return damage.do(t, block) })
			c.start(victim)
			c.await()
			fillWith(t, b, n+10)
			// The leader answers, which has to be the one whose disk was damaged. Where
			// another one became it meanwhile, as on a busy machine, nothing is proven.
			for proven := false; !proven; proven = c.leads(victim, subject.LogStream("pods")) {
				c.lead(victim, subject.LogStream("pods"))
				c.holds(streamtest.Patient(b, stream.Passing), n+10)
			}
		})
	}
}

// holds fails the test unless the log holds so many pods, as they were published.
func (c *cluster) holds(b bus.Bus, n int) {
	c.t.Helper()
	for i := range n {
		m, ok, err := b.At(c.t.Context(), subject.LogStream("pods"), uint64(i+1))
		if want := podDelta(fmt.Sprint("pod-", i), i); err != nil || !ok || m.Subject != want.Subject || string(m.Data) != string(want.Data) {
			c.t.Fatalf("message %d is %s: %s (%t, %v)", i+1, m.Subject, m.Data, ok, err)
		}
	}
}

// leads reports whether a server is the leader of a stream.
func (c *cluster) leads(i int, name string) bool {
	if c.js == nil {
		c.js = admin(c.t, c.urls())
	}
	s, err := lookUp(c.t, c.js, name)
	return err == nil && s.CachedInfo().Cluster.Leader == fmt.Sprint("server-", i)
}

// fillWith publishes until so many pods are stored, the first one as message 1. While a
// leader is chosen publishing fails; what was stored nevertheless is not said twice.
func fillWith(t *testing.T, b *stream.Bus, n int) {
	t.Helper()
	eventually(t, fmt.Sprint(n, " messages are stored"), func() bool {
		a, err := b.Append(t.Context(), kinds.Pods.Name)
		if err != nil {
			t.Logf("once more: %v", err)
			return false
		}
		defer a.Close()
		for i := int(a.Last()); i < n; i++ {
			if err := errors.Join(a.Append(t.Context(), podDelta(fmt.Sprint("pod-", i), i)), a.Flush(t.Context())); err != nil {
				t.Logf("once more after message %d: %v", i, err)
				return false
			}
		}
		return true
	})
}

// lead makes a server the leader of a stream.
func (c *cluster) lead(i int, name string) {
	c.t.Helper()
	conn, err := nats.Connect(c.urls())
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	want := fmt.Sprint("server-", i)
	eventually(c.t, want+" leads "+name, func() bool {
		if c.leads(i, name) {
			return true
		}
		_, _ = conn.Request("$JS.API.STREAM.LEADER.STEPDOWN."+name, fmt.Appendf(nil, `{"placement":{"preferred":%q}}`, want), time.Second)
		return false
	})
}

// spoil changes the newest block of a stream on the disk of a server that does not
// run, and removes what the server remembers of it: a crash leaves none either.
func (c *cluster) spoil(i int, name string, change func([]byte) []byte) {
	c.t.Helper()
	folder := filepath.Join(c.dirs[i], "jetstream", "$G", "streams", name, "msgs")
	blocks, err := filepath.Glob(filepath.Join(folder, "*.blk"))
	if err != nil || len(blocks) == 0 {
		c.t.Fatalf("no blocks in %s (%v)", folder, err)
	}
	newest := slices.Max(blocks)
	block, err := os.ReadFile(newest)
	if err != nil {
		c.t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(newest, change(block), 0o600), os.Remove(filepath.Join(folder, "index.db"))); err != nil {
		c.t.Fatal(err)
	}
}
