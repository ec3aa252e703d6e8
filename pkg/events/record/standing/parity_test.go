package standing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/record/standing"
	"github.com/millrace/millrace/pkg/events/report"
)

// The findings of a shadow are counted, and shown from difference to agreement, the newest
// first, with the turn that wanted the write.
func TestAShadowIsCompared(t *testing.T) {
	tell(t, func(w *world) {
		begun := time.Now()
		w.Compared()
		all, err := w.standing.Parities(w.Context(), []string{deployments, replicaSets}, standing.Compared{Show: report.Agreements, Most: 1})
		w.Must(err)
		if len(all) != 1 || all[0].Controller != replicaSets {
			w.Fatalf("compared are %+v", all)
		}
		p := all[0]
		if p.Total() != 3 || p.Unexplained != 1 || p.Percent() < 66 || p.Percent() > 67 || fmt.Sprint(p.Kinds()) != "[agreed differs]" {
			w.Errorf("of %d findings %d are unexplained: %v %% of %v; want 3, 1, two thirds", p.Total(), p.Unexplained, p.Percent(), p.Kinds())
		}
		if !p.Since.Equal(begun.Add(time.Second)) || !p.Until.Equal(begun.Add(3*time.Second)) {
			w.Errorf("the comparison lasted from %v to %v, want from 1s to 3s", p.Since.Sub(begun), p.Until.Sub(begun))
		}
		if len(p.Examples) != 2 || p.Examples[0].What != "second" || p.Examples[0].Decided != nil || p.Examples[1].What != "third" ||
			p.Examples[1].Decided == nil || p.Examples[1].Decided.Because != "too few Pods" {
			w.Errorf("the examples are %+v", p.Examples)
		}
		all, err = w.standing.Parities(w.Context(), []string{replicaSets}, standing.Compared{Since: begun.Add(2 * time.Second), Show: []report.Agreement{report.Agreed}, Most: 5})
		w.Must(err)
		if len(all) != 1 || all[0].Total() != 2 || len(all[0].Examples) != 1 {
			w.Errorf("the parity since the second finding is %+v, want 2 findings", all)
		}
		if none := (standing.Parity{}); none.Percent() != 100 {
			w.Errorf("without findings the parity is %v %%, want 100", none.Percent())
		}
	})
}
