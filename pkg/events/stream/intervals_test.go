package stream

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/bus"
)

// TestOnlyWhatCannotBeLostIsAskedSeldom: a server is trusted to be there only where it
// ends with this process, and where no other server goes on without it.
func TestOnlyWhatCannotBeLostIsAskedSeldom(t *testing.T) {
	t.Parallel()
	alone, one := &Server{}, &Server{}
	one.options.Cluster.Listen = "127.0.0.1:0"
	for name, tc := range map[string]struct {
		options Options
		want    intervals
	}{
		"in this process":           {Options{Server: alone, Replicas: 1}, inProcess},
		"elsewhere":                 {Options{URL: "nats://elsewhere", Replicas: 1}, standalone},
		"in this process, of three": {Options{Server: one, Replicas: 1}, standalone},
		"of three, three copies":    {Options{Server: one, Replicas: 3}, clustered},
	} {
		if got := tc.options.intervals(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	for name, r := range map[string]intervals{"housed": inProcess, "lone": standalone, "clustered": clustered} {
		if r.pullExpiry < 2*r.heartbeat { // or the client library refuses
			t.Errorf("%s: asked every %v, with heartbeats every %v", name, r.pullExpiry, r.heartbeat)
		}
		if name != "housed" && r.pullExpiry > bus.Lingering {
			t.Errorf("%s: who was stopped counts as asking for %v", name, r.pullExpiry)
		}
	}
}
