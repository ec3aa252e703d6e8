package stream_test

import (
	"errors"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/streamtest"
	"github.com/millrace/millrace/pkg/events/subject"
)

func podDelta(name string, version int) events.Message {
	ref := events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
	return subject.Message(events.Delta{
		Kind: ref.Kind, Ref: ref, Op: events.Is, UID: "uid", ResourceVersion: strconv.Itoa(version),
		Form: kinds.Full, ContentType: kinds.JSON, Body: []byte(strconv.Itoa(version)),
	})
}

// TestStalePublisherStoresNothing: however many messages the new publisher has stored, and
// however many the old one sends without waiting, the server stores none of the old one's: not
// even one whose predicted sequence happens to fit.
func TestStalePublisherStoresNothing(t *testing.T) {
	t.Parallel()
	expectNothingStale(t, connect(t, stream.Options{Server: serve(t, embedded.Options{})}))
}

// TestStalePublisherInCluster: the same in a cluster, where a message that is refused too late
// stops the stream for ever.
func TestStalePublisherInCluster(t *testing.T) {
	t.Parallel()
	expectNothingStale(t, streamtest.Patient(connect(t, stream.Options{URL: serveCluster(t).urls(), Replicas: 3}), stream.Passing))
}

func expectNothingStale(t *testing.T, b bus.Bus) {
	t.Helper()
	if err := b.EnsureKind(t.Context(), kinds.Pods.Kind); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		open := func() bus.Appender {
			a, err := b.Append(t.Context(), kinds.Pods.Name)
			if err != nil {
				r.Fatal(err)
			}
			return a
		}
		send := func(a bus.Appender, name string, n int) (err error) {
			for i := 0; i < n && err == nil; i++ {
				err = a.Append(t.Context(), podDelta(name, i))
			}
			if err == nil {
				err = a.Flush(t.Context())
			}
			return err
		}
		old := open()
		defer old.Close()
		if err := send(old, "old", rapid.IntRange(0, 3).Draw(r, "before")); err != nil {
			r.Fatal(err)
		}
		young := open()
		defer young.Close()
		if err := send(young, "young", rapid.IntRange(1, 10).Draw(r, "young")); err != nil {
			r.Fatal(err)
		}
		if err := send(old, "stale", rapid.IntRange(1, 40).Draw(r, "stale")); !errors.Is(err, bus.ErrOvertaken) {
			r.Fatalf("the stale publisher: %v, want ErrOvertaken", err)
		}
		_, found, err := b.Last(t.Context(), subject.LogStream("pods"), podDelta("stale", 0).Subject)
		if err != nil || found {
			r.Fatalf("a message of the stale publisher was stored (%v)", err)
		}
	})
}
