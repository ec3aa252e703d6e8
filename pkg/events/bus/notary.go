package bus

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Notarized is a bus whose streams a notary reads, to store what it signs about
// them in a stream of its own.
type Notarized interface {
	Archive
	// EnsureNotary makes the notary's stream, which keeps a message for so long at
	// least; 0 is for ever. Never is it made to keep less than it does.
	EnsureNotary(ctx context.Context, keep time.Duration) error
	// Store is that of [Publisher].
	Store(ctx context.Context, m events.Message, expect uint64) (sequence uint64, err error)
}
