package shadow

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// TestEverySmallLagIsTried: which of many pods goes may hang on a single change, so no
// number of changes that KCM may well be behind is passed over.
func TestEverySmallLagIsTried(t *testing.T) {
	sets, pods := kinds.ReplicaSets.Name, kinds.Pods.Name
	tried := map[[2]int]bool{}
	for at, back := range lags([]kinds.Name{sets, pods}) {
		if at < most {
			tried[[2]int{back[sets], back[pods]}] = true
		}
	}
	for s := range 13 {
		for p := range 13 {
			if !tried[[2]int{s, p}] {
				t.Errorf("sets %d and pods %d changes behind is no view that is asked about", s, p)
			}
		}
	}
}
