package integrity_test

import (
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// unpack creates the log of the kind as an operator may have it, or a cluster: not compressed.
func (w *world) unpack() {
	w.Helper()
	if err := w.bus.EnsureKind(w.Context(), kinds.Pods.Kind); err != nil {
		w.Fatal(err)
	}
	w.adjust(subject.LogStream("pods"), func(c *jetstream.StreamConfig) { c.Compression = jetstream.NoCompression })
}

// adjust changes the settings of a stream, as an operator may.
func (w *world) adjust(name string, change func(*jetstream.StreamConfig)) {
	w.Helper()
	conn, err := nats.Connect(w.server.URL(), nats.Timeout(patience))
	if err != nil {
		w.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(patience))
	if err != nil {
		w.Fatal(err)
	}
	found, err := js.Stream(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	settings := found.CachedInfo().Config
	change(&settings)
	if _, err := js.UpdateStream(w.Context(), settings); err != nil {
		w.Fatal(err)
	}
}
