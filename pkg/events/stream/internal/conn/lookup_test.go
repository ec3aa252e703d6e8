package conn_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/jstest"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Only the answer of a stream's leader counts, which lists the other replicas and not itself.
func TestWhoAnswersForAStream(t *testing.T) {
	t.Parallel()
	of := func(leader string, others ...string) *jetstream.ClusterInfo {
		c := &jetstream.ClusterInfo{Leader: leader}
		for _, name := range others {
			c.Replicas = append(c.Replicas, &jetstream.PeerInfo{Name: name})
		}
		return c
	}
	for name, c := range map[string]struct {
		copies  int
		cluster *jetstream.ClusterInfo
		led     bool
	}{
		"one that stands alone":      {1, nil, true},
		"one that has the only copy": {1, of(""), true},
		"one that says nothing":      {3, nil, true},
		"the leader":                 {3, of("a", "b", "c"), true},
		"another one":                {3, of("a", "a", "c"), false},
		"one without a leader":       {3, of("", "b", "c"), false},
		"one that knows no others":   {3, of("a"), false},
	} {
		a := &jstest.Server{FindsStream: jstest.At(&jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: c.copies}, Cluster: c.cluster})}
		if _, err := a.Connected(conn.Options{}).Led(t.Context(), "TURN_c"); (err == nil) != c.led || err != nil && !errors.Is(err, natserr.ErrNotLed) {
			t.Errorf("%s answers: %v", name, err)
		}
	}
}

// Handle asks again for a stream that no server answers for, until the request's deadline; it does not ask
// again for a missing one.
func TestHowLongAStreamIsAskedFor(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context, _ string) (*jetstream.StreamInfo, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	leaderless := &jetstream.StreamInfo{Config: jetstream.StreamConfig{Replicas: 3}, Cluster: &jetstream.ClusterInfo{}}
	for name, c := range map[string]struct {
		stream  func(context.Context, string) (*jetstream.StreamInfo, error)
		timeout time.Duration
		within  time.Duration // of the context; 0: it has none
		err     error
		asked   int
		took    time.Duration
	}{
		"there":                {jstest.At(&jetstream.StreamInfo{}), 5 * time.Second, 0, nil, 1, 0},
		"not there":            {func(context.Context, string) (*jetstream.StreamInfo, error) { return nil, jetstream.ErrStreamNotFound }, 5 * time.Second, 0, bus.ErrNoStream, 1, 0},
		"no answer":            {hangs, 5 * time.Second, 0, context.DeadlineExceeded, 3, 6 * time.Second},
		"no answer, and hurry": {hangs, time.Second, 0, context.DeadlineExceeded, 2, 2 * time.Second},
		"no answer in time":    {hangs, 5 * time.Second, 500 * time.Millisecond, context.DeadlineExceeded, 1, 500 * time.Millisecond},
		"more time than usual": {hangs, 5 * time.Second, 7 * time.Second, context.DeadlineExceeded, 4, 7 * time.Second},
		"no leader":            {jstest.At(leaderless), time.Second, 0, natserr.ErrNotLed, 51, 1020 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			a, ctx, began := &jstest.Server{FindsStream: c.stream}, t.Context(), time.Now()
			if c.within > 0 {
				var done context.CancelFunc
				ctx, done = context.WithTimeout(ctx, c.within)
				defer done()
			}
			if _, err := a.Connected(conn.Options{Timeout: c.timeout}).Handle(ctx, "TURN_c"); !errors.Is(err, c.err) || len(a.Asked) != c.asked || time.Since(began) != c.took {
				t.Errorf("%s: asked for %d times in %v, %v; want %d in %v", name, len(a.Asked), time.Since(began), err, c.asked, c.took)
			}
		})
	}
}
