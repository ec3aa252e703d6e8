package writer

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/services/writer/claim"
)

// numbered is an identifiable delivery that counts how often it was marked as in progress.
type numbered struct {
	nothing
	attempt int
	working *int
}

func (n numbered) Attempt() int { return n.attempt }
func (n numbered) InProgress()  { *n.working++ }

// A turn that is redelivered while in flight is carried out once. The writer marks its newest
// delivery as in progress, and answers that one.
func TestTheNewestDeliveryIsAnswered(t *testing.T) {
	t.Parallel()
	h, at := newInFlightTurns("a", newMetrics()), claim.Place{Controller: "rs", Sequence: 7}
	carried, first, second := 0, 0, 0
	hold := make(chan struct{})
	carry := func() { carried++; <-hold }
	h.take(at, numbered{attempt: 1, working: &first}, true, carry)
	h.take(at, numbered{attempt: 2, working: &second}, false, carry)
	deliveries, _ := h.heartbeat()
	for _, d := range deliveries {
		d.InProgress()
	}
	if first != 0 || second != 2 { // once on arrival, once with the heartbeat
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
