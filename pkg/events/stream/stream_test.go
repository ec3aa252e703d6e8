package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
)

// serve starts a server on a directory, and stops it with the test unless the
// test has.
func serve(t testing.TB, options embedded.Options) *embedded.Server {
	t.Helper()
	if options.Dir == "" {
		options.Dir = t.TempDir()
	}
	s, err := embedded.Serve(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func connect(t testing.TB, options stream.Options) *stream.Bus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), streamtest.Patience)
	defer cancel()
	if options.Server != nil && options.Timeout == 0 {
		options.Timeout = streamtest.Patience // no answer gets lost in one process, but some are late
	}
	b, err := stream.Connect(ctx, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func TestConformsInProcess(t *testing.T) {
	t.Parallel()
	streamtest.Conform(t, func(t *testing.T) bus.Bus {
		return connect(t, stream.Options{Server: serve(t, embedded.Options{})})
	})
}

func TestConformsOverTCP(t *testing.T) {
	t.Parallel()
	streamtest.Conform(t, func(t *testing.T) bus.Bus {
		s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
		return connect(t, stream.Options{URL: s.URL(), Timeout: streamtest.Patience})
	})
}

func TestLogsExpire(t *testing.T) {
	t.Parallel()
	const age = 2 * time.Second
	streamtest.Expire(t, age, func(t *testing.T) bus.Bus {
		return connect(t, stream.Options{Server: serve(t, embedded.Options{}), LogAge: age})
	})
}
