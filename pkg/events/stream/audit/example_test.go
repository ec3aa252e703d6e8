package audit_test

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/audit"
)

// A server that syncs every two minutes may lose what it acknowledged since.
func ExampleFacts_Judge() {
	seen := audit.Facts{
		Replicas: 3, Online: 3, Version: "2.15.2", Payload: 8 << 20,
		Sync: map[string]time.Duration{"a": 0, "b": 2 * time.Minute, "c": 0},
	}
	for _, short := range seen.Judge() {
		fmt.Println(short.Reason + ": " + short.What)
	}
	// Output:
	// sync: NATS server b syncs every 2m0s, so that a power failure loses what was acknowledged since
}
