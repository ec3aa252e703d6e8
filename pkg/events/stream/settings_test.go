package stream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// admin is a connection with the client library itself, to do what the bus
// never does.
func admin(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestEveryDifferenceIsNamedAndNothingChanged(t *testing.T) {
	t.Parallel()
	s := serve(t, stream.ServerOptions{Listen: "127.0.0.1:0"})
	js := admin(t, s.URL())
	b := connect(t, stream.Options{URL: s.URL()})
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "EV_pods", Subjects: []string{"ev.pods.>"}, AllowDirect: true, MaxAge: time.Hour, Storage: jetstream.MemoryStorage,
	})
	if err != nil {
		t.Fatal(err)
	}
	err = b.EnsureKind(t.Context(), kinds.Pods.Kind)
	if !errors.Is(err, bus.ErrSettings) {
		t.Fatalf("a log with other settings: %v, want ErrSettings", err)
	}
	for _, word := range []string{"EV_pods", "allow_direct is true, want false", "max_age is 1h0m0s, want 24h0m0s", "storage", "allow_msg_ttl", "deny_delete", "kind is"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error does not say %q: %v", word, err)
		}
	}
	for _, word := range []string{"retention", "subjects", "num_replicas", "max_msgs ", "compression"} {
		if strings.Contains(err.Error(), word) {
			t.Errorf("the error says %q: %v", word, err)
		}
	}
	if _, err := b.StreamState(t.Context(), subject.StateStream("pods")); !errors.Is(err, bus.ErrNoStream) {
		t.Errorf("the state stream was made beside a log with other settings (%v)", err)
	}
}

// Earlier versions packed the state. It is used as it is.
func TestStateIsNotPackedAndMayBe(t *testing.T) {
	t.Parallel()
	s := serve(t, stream.ServerOptions{Listen: "127.0.0.1:0"})
	js := admin(t, s.URL())
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]jetstream.StoreCompression{"STATE_pods": jetstream.NoCompression, "EV_pods": jetstream.S2Compression} {
		made, err := js.Stream(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		config := made.CachedInfo().Config
		if config.Compression != want {
			t.Errorf("%s is packed with %v, want %v", name, config.Compression, want)
		}
		config.Compression = jetstream.S2Compression
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Errorf("a state that is packed: %v", err)
	}
}

func TestStateIsRemadeBesideItsLog(t *testing.T) {
	t.Parallel()
	s := serve(t, stream.ServerOptions{Listen: "127.0.0.1:0"})
	js := admin(t, s.URL())
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(t.Context(), b, 0, 5); err != nil {
		t.Fatal(err)
	}
	state := subject.StateStream("pods")
	eventually(t, "the state has caught up", func() bool {
		s, err := b.StreamState(t.Context(), state)
		return err == nil && s.Last == 5
	})
	reader := make(chan error, 1)
	first := make(chan struct{})
	go func() {
		reader <- b.Follow(t.Context(), state, 0, func(batch []events.Message) error {
			if batch[0].Sequence == 1 {
				close(first)
			}
			return nil
		})
	}()
	<-first
	if err := js.DeleteStream(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if err := <-reader; !errors.Is(err, bus.ErrNoStream) && !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("the reader of a state that was removed: %v", err)
	}
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the state is what it was", func() bool {
		s, err := b.StreamState(t.Context(), state)
		return err == nil && s.Last == 5 && s.Messages == 5
	})
	info, err := js.Stream(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	if info.CachedInfo().Config.MirrorDirect {
		t.Error("the state answers direct gets in the log's name")
	}
}

// TestReaderNoticesRemadeStream: the new stream is longer than what was read, so
// its last sequence says nothing.
func TestReaderNoticesRemadeStream(t *testing.T) {
	t.Parallel()
	s := serve(t, stream.ServerOptions{Listen: "127.0.0.1:0"})
	js := admin(t, s.URL())
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(t.Context(), b, 0, 5); err != nil {
		t.Fatal(err)
	}
	log := subject.LogStream("pods")
	err := b.Follow(t.Context(), log, 0, func(batch []events.Message) error {
		// While the reader is busy, the log is made anew, and grows longer.
		if err := errors.Join(js.DeleteStream(t.Context(), subject.StateStream("pods")), js.DeleteStream(t.Context(), log)); err != nil {
			return err
		}
		if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
			return err
		}
		_, err := publish(t.Context(), b, 100, 20)
		return err
	})
	if !errors.Is(err, bus.ErrOvertaken) {
		t.Errorf("the reader of a log that was made anew: %v, want ErrOvertaken", err)
	}
}

// TestPagesCannotBePurged nor deleted, and a stream of them that an older version made is
// mended.
func TestPagesCannotBePurged(t *testing.T) {
	t.Parallel()
	server := serve(t, stream.ServerOptions{Listen: "127.0.0.1:0"})
	b, js := connect(t, stream.Options{Server: server}), admin(t, server.URL())
	if err := b.EnsureNotary(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	made, err := js.Stream(t.Context(), subject.NotaryStream)
	if err != nil {
		t.Fatal(err)
	}
	older := made.CachedInfo().Config
	older.DenyPurge = false
	if err := js.DeleteStream(t.Context(), older.Name); err != nil {
		t.Fatal(err)
	}
	if _, err := js.CreateStream(t.Context(), older); err != nil {
		t.Fatal(err)
	}
	if err := b.EnsureNotary(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	sequence, err := b.Store(t.Context(), events.Message{Subject: subject.Notary("EV_pods"), Data: []byte("a page")}, 0)
	if err != nil {
		t.Fatal(err)
	}
	mended, err := js.Stream(t.Context(), older.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := mended.Purge(t.Context()); err == nil {
		t.Error("the stream is purged")
	}
	if err := mended.DeleteMsg(t.Context(), sequence); err == nil {
		t.Error("a page is deleted")
	}
	if _, ok, err := b.Last(t.Context(), older.Name, subject.Notary("EV_pods")); err != nil || !ok {
		t.Errorf("the page is there: %v (%v)", ok, err)
	}
}
