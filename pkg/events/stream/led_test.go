package stream_test

import (
	"os"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestAServerWithoutItsDiskIsNotBelieved: for some seconds after its start a server answers for
// the streams that it was chosen to lead at their creation, also while it fetches lost data
// from the others. No answer that Millrace accepts reports too early an end of a stream.
func TestAServerWithoutItsDiskIsNotBelieved(t *testing.T) {
	t.Parallel()
	const n, window = 4000, 3 * time.Second
	c := serveCluster(t)
	b := connect(t, stream.Options{URL: c.urls(), Replicas: 3})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	fillLog(t, b, n)
	log := subject.LogStream("pods")
	for victim := range c.servers {
		c.stop(victim)
		if err := os.RemoveAll(c.dirs[victim]); err != nil {
			t.Fatal(err)
		}
		c.start(victim)
		for began := time.Now(); time.Since(began) < window && !t.Failed(); {
			if at, err := b.StreamState(t.Context(), log); err == nil && at.Last < n {
				t.Errorf("server %d is back without its disk: the log ends at %d, want %d", victim, at.Last, n)
			}
		}
		c.await() // two servers without a disk at a time are a majority that knows nothing
		c.complete(admin(t, c.urls()), log)
	}
}
