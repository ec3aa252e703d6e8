package reconcilers_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// inMemoryWorld is a world whose streams can lose their end.
func inMemoryWorld(ctx context.Context, t *testing.T) (*world, *memory.Bus) {
	t.Helper()
	w := &world{t: t, logs: map[kinds.Name]bus.Appender{}, objects: map[kinds.Name]map[events.Ref]string{}, born: map[string]int{}}
	w.bus, w.connect = inMemory(t)
	for _, kind := range worldKinds {
		w.objects[kind.Name] = map[events.Ref]string{}
		w.open(ctx, kind)
		w.mark(ctx, kind)
	}
	if err := w.bus.EnsureController(ctx, "copies"); err != nil {
		t.Fatal(err)
	}
	return w, w.bus.(*memory.Bus)
}

// losses is how often a stream of turns, outcomes or wakes was found to have lost
// something.
func losses(t *testing.T, registry *prometheus.Registry) (n float64) {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "millrace_reconcilers_losses_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

func (w *world) stored(ctx context.Context, stream string) uint64 {
	w.t.Helper()
	s, err := w.bus.StreamState(ctx, stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Messages
}

// A turn was stored and its ticket answered; then the bus lost the turn. Nobody
// would ever ask for the key again.
func TestLostTurnsAreMadeAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, b := inMemoryWorld(ctx, t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.start(ctx).Collectors()...)
	turns := subject.TurnStream("copies")
	w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
	eventually(t, "the first turn is stored", func() bool { return w.stored(ctx, turns) == 1 })
	w.say(ctx, kinds.ConfigMaps.Kind, "second", "c")
	eventually(t, "the second turn is stored", func() bool { return w.stored(ctx, turns) == 2 })
	if err := b.Truncate(turns, 1); err != nil {
		t.Fatal(err)
	}
	w.writing(ctx, t, 0)
	eventually(t, "both have their copy", func() bool {
		born := w.births()
		return born["first"] == 1 && born["second"] == 1
	})
	eventually(t, "the loss is reported", func() bool { return losses(t, registry) > 0 })
}
