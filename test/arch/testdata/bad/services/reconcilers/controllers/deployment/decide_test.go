package deployment

import (
	"os"
	"testing"
	"time"

	"github.com/nats-io/nats.go" // want: only door to JetStream & a controller knows the vocabulary
	"pgregory.net/rapid"
)

// A test may look at the clock, but not through a door.
func TestDecide(t *testing.T) {
	rapid.Check(t, func(*rapid.T) { _ = time.Now() })
	_, _ = os.Getwd()
	t.Skip("too hard") // want: a test that does not run proves nothing
	_ = nats.Version
}
