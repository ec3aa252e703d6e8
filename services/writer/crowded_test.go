package writer

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// However many writers are made up, what is kept of them is bounded.
func TestMadeUpWritersAreBounded(t *testing.T) {
	h := newHand("self", newMetrics())
	for n := range 1000 {
		h.hear(events.Beat{Writer: fmt.Sprint("ghost-", n), Number: 1}.Encode())
	}
	if got := len(h.others); got != mostOthers {
		t.Errorf("%d writers are remembered, want %d", got, mostOthers)
	}
}
