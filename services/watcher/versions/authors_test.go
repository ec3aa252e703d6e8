package versions

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/translate"
)

// TestWhatIsRememberedIsOfTheEndOfTheLog: where the log does not end with what this watcher
// appended, another watcher has continued it, or something was not stored.
func TestWhatIsRememberedIsOfTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	for last, kept := range map[uint64]bool{5: true, 3: false, 7: false} {
		a := Authors{LastAppended: 5}
		a.Note("pods", events.Is, "u1", translate.WritersOf(nil))
		a.Note("leases.coordination.k8s.io", events.Is, "u2", translate.WritersOf(nil))
		a.Note("pods", events.Is, "u3", translate.WritersOf(nil))
		a.Note("pods", events.Gone, "u3", translate.WritersOf(nil))
		if a.Resume(last); len(a.objects) != map[bool]int{true: 1, false: 0}[kept] {
			t.Errorf("where the log ends at %d of 5, %d objects are remembered", last, len(a.objects))
		}
	}
}
