package stream_test

import (
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
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
		if !errors.Is(err, natserr.ErrNoServer) || !errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil {
			t.Errorf("%s: %v, after the context: %v", address, err, ctx.Err())
		}
		cancel()
	}
}

// TestServicesWaitForTheirServer: without the option Connect retries a refused connection until
// the context ends.
func TestServicesWaitForTheirServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := stream.Connect(ctx, stream.Options{URL: closedPort(t)}); err == nil || ctx.Err() == nil {
		t.Errorf("Connect ended before its context did: %v", err)
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
	if _, err := stream.Connect(ctx, stream.Options{URL: "nats://" + l.Addr().String(), AtOnce: true}); err == nil || errors.Is(err, natserr.ErrNoServer) {
		t.Errorf("Connect at once to a silent server: %v, want an error other than ErrNoServer", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Connect at once to a silent server took %v, want 4s at most", took)
	}
}
