package claim

import (
	"slices"
	"testing"
)

// The heartbeats tell the reconcilers all turns that a writer has in flight, and the controllers
// whose limit is reached.
func TestAllThatIsInFlightIsSaid(t *testing.T) {
	h := newParty("a")
	h.Limit("rs", 3)
	h.Limit("job", 2)
	for sequence, fresh := range map[uint64]bool{7: true, 8: false, 9: false} {
		h.take(Place{"rs", sequence}, fresh)
	}
	h.take(Place{"job", 5}, true)
	said := h.heartbeat()
	if got := said.InFlight("rs"); !slices.Equal(got, []uint64{7, 8, 9}) || !slices.Equal(said.Turns["rs"], got[:1]) {
		t.Errorf("in flight are %v, of which %v are its own", got, said.Turns["rs"])
	}
	if !slices.Equal(said.Full, []string{"rs"}) {
		t.Errorf("full are %v", said.Full)
	}
}
