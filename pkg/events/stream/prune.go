package stream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Prune removes a message from a state stream; see [bus.Streams]. A mirror does not
// mind: what comes later under the subject has a sequence of its own.
func (b *Bus) Prune(ctx context.Context, kind kinds.Name, about string, sequence uint64) error {
	state := subject.StateStream(kind)
	handle, err := b.reading(ctx, state)
	if err != nil {
		return err
	}
	request, done := b.guarded(ctx, state)
	defer done()
	if err := handle.Purge(request, jetstream.WithPurgeSubject(about), jetstream.WithPurgeSequence(sequence+1)); err != nil {
		return fmt.Errorf("prune %s of message %d: %w", state, sequence, translated(request, err))
	}
	return nil
}
