package stream_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events/stream"
)

// TestWhatWaitsToBeHeardIsBounded: in bytes, too, while a listener has no time.
func TestWhatWaitsToBeHeardIsBounded(t *testing.T) {
	t.Parallel()
	const size, said = 1 << 20, 200
	s := serve(t, embedded.Options{})
	listener, mouth := connect(t, stream.Options{Server: s}), connect(t, stream.Options{Server: s})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var heard atomic.Int64
	busy, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- listener.Listen(ctx, "writers", func(data []byte) {
			if heard.Add(int64(len(data))); len(data) > 1 {
				<-busy
			}
		})
	}()
	say := func(data []byte) {
		if err := mouth.Broadcast("writers", data); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it listens", func() bool { say([]byte("x")); return heard.Load() > 0 })
	for range said {
		say(bytes.Repeat([]byte("x"), size))
	}
	say([]byte("x"))
	eventually(t, "all has been sent to the listener", func() bool { return listener.Received() > said*size })
	close(busy)
	eventually(t, "it ends, since it was too slow", func() bool {
		if got := heard.Load(); got > stream.BacklogBytes+2*size {
			t.Fatalf("%d bytes waited to be heard, want %d at most", got, stream.BacklogBytes)
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return true
		default:
			return false
		}
	})
}
