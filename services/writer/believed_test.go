package writer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/services/writer/claim"
)

// An unproven heartbeat of another writer is ignored: it neither delays a turn, nor makes a turn
// in flight uncertain.
func TestWhatIsNotProvenIsNotSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, proven, other := holding(), false, claim.Place{Controller: held.Controller, Sequence: 8}
		h.signed = func([]byte) bool { return proven }
		listen(h, claim.Interval)
		for n := range uint64(5) {
			hears(h, 10*n+1, other.Sequence, held.Sequence)
			if !h.claim(other) || !h.watched(time.Now()) {
				t.Fatal("a claim that is not proven counts")
			}
			listen(h, claim.Interval)
		}
		time.Sleep(claim.Expiry)
		for range 4 {
			listen(h, claim.Interval)
		}
		if got := h.standing(held); got != claim.Free {
			t.Errorf("after an expiry the turn is %v, want %v: a claim that is not signed contests it", got, claim.Free)
		}
		proven = true
		hears(h, 50, other.Sequence)
		if h.claim(other) {
			t.Error("a claim that is proven does not count")
		}
	})
}
