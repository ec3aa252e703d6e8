package stream_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

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
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
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
	found, err := js.Stream(t.Context(), "EV_pods")
	if err != nil {
		t.Fatal(err)
	}
	if c := found.CachedInfo().Config; !c.AllowDirect || c.MaxAge != time.Hour || c.Storage != jetstream.MemoryStorage {
		t.Errorf("a log with other settings was changed to %+v", c)
	}
}

// A log is compressed. One that an operator has decompressed is used as it is.
func TestALogIsPackedAndNeedNotBe(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	js := admin(t, s.URL())
	b := connect(t, stream.Options{URL: s.URL()})
	for _, want := range []jetstream.StoreCompression{jetstream.S2Compression, jetstream.NoCompression} {
		if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
			t.Errorf("the log of pods: %v", err)
		}
		made, err := js.Stream(t.Context(), "EV_pods")
		if err != nil {
			t.Fatal(err)
		}
		config := made.CachedInfo().Config
		if config.Compression != want {
			t.Errorf("the stream has the compression %v, want %v", config.Compression, want)
		}
		config.Compression = jetstream.NoCompression
		if _, err := js.UpdateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
}

// formerState makes what an earlier version kept beside the log of pods: the last message of each
// object.
func formerState(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	log, err := js.Stream(t.Context(), "EV_pods")
	if err != nil {
		t.Fatal(err)
	}
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "STATE_pods", Mirror: &jetstream.StreamSource{Name: "EV_pods"}, MaxMsgsPerSubject: 1, AllowMsgTTL: true, AllowDirect: true,
		Metadata: log.CachedInfo().Config.Metadata,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// expectLogAlone: the log of pods has 5 messages, and there is nothing beside it.
func expectLogAlone(t *testing.T, js jetstream.JetStream, b *stream.Bus) {
	t.Helper()
	if _, err := js.Stream(t.Context(), "STATE_pods"); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Errorf("the stream of an earlier version is still there: %v", err)
	}
	if at, err := b.StreamState(t.Context(), "EV_pods"); err != nil || at.Messages != 5 || at.Last != 5 {
		t.Errorf("the log has %d messages up to %d (%v), want 5", at.Messages, at.Last, err)
	}
}

// TestWhatAnEarlierVersionMadeIsRemoved, when the kind is ensured or forgotten, and the log stays
// as it is.
func TestWhatAnEarlierVersionMadeIsRemoved(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	js := admin(t, s.URL())
	b := connect(t, stream.Options{URL: s.URL()})
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	if _, err := publish(t.Context(), b, 0, 5); err != nil {
		t.Fatal(err)
	}
	formerState(t, js)
	if found, err := b.Kinds(t.Context()); err != nil || len(found) != 1 {
		t.Errorf("the kinds are %v (%v)", found, err)
	}
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	expectLogAlone(t, js, b)
	formerState(t, js)
	if err := b.DeleteKind(t.Context(), kinds.Pods.Name); err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		t.Errorf("after ForgetKind there is the stream %s, want none", name)
	}
	if err := names.Err(); err != nil {
		t.Error(err)
	}
}

// TestReaderNoticesRemadeStream: the new stream is longer than what was read, so
// its last sequence says nothing.
func TestReaderNoticesRemadeStream(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
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
		if err := js.DeleteStream(t.Context(), log); err != nil {
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
	server := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
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
