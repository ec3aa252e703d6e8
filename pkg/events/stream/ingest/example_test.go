package ingest_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/stream/ingest"
)

// Each message of a batch has a reply subject of its own, on which the server reports what it has stored.
func ExampleBatch() {
	batch := ingest.New("_INBOX.a", "b1")
	reply := batch.Next()
	fmt.Println(batch.Owns(reply), batch.Open(), batch.Stored())
	// Output: true 1 0
}
