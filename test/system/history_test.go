package system

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	"github.com/millrace/millrace/cmd/clustertest"
	"github.com/millrace/millrace/pkg/events/stream"
)

// TestStartOnALongHistory starts on streams with far more old messages than current state, after an orderly
// end and after a crash. No reconciler decides on the old messages again.
func TestStartOnALongHistory(t *testing.T) {
	s := here(t)
	m := s.run(t)
	a := s.arena(t, "history")
	must(t, a.Deploy(t.Context(), "web", first, 3))
	until(t, a, clustertest.RolledOut("web", first, 3))
	m.stop(t)
	lengthen(t, m.dataDir, clustertest.Past{Kind: "pods", Controller: "replicaset-controller", Messages: 20_000})

	since := s.mark(t)
	for _, end := range []func(*testing.T){func(*testing.T) {}, func(t *testing.T) { m.stop(t) }, func(t *testing.T) { m.kill(t) }} {
		end(t)
		created := a.Created()
		_, err := a.DeletePod(t.Context())
		must(t, err)
		m.again(t, s)
		until(t, a, clustertest.Replaced(created, 3))
	}
	var made, deleted []write
	// The API server answers a request before it writes it to the audit log.
	within(t, patience, "what made the pods is in the audit log", func() string {
		made, deleted = s.madeAndDeleted(t, since)
		if len(made) < 3 {
			return fmt.Sprintf("it has %v", made)
		}
		return ""
	})
	if len(made) != 3 {
		t.Errorf("%d pods were created for 3 that were deleted: %v", len(made), made)
	}
	for _, w := range deleted {
		t.Errorf("Millrace deleted an object that only its old record knows: %v", w)
	}
	clear(t, a)
}

// madeAndDeleted are the creates of pods since a mark, and all deletes.
func (s *site) madeAndDeleted(t *testing.T, since int64) (made, deleted []write) {
	t.Helper()
	for _, w := range s.writes(t, since) {
		switch {
		case w.Object.Resource == "pods" && w.Verb == "create" && w.stored():
			made = append(made, w)
		case w.Verb == "delete":
			deleted = append(deleted, w)
		}
	}
	return made, deleted
}

// lengthen makes a past in the streams of a Millrace that does not run.
func lengthen(t *testing.T, dataDir string, past clustertest.Past) {
	t.Helper()
	server, err := embedded.Serve(embedded.Options{Dir: dataDir})
	must(t, err)
	defer func() { must(t, server.Close()) }()
	b, err := stream.Connect(t.Context(), stream.Options{Server: server, Name: "history"})
	must(t, err)
	defer func() { must(t, b.Close()) }()
	must(t, past.Make(t.Context(), b))
	at, err := b.StreamState(t.Context(), fmt.Sprint("TURN_", past.Controller))
	must(t, err)
	if at.Messages < uint64(past.Messages/10) {
		t.Fatalf("the record that was made up has %d turns of %s, too few", at.Messages, past.Controller)
	}
}
