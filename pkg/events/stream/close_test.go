package stream_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestCloseIsBounded: the times of stop and start do not grow too much with the streams and
// durable consumers of all controllers.
func TestCloseIsBounded(t *testing.T) {
	const perKind, bound = 4, time.Minute
	dir := t.TempDir()
	s := serve(t, embedded.Options{Dir: dir, Listen: "127.0.0.1:0"})
	b := connect(t, stream.Options{URL: s.URL()})
	js := admin(t, s.URL())
	for _, k := range manyKinds() {
		if err := b.EnsureKind(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		for i := range perKind {
			durable := jetstream.ConsumerConfig{Durable: fmt.Sprint("controller-", i), AckPolicy: jetstream.AckExplicitPolicy}
			if _, err := js.CreateConsumer(t.Context(), subject.LogStream(k.Name), durable); err != nil {
				t.Fatal(err)
			}
		}
	}
	_ = b.Close()
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	serve(t, embedded.Options{Dir: dir})
	t.Logf("stopped in %v, started in %v", closed.Sub(began), time.Since(closed))
	if took := time.Since(began); took > bound {
		t.Errorf("to stop and to start took %v, want at most %v", took, bound)
	}
}
