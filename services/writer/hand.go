package writer

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/pkg/events/bus"
)

// place is where a turn is stored.
type place struct {
	stream   string
	sequence uint64
}

// hand is the turns that a writer has taken and not answered.
type hand struct {
	metrics *metrics
	turns   sync.WaitGroup

	mu     sync.Mutex
	held   map[place]bus.Delivery // the newest delivery of each
	beaten time.Time              // when all of it was last said to be worked on
	lapses int                    // how often that came so late that others may have it
}

func newHand(m *metrics) *hand {
	return &hand{metrics: m, held: map[place]bus.Delivery{}, beaten: time.Now()}
}

// hold gives a turn that is being taken in hand its grip: false from the moment
// when it may have been delivered to another writer. A process that was stopped
// or starved for so long must not go on where it was: what it would create again
// may have been deleted meanwhile.
func (h *hand) hold() (holds func() bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.lapses
	return func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.lapses == taken && time.Since(h.beaten) < lapse
	}
}

// take takes a delivery in hand and carries on with it in a goroutine of its
// own. A turn that is in hand already is only said to be worked on; its newest
// delivery is the one to answer.
func (h *hand) take(controller string, d bus.Delivery, carry func(holds func() bool)) {
	m := d.Message()
	at := place{m.Stream, m.Sequence}
	h.mu.Lock()
	_, known := h.held[at]
	h.held[at] = d
	h.mu.Unlock()
	if known {
		d.Working()
		return
	}
	holds := h.hold()
	h.metrics.inHand.WithLabelValues(controller).Inc()
	h.turns.Go(func() {
		defer h.metrics.inHand.WithLabelValues(controller).Dec()
		carry(holds)
	})
}

// answer lets a turn go, with the answer to its newest delivery.
func (h *hand) answer(d bus.Delivery, how func(bus.Delivery)) {
	m := d.Message()
	at := place{m.Stream, m.Sequence}
	h.mu.Lock()
	newest := h.held[at]
	delete(h.held, at)
	h.mu.Unlock()
	how(newest)
}

// keep says of everything in hand that it is worked on, until the context ends.
func (h *hand) keep(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for _, d := range h.beat() {
			d.Working()
		}
	}
}

// beat counts a lapse if this beat comes too late, and gives what is in hand.
func (h *hand) beat() []bus.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.beaten) >= lapse {
		h.lapses++
	}
	h.beaten = time.Now()
	all := make([]bus.Delivery, 0, len(h.held))
	for _, d := range h.held {
		all = append(all, d)
	}
	return all
}

// drain waits until nothing is in hand; after the limit it calls cut, which
// must make whatever is left give up.
func (h *hand) drain(limit time.Duration, cut func()) {
	timer := time.AfterFunc(limit, cut)
	defer timer.Stop()
	h.turns.Wait()
}
