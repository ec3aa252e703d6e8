package writer

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/writer/claim"
)

// numbered is a delivery that can be told from others, and counts how often it was
// said to be worked on.
type numbered struct {
	nothing
	attempt int
	working *int
}

func (n numbered) Attempt() int { return n.attempt }
func (n numbered) Working()     { *n.working++ }

// A turn that is delivered again while it is in flight is carried out once; the
// newest delivery is the one that is said to be worked on, and that is answered.
func TestTheNewestDeliveryIsAnswered(t *testing.T) {
	t.Parallel()
	h, at := newFlights("a", newMetrics()), claim.Place{Controller: "rs", Sequence: 7}
	carried, first, second := 0, 0, 0
	hold := make(chan struct{})
	carry := func() { carried++; <-hold }
	h.take(at, numbered{attempt: 1, working: &first}, true, carry)
	h.take(at, numbered{attempt: 2, working: &second}, false, carry)
	deliveries, _ := h.heartbeat()
	for _, d := range deliveries {
		d.Working()
	}
	if first != 0 || second != 2 { // once when it came, once with the heartbeat
		t.Errorf("the first delivery was renewed %d times, the second %d times", first, second)
	}
	answered := 0
	h.answer(at, func(d bus.Delivery) { answered = d.Attempt() })
	if answered != 2 {
		t.Errorf("delivery %d was answered", answered)
	}
	close(hold)
	h.turns.Wait()
	if carried != 1 {
		t.Errorf("carried out %d times", carried)
	}
}
