package natserr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// Refusal is a permission error of the server. It is final until an operator changes the
// permissions.
type Refusal struct{ Err error }

// Error says what was forbidden.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap is the client library's error.
func (r *Refusal) Unwrap() error { return r.Err }

// codeWrongLastID is the server's code for a wrong expected id; the client library does not
// name it.
const codeWrongLastID = jetstream.ErrorCode(10070)

// The server's codes for a full store: by the limits of the account, of the server, and of the
// storage that a new stream would reserve.
const (
	codeAccountFull = jetstream.ErrorCode(10002)
	codeServerFull  = jetstream.ErrorCode(10023)
	codeStorageFull = jetstream.ErrorCode(10047)
)

// ErrFull: the store of the servers is full, or what the account may store.
var ErrFull = errors.New("NATS has no room left: give it more disk (max_file_store), or keep less (--stream-max-age, --stream-max-bytes)")

// ErrNoServer is the error of a first connection when no server listens at any of the
// addresses (Options.AtOnce of package stream).
var ErrNoServer = errors.New("no server")

// ErrNoProvisioner: no provisioner answers.
var ErrNoProvisioner = errors.New("no provisioner answers, who makes streams and consumers on a bus with accounts: start millrace provisioner, with the user provisioner")

// ErrNotYet: the provisioner could not carry out the order at the moment.
var ErrNotYet = errors.New("not at the moment")

// ErrNotLed: a server answered for a stream that it does not lead.
var ErrNotLed = errors.New("a server has answered that does not lead the stream")

// ErrUnauthorized is the error of a connection whose user or password the server does not
// accept.
var ErrUnauthorized = nats.ErrAuthorization

// NoServerReason is the reason why no server listens at an address, from the error of a first connection; nil if
// one may listen. The client library returns ErrNoServers when every address refused the connection.
func NoServerReason(err error) error {
	var lookup *net.DNSError
	switch {
	case errors.Is(err, nats.ErrNoServers):
		return syscall.ECONNREFUSED
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return lookup
	default:
		return nil
	}
}

// Translate wraps the client library's errors in those that callers branch on. If a refusal
// ended the context, it returns the refusal.
func Translate(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var refusal *Refusal
	if errors.As(context.Cause(ctx), &refusal) {
		return refusal
	}
	var api jetstream.JetStreamError
	if errors.As(err, &api) && api.APIError() != nil {
		switch api.APIError().ErrorCode {
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant, codeWrongLastID:
			return fmt.Errorf("%w: %w", bus.ErrOvertaken, err)
		case jetstream.JSErrCodeStreamMessageExceedsMaximum:
			return fmt.Errorf("%w: %w", bus.ErrTooLarge, err)
		case jetstream.JSErrCodeStreamNotFound:
			return fmt.Errorf("%w: %w", bus.ErrNoStream, err)
		case codeAccountFull, codeServerFull, codeStorageFull:
			return fmt.Errorf("%w: %w", ErrFull, err)
		}
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%w: %w", bus.ErrTooLarge, err)
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return fmt.Errorf("%w: %w", bus.ErrNoStream, err)
	case errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%w: %w", bus.ErrClosed, err)
	}
	return err
}

// IsPermanent reports whether retrying cannot help against an error.
func IsPermanent(err error) bool {
	var refusal *Refusal
	return errors.Is(err, bus.ErrNoStream) || errors.Is(err, bus.ErrOvertaken) ||
		errors.Is(err, bus.ErrClosed) || errors.Is(err, events.ErrDamaged) || errors.As(err, &refusal)
}

// HasNoListener reports whether a request had no listener: the stream does not exist, or the server
// is still starting.
func HasNoListener(err error) bool {
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}

const (
	firstPause = 20 * time.Millisecond
	// LongPause is the longest pause before a retry.
	LongPause = time.Second
)

// Pause waits before retry number attempt, from 0, with exponential back-off from firstPause to
// LongPause; false when the context has ended.
func Pause(ctx context.Context, attempt int) bool {
	wait := min(firstPause<<min(attempt, 10), LongPause)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
