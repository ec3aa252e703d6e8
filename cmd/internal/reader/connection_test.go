package reader

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/reader/readertest"
)

// TestABusThatCannotBeReached: the error has the cause, the address and what to do, at once and
// with every --timeout.
func TestABusThatCannotBeReached(t *testing.T) {
	closed := listener(t)
	readertest.Must(t, closed.Close())
	silent := listener(t)
	t.Cleanup(func() { _ = silent.Close() })
	refused := []string{"no bus answers at nats://" + closed.Addr().String(), "connection refused", "is Millrace running?", "--nats-url", "MILLRACE_NATS_URL", "--nats-listen"}
	for _, c := range []struct {
		args []string
		says []string
		most time.Duration
	}{
		{[]string{"get", "pods", "--nats-url=nats://" + closed.Addr().String()}, refused, connect.Patience},
		{[]string{"get", "pods", "--nats-url=nats://" + closed.Addr().String(), "--timeout=2s"}, refused, 2 * time.Second},
		{[]string{"tail", "--nats-url=nats://" + closed.Addr().String()}, refused, connect.Patience},
		{[]string{"get", "pods", "--nats-url=nats://" + silent.Addr().String(), "--timeout=300ms"}, []string{"no bus answers at nats://" + silent.Addr().String(), "within 300ms", "--nats-url"}, connect.Patience},
	} {
		began := time.Now()
		_, err := readertest.Output(t.Context(), commands(), c.args...)
		readertest.Says(t, err, c.args, c.says...)
		if took := time.Since(began); took >= c.most {
			t.Errorf("millrace %s took %v, want less than %v", strings.Join(c.args, " "), took, c.most)
		}
	}
}

func listener(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	readertest.Must(t, err)
	return l
}

// TestABusThatWantsALogin: the error names the flags for a login.
func TestABusThatWantsALogin(t *testing.T) {
	server := guarded(t)
	args := []string{"get", "pods", "--nats-url=" + server.URL()}
	_, err := readertest.Output(t.Context(), commands(), args...)
	readertest.Says(t, err, args, "does not let you in", "nats://USER:PASSWORD@", "--nats-credentials")
}
