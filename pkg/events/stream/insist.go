package stream

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Servers of a cluster that are starting, or choosing a leader, do not answer for
// a stream, or answer that they cannot. That passes; so what a service needs
// before it can begin is asked for until it is there, and the log says what is
// waited for.
const (
	// waitRemark is how often the log repeats what is waited for.
	waitRemark = 10 * time.Second
	// doubtfulFor is how long to wait for what may pass and may not.
	doubtfulFor = 30 * time.Second
)

// insist does until it is done, or fails for a reason that waiting does not mend.
func (b *Bus) insist(ctx context.Context, what string, do func() error) error {
	var remarked time.Time
	began := time.Now()
	for attempt := 0; ; attempt++ {
		err := do()
		if err == nil || !passing(err) || ctx.Err() != nil || doubtful(err) && time.Since(began) > doubtfulFor {
			return err
		}
		// The first time may be chance.
		if attempt > 0 && time.Since(remarked) > waitRemark {
			remarked = time.Now()
			b.options.Log.Info("Waiting for NATS to "+what, "error", err)
		}
		if !pause(ctx, attempt) {
			return err
		}
	}
}

// passingCodes are the server's words for a cluster that is not complete.
var passingCodes = []jetstream.ErrorCode{
	10004, // incomplete results
	10005, // no suitable peers for placement
	10008, // temporarily unavailable: no leader
	10009, // cannot handle the request: no leader here
	10049, // cannot create the store: what was deleted is still being removed
	10118, // stream is offline
}

// doubtful tells that it may not pass either: a server without JetStream will
// never listen, and a disk that cannot be written stays so.
func doubtful(err error) bool {
	var api jetstream.JetStreamError
	return unanswered(err) || errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == 10049
}

// passing tells the errors that end by themselves when servers come back.
func passing(err error) bool {
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil {
		return slices.Contains(passingCodes, api.APIError().ErrorCode)
	}
	return unanswered(err) || errors.Is(err, ErrNoProvisioner) || errors.Is(err, errNotYet) || errors.Is(err, errNotLed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting)
}
