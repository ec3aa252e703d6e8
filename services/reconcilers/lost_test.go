package reconcilers_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// inMemoryWorld returns a world whose streams can lose their last messages.
func inMemoryWorld(ctx context.Context, t *testing.T) (*world, *memory.Bus) {
	t.Helper()
	w := &world{t: t, logs: map[kinds.Name]bus.Appender{}, objects: map[kinds.Name]map[events.Ref]string{}, created: map[string]int{}}
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

// losses returns how often a stream of turns, outcomes or wakes was found to have lost messages.
func losses(t *testing.T, registry *prometheus.Registry) float64 {
	t.Helper()
	return metrictest.Read(t, registry).Sum("millrace_reconcilers_losses_total")
}

func (w *world) stored(ctx context.Context, stream string) uint64 {
	w.t.Helper()
	s, err := w.bus.StreamState(ctx, stream)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Messages
}

// The bus stored a turn, acknowledged it, and then lost it. No message would ever ask for the key
// again.
func TestLostTurnsAreMadeAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	w, b := inMemoryWorld(ctx, t)
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.start(ctx).Collectors()...)
	turns := subject.TurnStream("copies")
	w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
	eventually.True(t, eventually.Long, "the first turn is stored", func() bool { return w.stored(ctx, turns) == 1 })
	w.say(ctx, kinds.ConfigMaps.Kind, "second", "c")
	eventually.True(t, eventually.Long, "the second turn is stored", func() bool { return w.stored(ctx, turns) == 2 })
	if err := b.Truncate(turns, 1); err != nil {
		t.Fatal(err)
	}
	w.writing(ctx, t, 0)
	eventually.True(t, eventually.Long, "both have their copy", func() bool {
		created := w.creates()
		return created["first"] == 1 && created["second"] == 1
	})
	eventually.True(t, eventually.Long, "the loss is reported", func() bool { return losses(t, registry) > 0 })
}

// gauged returns the values of a controller's gauge, by kind.
func gauged(t *testing.T, s *reconcilers.Service, name string) map[string]float64 {
	t.Helper()
	said := map[string]float64{}
	for _, one := range metrictest.Collect(t, s.Collectors()...).Of(name) {
		said[one.Label("kind")] = one.Value
	}
	return said
}

// The lag counts from the oldest change that has not had its turn to the end of the log.
func TestWhatHasNotHadItsTurnIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, _ := inMemoryWorld(ctx, t)
		if err := w.bus.DeleteKind(ctx, kinds.ServiceAccounts.Name); err != nil {
			t.Fatal(err)
		}
		w.open(ctx, kinds.ServiceAccounts.Kind) // without a mark: it is not completely recorded
		s := w.start(ctx)
		defer s.end()
		time.Sleep(time.Second) // virtual
		for _, namespace := range []string{"first", "second", "third"} {
			w.say(ctx, kinds.ConfigMaps.Kind, namespace, "c")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		const prefix = "millrace_reconcilers_controller_lag"
		if got := gauged(t, s.Service, prefix); got["configmaps"] != 3 || got["serviceaccounts"] != 0 || len(got) != 2 {
			t.Errorf("the controller is behind by %v", got)
		}
		if got := gauged(t, s.Service, prefix+"_seconds"); got["configmaps"] != 60 || got["serviceaccounts"] != 0 {
			t.Errorf("the controller is behind by %v seconds", got)
		}
		if got := gauged(t, s.Service, "millrace_reconcilers_lag"); got["configmaps"] != 0 {
			t.Errorf("the lag of the fold is %v, want 0", got)
		}
		if got := gauged(t, s.Service, "millrace_reconcilers_active"); got[""] != 1 {
			t.Errorf("this replica decides about %v of the keys, want 1", got)
		}
	})
}

// A key that fails is parked, by controller, and retried on request.
func TestAKeyThatIsSetAsideIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		broken.Store(true)
		c, ok := copies().(reconcile.Controller[bool])
		if !ok {
			t.Fatal("copies is no controller of this type")
		}
		decide := c.Decide
		c.Decide = func(there bool, now time.Time) reconcile.Decision {
			if broken.Load() {
				panic("it breaks")
			}
			return decide(there, now)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, _ := inMemoryWorld(ctx, t)
		s := w.start(ctx, c)
		defer s.end()
		w.writing(ctx, t, 0)
		if parked := s.Parked(); len(parked) != 0 {
			t.Errorf("at first is set aside %v", parked)
		}
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
		time.Sleep(time.Minute) // virtual
		synctest.Wait()
		key := events.Key{Name: "first"}
		if parked := s.Parked()["copies"]; len(parked) != 1 || parked[0].Key != key || !strings.Contains(parked[0].Reason, "it breaks") {
			t.Errorf("set aside is %v", parked)
		}
		broken.Store(false)
		s.Unpark("other", key)
		time.Sleep(time.Minute)
		synctest.Wait()
		if parked := s.Parked()["copies"]; len(parked) != 1 {
			t.Errorf("Unpark of another controller's key tries again: parked are %v, want 1", parked)
		}
		s.Unpark("copies", key)
		time.Sleep(time.Minute)
		synctest.Wait()
		if made := w.creates(); made["first"] != 1 || len(s.Parked()) != 0 {
			t.Errorf("after Unpark there are the creates %v, and parked is %v; want the first, and none", made, s.Parked())
		}
	})
}

// A replica decides nothing before it has listened for others, because a new one would store what
// another is storing.
func TestAReplicaListensFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, _ := inMemoryWorld(ctx, t)
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
		s := w.start(ctx)
		defer s.end()
		time.Sleep(300 * time.Millisecond) // virtual
		synctest.Wait()
		if n := w.stored(ctx, subject.TurnStream("copies")); n != 0 {
			t.Errorf("%d turns are stored at once, want 0", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := w.stored(ctx, subject.TurnStream("copies")); n != 1 {
			t.Errorf("%d turns are stored, want 1", n)
		}
		if turn, _ := w.turnOf(ctx, "first"); turn.Code != "test-1" {
			t.Errorf("the turn was decided by version %q", turn.Code)
		}
	})
}

// An outcome that no trusted writer has signed is counted, and its turn stays in flight.
func TestAnOutcomeThatIsNotSignedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, err := sign.Provide(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		own, err := sign.SignerFile(keys.Turns.Private, nil)
		if err != nil {
			t.Fatal(err)
		}
		writers, err := sign.TrustFile(keys.Outcomes.Public, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, _ := inMemoryWorld(ctx, t)
		time.Sleep(time.Minute) // virtual; the keys count by then
		s, err := reconcilers.New(reconcilers.Config{
			Bus: w.connect(), Controllers: []reconcile.Any{copies()}, Settings: shell.Settings{Signatures: shell.Signatures{Sign: own, Outcomes: writers}},
		})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		w.writing(ctx, t, 0)
		w.say(ctx, kinds.ConfigMaps.Kind, "first", "c")
		time.Sleep(time.Minute)
		synctest.Wait()
		refused := metrictest.Collect(t, s.Collectors()...).Sum("millrace_reconcilers_unproven_outcomes_total", "controller=copies")
		if refused == 0 {
			t.Error("no outcome is counted as unproven")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
