package space_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/stream/space"
)

// Of an almost full store the largest log is bounded.
func Example() {
	const mb = 1 << 20
	sizes := map[string]uint64{"EV_configmaps": 700 * mb, "EV_pods": 100 * mb, "TURN_job-controller": 50 * mb}
	for name, bytes := range space.Bounds(sizes, 850*mb, 1000*mb) {
		fmt.Println(name, bytes/mb)
	}
	// Output: EV_configmaps 600
}
