package integrity_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// pack makes the streams of a kind as earlier versions did, with a packed state.
func pack(t *testing.T, store string) {
	t.Helper()
	server, err := stream.Serve(stream.ServerOptions{Dir: store, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	b, err := stream.Connect(t.Context(), stream.Options{Server: server, Name: "earlier"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	conn, err := nats.Connect(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	state, err := js.Stream(t.Context(), subject.StateStream("pods"))
	if err != nil {
		t.Fatal(err)
	}
	settings := state.CachedInfo().Config
	settings.Compression = jetstream.S2Compression
	if _, err := js.UpdateStream(t.Context(), settings); err != nil {
		t.Fatal(err)
	}
}
