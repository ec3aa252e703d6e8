package streamtest

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/subject"
)

// contest is two workers under one name, one with the lower rank.
type contest struct {
	*kit
	job           bus.Work
	first, second *working
	stored        int
}

func (c *contest) ranked(rank int) *working {
	job := c.job
	job.Rank = rank
	return c.work(job)
}

func (c *contest) store(n int) {
	c.Helper()
	for range n {
		c.stored++
		_, err := c.bus.Store(c.ctx, turn(fmt.Sprint("key-", c.stored), ""), 0)
		c.must(err)
	}
}

// reached waits until a worker gets a stored message, which shows that it has asked.
func (c *contest) reached(w, other *working) {
	c.Helper()
	eventually.True(c, Patience, "the worker is asked first", func() bool {
		c.store(1)
		select {
		case d := <-w.deliveries:
			d.Ack()
			return true
		case d := <-other.deliveries:
			d.Ack()
			return false
		}
	})
}

// hold answers every message but one, which it returns when the first worker has it with the
// given attempt or a later one; nil when the second worker got any message.
func (c *contest) hold(sequence uint64, attempt int) bus.Delivery {
	c.Helper()
	patience := time.After(Patience)
	for {
		select {
		case d := <-c.first.deliveries:
			if d.Message().Sequence != sequence {
				d.Ack()
			} else if d.Attempt() >= attempt {
				return d
			}
		case d := <-c.second.deliveries:
			d.Ack()
			return nil
		case <-patience:
			c.Fatalf("message %d has not come for the %d. time", sequence, attempt)
		}
	}
}

// undivided reports whether the first worker gets everything, redeliveries included. It leaves
// the last message unanswered.
func (c *contest) undivided() (left uint64, all bool) {
	c.Helper()
	c.reached(c.first, c.second)
	c.store(100)
	left = uint64(c.stored)
	for attempt := 1; attempt <= 3; attempt++ {
		d := c.hold(left, attempt)
		if d == nil {
			return left, false
		}
		if attempt == 2 {
			d.NakWithDelay(0)
		}
	}
	select {
	case d := <-c.second.deliveries:
		d.Ack()
		return left, false
	case <-time.After(50 * time.Millisecond):
		return left, true
	}
}

// testWorkRanked: the lowest rank gets everything, redeliveries included, for as long as it
// asks for more; the next rank gets the rest, at once.
func testWorkRanked(t *testing.T, b bus.Bus) {
	c := &contest{kit: newKit(t, b), job: bus.Work{Stream: subject.TurnStream(controller), Durable: "writer", AckWait: 500 * time.Millisecond}}
	c.second = c.ranked(4)
	c.store(1)
	c.next(c.second).Ack()
	c.first = c.ranked(1)
	left, all := c.undivided()
	if !all {
		t.Fatal("the second got something that the first had asked for")
	}
	c.stop(c.first)
	c.store(1)
	for want := map[uint64]bool{left: true, uint64(c.stored): true}; len(want) > 0; {
		d := c.next(c.second)
		// A message that was answered late comes again, to the remaining worker.
		if n := d.Message().Sequence; n != left && n != uint64(c.stored) && d.Attempt() == 1 {
			t.Errorf("the second got message %d, want %d and %d", n, left, c.stored)
		}
		delete(want, d.Message().Sequence)
		d.Ack()
	}
	c.reached(c.ranked(0), c.second)
}
