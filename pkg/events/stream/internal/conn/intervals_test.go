package conn

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
)

// TestOnlyWhatCannotBeLostIsAskedSeldom: a server is trusted to be there only where it
// ends with this process, and where no other server goes on without it.
func TestOnlyWhatCannotBeLostIsAskedSeldom(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		replicas      int
		here, several bool
		want          Intervals
	}{
		"in this process":           {1, true, false, inProcess},
		"elsewhere":                 {1, false, false, standalone},
		"in this process, of three": {1, true, true, standalone},
		"of three, three copies":    {3, true, true, clustered},
	} {
		if got := IntervalsOf(tc.replicas, tc.here, tc.several); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	for name, r := range map[string]Intervals{"housed": inProcess, "lone": standalone, "clustered": clustered} {
		if r.PullExpiry < 2*r.Heartbeat { // or the client library refuses
			t.Errorf("%s: asked every %v, with heartbeats every %v", name, r.PullExpiry, r.Heartbeat)
		}
		if name != "housed" && r.PullExpiry > bus.Lingering {
			t.Errorf("%s: who was stopped counts as asking for %v", name, r.PullExpiry)
		}
	}
}
