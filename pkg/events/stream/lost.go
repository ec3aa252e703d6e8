package stream

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// A consumer in the memory of one server of a cluster is lost with that server;
// the cluster still knows its name, and waits for the server for ever. So whoever
// works finds nobody who answers, gives it up after a while, and makes it anew on
// a server that is there.
const (
	// lookupPatience is how long a look at a stream or consumer may take.
	lookupPatience = 2 * time.Second
	// lookups is how many in a row may go unanswered before a consumer that is
	// volatile is given up.
	lookups = 2
)

// find looks the consumer up, and counts how often nobody answered.
func (w *worker) find(ctx context.Context) (jetstream.Consumer, error) {
	lookup, done := context.WithTimeout(ctx, lookupPatience)
	defer done()
	found, err := w.bus.js.Consumer(lookup, w.work.Stream, w.work.Durable)
	switch {
	case err == nil, errors.Is(err, jetstream.ErrConsumerNotFound), ctx.Err() != nil:
		w.silent = 0
	default:
		w.silent++
	}
	return found, err
}

// lost tells that the consumer must be given up.
func (w *worker) lost() bool {
	return w.work.Volatile && w.bus.options.Replicas > 1 && w.silent >= lookups
}
