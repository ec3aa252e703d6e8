package stream_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/millrace/millrace/pkg/events/stream"
)

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return "nats://" + l.Addr().String()
}

// TestAnAbsentServerIsAnErrorAtOnce: a command does not wait for a server that refuses the
// connection, and the error has the reason.
func TestAnAbsentServerIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	refusing := closedPort(t)
	for _, address := range []string{refusing, refusing + "," + closedPort(t)} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := stream.Connect(ctx, stream.Options{URL: address, AtOnce: true})
		if !errors.Is(err, stream.ErrNoServer) || !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
			t.Errorf("%s: %v, after the context: %v", address, err, ctx.Err())
		}
		cancel()
	}
}

// TestWhatIsAbsent: only errors that an immediate retry cannot change.
func TestWhatIsAbsent(t *testing.T) {
	t.Parallel()
	unknown, unsure := &net.DNSError{Name: "bus", IsNotFound: true}, &net.DNSError{Name: "bus", IsTemporary: true}
	for err, want := range map[error]error{
		nats.ErrNoServers: syscall.ECONNREFUSED, unknown: unknown, unsure: nil, nats.ErrTimeout: nil, nats.ErrAuthorization: nil,
	} {
		if got := stream.Absent(fmt.Errorf("connect: %w", err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// TestServicesWaitForTheirServer: without the option Connect retries a refused connection until
// the context ends.
func TestServicesWaitForTheirServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := stream.Connect(ctx, stream.Options{URL: closedPort(t)}); err == nil || ctx.Err() == nil {
		t.Errorf("it ended before its context did: %v", err)
	}
}

// TestASilentServerTakesNoLongerThanTheContext: an address that accepts connections and
// never says a word.
func TestASilentServerTakesNoLongerThanTheContext(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := stream.Connect(ctx, stream.Options{URL: "nats://" + l.Addr().String(), AtOnce: true}); err == nil || errors.Is(err, stream.ErrNoServer) {
		t.Errorf("a silent server: %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
}
