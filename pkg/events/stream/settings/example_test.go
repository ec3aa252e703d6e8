package settings_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// A stream that exists is compared with the wanted one.
func ExampleDifferences() {
	p := settings.Policy{Replicas: 3, Age: 24 * time.Hour, Began: time.Now()}
	want := p.Log(kinds.Pods.Kind)
	have := want
	have.Replicas = 1
	fmt.Println(want.Name, settings.Differences(have, want))
	// Output:
	// EV_pods [num_replicas is 1, want 3]
}
