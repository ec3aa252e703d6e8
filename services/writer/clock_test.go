package writer

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
)

// slowClock returns a bus whose answers take some time; it takes the time when it answers.
func slowClock(takes *time.Duration) *bustest.Bus {
	return &bustest.Bus{OnStreamState: func(context.Context, string) (bus.State, error) {
		time.Sleep(*takes)
		return bus.State{Now: time.Now()}, nil
	}}
}

func TestASlowAnswerDoesNotSetTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, clock := 10*time.Millisecond, &busTime{}
		b := slowClock(&takes)
		read := func() time.Duration {
			if err := clock.read(t.Context(), b, "pods"); err != nil {
				t.Fatal(err)
			}
			return clock.now().Sub(time.Now())
		}
		if ahead := read(); ahead != 10*time.Millisecond {
			t.Errorf("the first answer sets a clock that is %v ahead, want what the answer took", ahead)
		}
		takes = 3 * time.Second
		if ahead := read(); ahead != 10*time.Millisecond {
			t.Errorf("after an answer that took 3 s the clock is %v ahead, want 10ms: turns would seem older than they are", ahead)
		}
		takes = 50 * time.Millisecond
		if ahead := read(); ahead != 50*time.Millisecond {
			t.Errorf("after a quick answer the clock is %v ahead, want what the answer took", ahead)
		}
	})
}

func TestTheFirstAnswerSetsTheClockHoweverSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes, clock := time.Minute, &busTime{}
		if err := clock.read(t.Context(), slowClock(&takes), "pods"); err != nil || !clock.known() {
			t.Errorf("the clock is known: %t, %v", clock.known(), err)
		}
	})
}

// The clock is read every ten seconds. The writer prefers extrapolation to an answer that takes
// 200 ms or longer.
func TestHowOftenTheClockIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer, clock := time.Duration(0), &busTime{}
		b := slowClock(&answer)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { clock.run(ctx, b, "pods"); close(ended) }()
		time.Sleep(35 * time.Second) // virtual
		synctest.Wait()
		if reads := b.Count(bustest.StreamState); reads != 3 {
			t.Errorf("in 35 s it is read %d times", reads)
		}
		stop()
		<-ended
		for takes, ahead := range map[time.Duration]time.Duration{200*time.Millisecond - 1: 200*time.Millisecond - 1, 200 * time.Millisecond: 0} {
			clock := &busTime{}
			for _, each := range []time.Duration{0, takes} {
				answer = each
				if err := clock.read(t.Context(), b, "pods"); err != nil {
					t.Fatal(err)
				}
			}
			if got := clock.now().Sub(time.Now()); got != ahead {
				t.Errorf("after an answer of %v it is %v ahead, want %v", takes, got, ahead)
			}
		}
	})
}
