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
		want    rhythm
	}{
		"in this process":           {Options{Server: alone, Replicas: 1}, housed},
		"elsewhere":                 {Options{URL: "nats://elsewhere", Replicas: 1}, lone},
		"in this process, of three": {Options{Server: one, Replicas: 1}, lone},
		"of three, three copies":    {Options{Server: one, Replicas: 3}, clustered},
	} {
		if got := tc.options.rhythm(); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
	for name, r := range map[string]rhythm{"housed": housed, "lone": lone, "clustered": clustered} {
		if r.asking < 2*r.heartbeat { // or the client library refuses
			t.Errorf("%s: asked every %v, with heartbeats every %v", name, r.asking, r.heartbeat)
		}
		if name != "housed" && r.asking > bus.Lingering {
			t.Errorf("%s: who was stopped counts as asking for %v", name, r.asking)
		}
	}
}
