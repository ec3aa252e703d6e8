package writer

import (
	"testing"
	"testing/synctest"
	"time"
)

// A writer that did not beat for so long that its turns may have been delivered
// to another one must not go on with them, even after it beats again.
func TestALapseLosesWhatIsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHand(newMetrics())
		before := h.hold()
		time.Sleep(lapse - time.Millisecond)
		if !before() {
			t.Error("the grip is lost although the beat is not late yet")
		}
		h.beat()
		if !before() {
			t.Error("a beat in time loses the grip")
		}
		time.Sleep(lapse)
		if before() {
			t.Error("the grip outlives a missing beat")
		}
		h.beat()
		if before() {
			t.Error("a late beat gives the grip back")
		}
		if after := h.hold(); !after() {
			t.Error("what is taken after the lapse is not held")
		}
	})
}
