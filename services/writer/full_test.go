package writer

import (
	"slices"
	"testing"
)

// The desks are told of all that a writer has in hand, and for which controllers it is
// given no more.
func TestAllThatIsInHandIsSaid(t *testing.T) {
	t.Parallel()
	h := newHand("a", newMetrics())
	h.give("rs", 3)
	h.give("job", 2)
	hold := make(chan struct{})
	defer h.turns.Wait()
	defer close(hold)
	for sequence, fresh := range map[uint64]bool{7: true, 8: false, 9: false} {
		h.take(place{"rs", sequence}, nothing{}, fresh, func() { <-hold })
	}
	h.take(place{"job", 5}, nothing{}, true, func() { <-hold })
	_, said := h.beat()
	if got := said.InHand("rs"); !slices.Equal(got, []uint64{7, 8, 9}) || !slices.Equal(said.Turns["rs"], got[:1]) {
		t.Errorf("in hand are %v, of which %v are its own", got, said.Turns["rs"])
	}
	if !slices.Equal(said.Full, []string{"rs"}) {
		t.Errorf("full are %v", said.Full)
	}
}
