package claim

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/report"
)

// The memory for other writers is bounded, however many are invented.
func TestMadeUpWritersAreBounded(t *testing.T) {
	h := newParty("self")
	for n := range 1000 {
		h.hear(report.Heartbeat{Writer: fmt.Sprint("ghost-", n), Number: 1})
	}
	if got := len(h.others); got != mostOthers {
		t.Errorf("%d writers are remembered, want %d", got, mostOthers)
	}
}

// The memory for their claims is bounded, however many turns they claim; for a turn that is here
// each claim counts.
func TestMadeUpClaimsAreBounded(t *testing.T) {
	h := newParty("self")
	here := Place{"toy", 1 << 40}
	h.inFlight[here] = &flight{taken: time.Now()}
	for writer := range 50 {
		turns := make([]uint64, 10_000)
		for i := range turns {
			turns[i] = uint64(writer*len(turns) + i)
		}
		h.hear(report.Heartbeat{Writer: fmt.Sprint("ghost-", writer), Number: 1, Turns: map[string][]uint64{"toy": turns}})
	}
	claims := 0
	for _, p := range h.others {
		claims += len(p.turns)
	}
	if claims > mostClaims {
		t.Errorf("%d claims are remembered, want %d at most", claims, mostClaims)
	}
	h.contests[here] = &contestedTurn{since: time.Now(), deliveredAt: time.Now()}
	h.hear(report.Heartbeat{Writer: "ghost-49", Number: 2, Turns: map[string][]uint64{"toy": {here.Sequence}}})
	if !h.claimed(here, time.Now()) {
		t.Error("a claim on a turn that is here does not count")
	}
}
