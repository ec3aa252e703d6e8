package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// turns is a bus that holds some turns of a controller.
func turns(t *testing.T, n int) *memory.Bus {
	t.Helper()
	b := memory.New(memory.Options{})
	t.Cleanup(func() { _ = b.Close() })
	if err := b.EnsureController(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		m := events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: fmt.Sprint(i)})}
		if _, err := b.Put(t.Context(), m, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// takes has a worker hand its deliveries over, until it is stopped.
func takes(t *testing.T, b bus.Bus, w bus.Work) (taken chan bus.Delivery, stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	taken, done := make(chan bus.Delivery, 100), make(chan struct{})
	w.Stream, w.Durable = subject.TurnStream("c"), "w"
	go func() {
		defer close(done)
		if err := b.Work(ctx, w, func(d bus.Delivery) { taken <- d }); err != nil {
			t.Error(err)
		}
	}()
	return taken, func() { cancel(); <-done }
}

// A rank beyond those that there are is the nearest of them.
func TestRanksBeyondTheLast(t *testing.T) {
	for _, rank := range []int{-1, bus.LastRank + 1} {
		synctest.Test(t, func(t *testing.T) {
			taken, stop := takes(t, turns(t, 1), bus.Work{Rank: rank})
			if d := <-taken; d.Message().Sequence != 1 {
				t.Errorf("in rank %d came %d", rank, d.Message().Sequence)
			}
			stop()
		})
	}
}

// A delivery that is worked on does not come again to the next worker, before its time.
func TestWhatIsWorkedOnDoesNotComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := turns(t, 2)
		standing := func(when string, want bus.Consumer) {
			t.Helper()
			found, err := b.Consumers(t.Context(), subject.TurnStream("c"))
			if want.Name = "w"; err != nil || len(found) != 1 || found[0] != want {
				t.Errorf("%s the consumer is %+v (%v), want %+v", when, found, err, want)
			}
		}
		taken, stop := takes(t, b, bus.Work{AckWait: time.Second, MaxPending: 1})
		d := <-taken
		standing("at first", bus.Consumer{Answered: 0, Unanswered: 1, Pending: 1})
		stop()
		time.Sleep(time.Second)
		d.InProgress()
		taken, stop = takes(t, b, bus.Work{AckWait: time.Second, MaxPending: 1})
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if len(taken) != 0 {
			t.Errorf("%d came while the first was worked on", len(taken))
		}
		time.Sleep(1)
		if again := <-taken; again.Message().Sequence != 1 || again.Attempt() != 2 {
			t.Errorf("then came %d, attempt %d", again.Message().Sequence, again.Attempt())
		}
		standing("when it has come again", bus.Consumer{Answered: 0, Unanswered: 1, Pending: 1, Again: 1})
		d.Ack()
		if next := <-taken; next.Message().Sequence != 2 || next.Attempt() != 1 {
			t.Errorf("behind it came %d, attempt %d", next.Message().Sequence, next.Attempt())
		}
		standing("when it is done", bus.Consumer{Answered: 1, Unanswered: 1})
		stop()
	})
}

// What is not there, or too large, is an error.
func TestWhatCannotBeDone(t *testing.T) {
	b := turns(t, 0)
	m := events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "a"}), Data: make([]byte, 8<<20-1000)}
	if _, err := b.Put(t.Context(), m, "a"); err != nil {
		t.Errorf("a message of nearly 8 MiB: %v", err)
	}
	m.Data = make([]byte, 8<<20+1)
	if _, err := b.Put(t.Context(), m, "b"); !errors.Is(err, bus.ErrTooLarge) {
		t.Errorf("a message of more than 8 MiB: %v", err)
	}
	if err := b.Truncate(subject.TurnStream("c"), 0); err != nil {
		t.Fatal(err)
	}
	if m, there, err := b.Last(t.Context(), subject.TurnStream("c"), m.Subject); err != nil || there {
		t.Errorf("behind the end of a stream lies %+v, %v", m.Sequence, err)
	}
}
