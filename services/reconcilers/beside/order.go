package beside

import (
	"cmp"
	"container/heap"
	"strconv"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// arrival is a message of a kind's log.
type arrival struct {
	kind    kinds.Kind
	message events.Message
	delta   events.Delta
	came    time.Time // when it was read here
	place   uint64    // in the order of everything
}

// order merges the logs of kinds in the order of the API server's versions. The
// messages of one kind stay in the order of their log.
type order struct {
	waiting arrivals
	newest  map[kinds.Name]uint64 // the place of each kind's last message
	passed  uint64                // of the last message given out
}

func newOrder() *order { return &order{newest: map[kinds.Name]uint64{}} }

// push adds the next message of a kind.
func (o *order) push(a arrival) {
	place, _ := strconv.ParseUint(a.delta.ResourceVersion, 10, 64) // 0: right after the message before it
	a.place = max(place, o.newest[a.kind.Name])
	o.newest[a.kind.Name] = a.place
	heap.Push(&o.waiting, a)
}

// take returns, in order, the messages that came before a moment, and those with a
// place before one of them. Later messages should have places after all of these;
// late counts the returned messages for which that did not hold.
func (o *order) take(before time.Time) (ripe []arrival, late int) {
	some, cut := false, uint64(0)
	for _, a := range o.waiting {
		if a.came.Before(before) {
			some, cut = true, max(cut, a.place)
		}
	}
	for some && len(o.waiting) > 0 && o.waiting[0].place <= cut {
		a := heap.Pop(&o.waiting).(arrival)
		if a.place < o.passed {
			late++
		}
		o.passed = max(o.passed, a.place)
		ripe = append(ripe, a)
	}
	return ripe, late
}

// oldest is when the first of the waiting messages came.
func (o *order) oldest() (came time.Time, ok bool) {
	for _, a := range o.waiting {
		if !ok || a.came.Before(came) {
			came, ok = a.came, true
		}
	}
	return came, ok
}

// arrivals is a heap, sorted by place.
type arrivals []arrival

func (h arrivals) Len() int { return len(h) }

func (h arrivals) Less(i, j int) bool {
	a, b := h[i], h[j]
	return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.kind.Name, b.kind.Name), cmp.Compare(a.message.Sequence, b.message.Sequence)) < 0
}

func (h arrivals) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *arrivals) Push(x any) { *h = append(*h, x.(arrival)) }

// Pop implements [heap.Interface].
func (h *arrivals) Pop() any {
	last := len(*h) - 1
	a := (*h)[last]
	(*h)[last] = arrival{}
	*h = (*h)[:last]
	return a
}
