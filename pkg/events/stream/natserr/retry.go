package natserr

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// While servers of a cluster start or elect a leader, they do not answer for a stream, or
// answer that they cannot. That passes; so a service repeats the requests that it needs before
// it can begin, and logs what it waits for.
const (
	// waitLogEvery is how often the log repeats that the service waits.
	waitLogEvery = 10 * time.Second
	// uncertainFor bounds the wait for an error that may never pass.
	uncertainFor = 30 * time.Second
)

// Retry repeats do until it succeeds, or fails for a reason that waiting does not change. It logs what it waits for.
//
// Errors: those of do.
func Retry(ctx context.Context, log *slog.Logger, what string, do func() error) error {
	var remarked time.Time
	began := time.Now()
	for attempt := 0; ; attempt++ {
		err := do()
		if err == nil || !IsPassing(err) || ctx.Err() != nil || mayBePermanent(err) && time.Since(began) > uncertainFor {
			return err
		}
		// The first failure may be chance.
		if attempt > 0 && time.Since(remarked) > waitLogEvery {
			remarked = time.Now()
			log.Info("Waiting for NATS to "+what, "error", err)
		}
		if !Pause(ctx, attempt) {
			return err
		}
	}
}

// passingCodes are the server's error codes for an incomplete cluster.
var passingCodes = []jetstream.ErrorCode{
	10004, // incomplete results
	10005, // no suitable peers for placement
	10008, // temporarily unavailable: no leader
	10009, // cannot handle the request: no leader here
	10049, // cannot create the store: what was deleted is still being removed
	10118, // stream is offline
}

// mayBePermanent reports whether an error may also be permanent: a server without JetStream will never
// listen, and a disk that cannot be written stays so.
func mayBePermanent(err error) bool {
	var api jetstream.JetStreamError
	return HasNoListener(err) || errors.As(err, &api) && api.APIError() != nil && api.APIError().ErrorCode == 10049
}

// IsPassing reports whether an error ends by itself when servers come back.
func IsPassing(err error) bool {
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil {
		return slices.Contains(passingCodes, api.APIError().ErrorCode)
	}
	return HasNoListener(err) || errors.Is(err, ErrNoProvisioner) || errors.Is(err, ErrNotYet) || errors.Is(err, ErrNotLed) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting)
}
