package writer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/membership"
	"github.com/millrace/millrace/pkg/events/stream/memory"
)

// TestTurnsAreLeftSoonToWritersThatReachTheAPIServer: a writer that is cut off at any moment
// interrupts its turns in flight within a bounded time. While no writer reaches the API server
// none gives its turns up.
func TestTurnsAreLeftSoonToWritersThatReachTheAPIServer(t *testing.T) {
	t.Parallel()
	for offset := time.Duration(0); offset < time.Second; offset += 130 * time.Millisecond {
		synctest.Test(t, func(t *testing.T) {
			b := memory.New(memory.Options{})
			defer b.Close()
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			var cut [2]atomic.Bool
			var all [2]*share
			for i := range all {
				all[i] = newShare(b, membership.Config{ID: fmt.Sprint("writer-", i), Reach: func(ctx context.Context) error {
					if cut[i].Load() {
						<-ctx.Done()
					}
					return ctx.Err()
				}})
				running.Go(func() { all[i].run(ctx) })
				time.Sleep(70 * time.Millisecond)
			}
			time.Sleep(5*time.Second + offset)
			begun := time.Now()
			hand, other := inFlight(t, all[0], ctx), inFlight(t, all[1], ctx)
			cut[0].Store(true)
			<-hand.Done()
			if took := time.Since(begun); took > 1550*time.Millisecond {
				t.Errorf("the turn is interrupted after %v, want within 1.55 s", took)
			}
			if _, takes := all[0].turnContext(ctx); takes || all[0].redeliveryDelay() != unfitKnownAfter {
				t.Errorf("the writer takes turns, or hands them back after %v", all[0].redeliveryDelay())
			}
			cut[1].Store(true)
			time.Sleep(time.Minute)
			if other.Err() != nil {
				t.Error("the writer that all was left to lets go when no writer has answers")
			}
			cut[0].Store(false)
			cut[1].Store(false)
			time.Sleep(5 * time.Second)
			if inFlight(t, all[0], ctx).Err() != nil || all[0].redeliveryDelay() != 0 {
				t.Error("the writer takes no turns when it hears itself again")
			}
		})
	}
}

func inFlight(t *testing.T, s *share, ctx context.Context) context.Context {
	t.Helper()
	hand, takes := s.turnContext(ctx)
	if !takes {
		t.Fatal("the writer takes no turns")
	}
	return hand
}
