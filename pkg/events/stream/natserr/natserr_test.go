package natserr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
)

// said is an error as a server answers it.
func said(code jetstream.ErrorCode) error {
	return fmt.Errorf("request: %w", &jetstream.APIError{Code: 400, ErrorCode: code, Description: "because"})
}

// Errors that callers branch on have the bus's names; all others stay unchanged.
func TestErrorsHaveTheNamesOfTheBus(t *testing.T) {
	t.Parallel()
	named := []error{bus.ErrOvertaken, bus.ErrTooLarge, bus.ErrNoStream, bus.ErrClosed, ErrFull}
	for _, c := range []struct {
		err, want error // nil: none of the names
	}{
		{said(jetstream.JSErrCodeStreamWrongLastSequence), bus.ErrOvertaken}, {said(jetstream.JSErrCodeStreamWrongLastSequenceConstant), bus.ErrOvertaken},
		{said(10070), bus.ErrOvertaken}, {said(jetstream.JSErrCodeStreamMessageExceedsMaximum), bus.ErrTooLarge}, {said(jetstream.JSErrCodeStreamNotFound), bus.ErrNoStream},
		{said(10002), ErrFull}, {said(10023), ErrFull}, {said(10047), ErrFull}, {said(10008), nil}, {said(1), nil},
		{nats.ErrMaxPayload, bus.ErrTooLarge}, {jetstream.ErrStreamNotFound, bus.ErrNoStream}, {nats.ErrConnectionClosed, bus.ErrClosed},
		{nats.ErrTimeout, nil}, {errors.New("something else"), nil},
	} {
		got := Translate(t.Context(), c.err)
		if !errors.Is(got, c.err) {
			t.Errorf("%v became %v", c.err, got)
		}
		for _, name := range named {
			if errors.Is(got, name) != (name == c.want) {
				t.Errorf("%v is %v: %t", c.err, name, errors.Is(got, name))
			}
		}
	}
	if err := Translate(t.Context(), nil); err != nil {
		t.Errorf("no error is translated to %v", err)
	}
	refusal := &Refusal{errors.New("permissions violation")}
	ctx, stop := context.WithCancelCause(t.Context())
	stop(fmt.Errorf("ended: %w", refusal))
	if err := Translate(ctx, nats.ErrTimeout); err != error(refusal) || !errors.Is(err, refusal.Err) || err.Error() != "permissions violation" {
		t.Errorf("a refused request is translated to %v, want the refusal", err)
	}
}

// Permanent errors, passing ones, and doubtful ones.
func TestWhatWaitingMends(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err                      error
		final, passing, doubtful bool
	}{
		{bus.ErrNoStream, true, false, false}, {bus.ErrOvertaken, true, false, false}, {bus.ErrClosed, true, false, false}, {events.ErrDamaged, true, false, false},
		{&Refusal{errors.New("no")}, true, false, false}, {errors.New("something else"), false, false, false}, {bus.ErrTooLarge, false, false, false},
		{said(10004), false, true, false}, {said(10005), false, true, false}, {said(10008), false, true, false}, {said(10009), false, true, false},
		{said(10049), false, true, true}, {said(10118), false, true, false}, {said(10003), false, false, false}, {said(10050), false, false, false},
		{nats.ErrNoResponders, false, true, true}, {jetstream.ErrNoStreamResponse, false, true, true}, {ErrNoProvisioner, false, true, false}, {ErrNotYet, false, true, false},
		{ErrNotLed, false, true, false}, {context.DeadlineExceeded, false, true, false}, {nats.ErrTimeout, false, true, false}, {nats.ErrDisconnected, false, true, false},
		{nats.ErrReconnectBufExceeded, false, true, false}, {nats.ErrConnectionReconnecting, false, true, false}, {context.Canceled, false, false, false},
	} {
		err := fmt.Errorf("do it: %w", c.err)
		if IsPermanent(err) != c.final || IsPassing(err) != c.passing || mayBePermanent(err) != c.doubtful {
			t.Errorf("%v is final: %t, passes: %t, may pass: %t", err, IsPermanent(err), IsPassing(err), mayBePermanent(err))
		}
	}
}

