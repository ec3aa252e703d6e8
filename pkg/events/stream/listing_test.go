package stream_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestKindsAreThoseThatThereAre: the cache of the kinds is not used when another process
// creates a kind, deletes one, or recreates the streams of one in another form.
func TestKindsAreThoseThatThereAre(t *testing.T) {
	t.Parallel()
	s := serve(t, embedded.Options{Listen: "127.0.0.1:0"})
	reader, other := connect(t, stream.Options{Server: s}), connect(t, stream.Options{URL: s.URL()})
	are := func(want ...kinds.Kind) {
		t.Helper()
		if found, err := reader.Kinds(t.Context()); err != nil || !slices.Equal(found, want) {
			t.Errorf("the kinds are %v, %v; want %v", found, err, want)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(other.EnsureKind(t.Context(), kinds.Pods.Kind))
	are(kinds.Pods.Kind)
	are(kinds.Pods.Kind)
	must(other.EnsureKind(t.Context(), kinds.Deployments.Kind))
	are(kinds.Deployments.Kind, kinds.Pods.Kind)
	must(other.DeleteKind(t.Context(), kinds.Deployments.Name))
	are(kinds.Pods.Kind)

	appender, err := other.Append(t.Context(), kinds.Pods.Name)
	must(err)
	defer appender.Close()
	must(errors.Join(appender.Append(t.Context(), podDelta("a", 1)), appender.Flush(t.Context())))
	reading, ended := make(chan bool), make(chan error, 1)
	go func() {
		ended <- reader.Follow(t.Context(), subject.LogStream(kinds.Pods.Name), 1, func([]events.Message) error {
			close(reading) // there is one
			return nil
		})
	}()
	<-reading
	brief := kinds.Pods.Kind
	brief.Form = kinds.Metadata
	must(other.DeleteKind(t.Context(), kinds.Pods.Name))
	must(other.EnsureKind(t.Context(), brief))
	if err := <-ended; !errors.Is(err, bus.ErrOvertaken) && !errors.Is(err, bus.ErrNoStream) {
		t.Fatalf("the reader of a stream that was made anew ended with: %v", err)
	}
	are(brief)
}
