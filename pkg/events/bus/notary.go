package bus

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// NotaryBus is a bus for a notary, which reads its streams and stores its signed pages in a
// stream of its own.
type NotaryBus interface {
	Archive
	// EnsureNotary creates the notary's stream, which keeps messages for at least the duration
	// keep; 0 means for ever. It never shortens an existing retention.
	EnsureNotary(ctx context.Context, keep time.Duration) error
	// Store is [Publisher].Store.
	Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error)
}