// No server listens at an address that refuses, or whose name is unknown; a failed lookup
// proves nothing.
func TestWhereNoServerListens(t *testing.T) {
	t.Parallel()
	unknown, failing := &net.DNSError{Err: "no such host", IsNotFound: true}, &net.DNSError{Err: "server misbehaving"}
	for _, c := range []struct{ err, want error }{
		{fmt.Errorf("connect: %w", nats.ErrNoServers), syscall.ECONNREFUSED}, {fmt.Errorf("dial: %w", unknown), unknown}, {fmt.Errorf("dial: %w", failing), nil}, {nats.ErrTimeout, nil}, {nil, nil},
	} {
		if got := NoServerReason(c.err); got != c.want {
			t.Errorf("the reason of %v is %v, want %v", c.err, got, c.want)
		}
	}
}

// Each Pause is longer, up to a second, and ends with the context.
func TestPausesGrow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for attempt, want := range map[int]time.Duration{
			0: 20 * time.Millisecond, 1: 40 * time.Millisecond, 5: 640 * time.Millisecond, 6: time.Second, 10: time.Second, 11: time.Second, 1000: time.Second,
		} {
			began := time.Now()
			if !Pause(t.Context(), attempt) || time.Since(began) != want {
				t.Errorf("before attempt %d it is waited %v, want %v", attempt, time.Since(began), want)
			}
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		if Pause(ctx, 3) {
			t.Error("Pause does not end with the context")
		}
	})
}

// insisting is the result of insist with an error that lasts for a given time.
func insisting(t *testing.T, err error, until, ends time.Duration) (tried int, took time.Duration, logged string, got error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log, began := slog.New(slog.NewTextHandler(&out, nil)), time.Now()
		ctx, stop := context.WithTimeout(t.Context(), ends)
		defer stop()
		got = Retry(ctx, log, "do it", func() error {
			if tried++; time.Since(began) >= until {
				return nil
			}
			return err
		})
		took, logged = time.Since(began), out.String()
	})
	return tried, took, logged, got
}

// insist waits for errors that pass, and logs that from time to time; for doubtful errors it
// waits half a minute, and returns others at once.
func TestWhatAServiceNeedsIsInsistedOn(t *testing.T) {
	t.Parallel()
	passes, mayPass, stays := said(10008), fmt.Errorf("request: %w", nats.ErrNoResponders), errors.New("something else")
	if tried, took, logged, err := insisting(t, stays, time.Hour, time.Hour); tried != 1 || took != 0 || logged != "" || !errors.Is(err, stays) {
		t.Errorf("on what does not pass: %d times in %v, %v; logged %s", tried, took, err, logged)
	}
	if tried, took, logged, err := insisting(t, passes, 10*time.Millisecond, time.Hour); tried != 2 || took != 20*time.Millisecond || logged != "" || err != nil {
		t.Errorf("on what passes soon: %d times in %v, %v; logged %s", tried, took, err, logged)
	}
	_, took, logged, err := insisting(t, passes, time.Minute, time.Hour)
	if said := strings.Count(logged, "Waiting for NATS to do it"); said != 6 || took < time.Minute || took > time.Minute+time.Second || err != nil {
		t.Errorf("on what passes after a minute: %d lines in %v, %v", said, took, err)
	}
	_, _, logged, err = insisting(t, passes, 10*time.Minute, time.Hour)
	if said := strings.Count(logged, "Waiting for NATS to do it"); said != 55 || err != nil { // more than ten seconds lie between two
		t.Errorf("on what passes after ten minutes: %d lines, %v", said, err)
	}
	if _, took, _, err := insisting(t, passes, time.Hour, 5*time.Second); took != 5*time.Second || !errors.Is(err, passes) {
		t.Errorf("until the context ends: %v, %v", took, err)
	}
	if _, took, _, err := insisting(t, mayPass, time.Hour, time.Hour); took <= 30*time.Second || took > 31*time.Second || !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("on what may not pass: %v, %v", took, err)
	}
}

// TestWhatIsAbsent: only errors that an immediate retry cannot change.
func TestWhatIsAbsent(t *testing.T) {
	t.Parallel()
	unknown, unsure := &net.DNSError{Name: "bus", IsNotFound: true}, &net.DNSError{Name: "bus", IsTemporary: true}
	for err, want := range map[error]error{
		nats.ErrNoServers: syscall.ECONNREFUSED, unknown: unknown, unsure: nil, nats.ErrTimeout: nil, nats.ErrAuthorization: nil,
	} {
		if got := NoServerReason(fmt.Errorf("connect: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
