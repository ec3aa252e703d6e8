package stream_test

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/embedded"
	"github.com/millrace/millrace/pkg/events/stream/internal/restore"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// TestImport: what is imported is what it was imported from, sequences, times, holes
// and all; no service works on it, and nothing is imported over something else.
func TestImport(t *testing.T) {
	t.Parallel()
	from := memory.New(memory.Options{})
	defer from.Close()
	ctx := t.Context()
	if err := errors.Join(from.EnsureKind(ctx, kinds.Pods.Kind), from.EnsureController(ctx, "c")); err != nil {
		t.Fatal(err)
	}
	a, err := from.Append(ctx, kinds.Pods.Name)
	if err != nil {
		t.Fatal(err)
	}
	for version := range 40 {
		m := podDelta([]string{"a", "b", "c"}[version%3], version+1)
		if err := a.Append(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := from.Put(ctx, events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "k"}), Data: []byte("{}")}, "1"); err != nil {
		t.Fatal(err)
	}
	holed := holes{from}
	into := connect(t, stream.Options{Server: serve(t, embedded.Options{})})
	if err := errors.Join(into.Import(ctx, holed, "EV_pods", &kinds.Pods.Kind), into.Import(ctx, holed, "TURN_c", nil)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"EV_pods", "TURN_c"} {
		got, want := every(t, into, name), every(t, holed, name)
		if len(want) == 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%s has %d messages, want %d:\n%+v\n%+v", name, len(got), len(want), got, want)
		}
	}
	was, failed := from.StreamState(ctx, "EV_pods")
	if is, err := into.StreamState(ctx, "EV_pods"); errors.Join(err, failed) != nil || !is.Created.Equal(was.Created) || is.First != 4 || is.Last != 40 || is.Now.After(was.Now) {
		t.Errorf("the imported stream has the state %+v, %v; want that of the original", is, err)
	}
	if found, err := into.Kinds(ctx); err != nil || !slices.Equal(found, []kinds.Kind{kinds.Pods.Kind}) {
		t.Errorf("the kinds are %v, %v", found, err)
	}
	if err := into.EnsureKind(ctx, kinds.Pods.Kind); !errors.Is(err, bus.ErrSettings) {
		t.Errorf("EnsureKind on an imported log: %v, want ErrSettings", err)
	}
	if err := into.Import(ctx, holed, "EV_pods", &kinds.Pods.Kind); err == nil {
		t.Error("Import writes over an existing stream")
	}
}

// holes is a bus of which some messages have gone.
type holes struct{ *memory.Bus }

func (h holes) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	return h.Bus.Read(ctx, p, func(batch []events.Message) error {
		return handle(slices.DeleteFunc(batch, func(m events.Message) bool {
			return m.Stream == "EV_pods" && (m.Sequence < 4 || m.Sequence > 10 && m.Sequence < 14 || m.Sequence > 38)
		}))
	})
}

// every is all that a stream holds.
func every(t *testing.T, b bus.Archive, name string) (all []events.Message) {
	t.Helper()
	err := b.Read(t.Context(), bus.Passage{Stream: name}, func(batch []events.Message) error {
		for _, m := range batch {
			m.Time = m.Time.UTC()
			all = append(all, m)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestImportTakesOnlyARecord: a file that names other streams, or has what no stream of
// ours holds, changes nothing on a bus.
func TestImportTakesOnlyARecord(t *testing.T) {
	t.Parallel()
	from := memory.New(memory.Options{})
	defer from.Close()
	ctx := t.Context()
	if err := errors.Join(from.EnsureKind(ctx, kinds.Pods.Kind), from.EnsureController(ctx, "c")); err != nil {
		t.Fatal(err)
	}
	turn := events.Message{Subject: subject.Turn("c", events.LaneWrite, events.Key{Name: "k"}), Data: []byte("{}")}
	if _, err := from.Put(ctx, turn, "1"); err != nil {
		t.Fatal(err)
	}
	into := connect(t, stream.Options{Server: serve(t, embedded.Options{})})
	for _, name := range []string{"WAKE", "KV_other", "ORDERS", "STATUS", "TURN_", "TURN_../x", "TURN_*", "TURN_c.>", "EV_pods", "OUTCOME_a b"} {
		if err := into.Import(ctx, from, name, nil); err == nil || !strings.Contains(err.Error(), "no stream of a record") {
			t.Errorf("Import of %s: %v, want that it is no stream of a record", name, err)
		}
	}
	if err := into.Import(ctx, from, "EV_nodes", &kinds.Pods.Kind); err == nil {
		t.Error("a log of another kind was imported")
	}
	for name, change := range map[string]func(m *events.Message){
		"another subject":       func(m *events.Message) { m.Subject = "sched.c.k" },
		"a wildcard":            func(m *events.Message) { m.Subject = "turn.c.>" },
		"a header of two lines": func(m *events.Message) { m.Header = map[string][]string{"A": {"b\r\nNats-TTL: 1s"}} },
	} {
		if err := into.Import(ctx, changed{from, change}, "TURN_c", nil); err == nil {
			t.Errorf("%s was imported", name)
		}
	}
	if err := into.MayImport(ctx); err != nil {
		t.Errorf("MayImport after refused imports: %v, want nil", err)
	}
	if err := into.Import(ctx, from, "TURN_c", nil); err != nil {
		t.Fatal(err)
	}
	if err := into.MayImport(ctx); err != nil {
		t.Errorf("beside what was imported: %v", err)
	}
	if err := into.EnsureController(ctx, "another"); err != nil {
		t.Fatal(err)
	}
	if err := into.MayImport(ctx); !errors.Is(err, restore.ErrServed) {
		t.Errorf("into a bus that services use: %v", err)
	}
}

// changed is a bus whose messages are others.
type changed struct {
	*memory.Bus
	change func(m *events.Message)
}

func (c changed) Read(ctx context.Context, p bus.Passage, handle func([]events.Message) error) error {
	return c.Bus.Read(ctx, p, func(batch []events.Message) error {
		for i := range batch {
			c.change(&batch[i])
		}
		return handle(batch)
	})
}
