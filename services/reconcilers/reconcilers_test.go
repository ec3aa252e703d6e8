package reconcilers_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events/eventually"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

const namespaces = 50

// done waits until every namespace has its copy, and fails for namespaces with
// more than one create.
func (w *world) done(ctx context.Context, t *testing.T) {
	t.Helper()
	eventually.True(t, eventually.Long, "every namespace has its copy", func() bool { return len(w.creates()) == namespaces })
	eventually.True(t, eventually.Long, "every turn has its outcome", func() bool { return w.quiet(ctx) })
	for at, n := range w.creates() {
		if n != 1 {
			t.Errorf("%s has %d creates, want 1", at, n)
		}
	}
}

// writing runs the writer until the test ends.
func (w *world) writing(ctx context.Context, t *testing.T, slowly time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() { w.write(ctx, slowly) })
	t.Cleanup(func() { cancel(); run.Wait() })
}

// Three replicas share the work; each copy is created once.
func TestReplicasDecideOnce(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		for i := range namespaces / 2 {
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "there-before")
		}
		for range 3 {
			w.start(ctx)
		}
		w.writing(ctx, t, time.Millisecond)
		for i := range namespaces {
			for n := range 4 {
				w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), fmt.Sprint("map", n))
			}
		}
		w.done(ctx, t)
	})
}

// A replica that ends leaves its work to a later one, whatever the state of its
// turns.
func TestWorkSurvivesReplicas(t *testing.T) {
	for name, controller := range map[string]reconcile.Any{"named": copies(), "every": copiesOfAll()} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(ctx context.Context, t *testing.T, w *world) {
				w.writing(ctx, t, 5*time.Millisecond)
				for i := range namespaces {
					before := len(w.creates())
					w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "map")
					if i%10 != 0 {
						continue
					}
					r := w.start(ctx, controller)
					eventually.True(t, eventually.Long, "a create", func() bool { return len(w.creates()) > before })
					r.end()
				}
				w.start(ctx, controller)
				w.done(ctx, t)
			})
		})
	}
}

// Replicas that are cut off the bus at any moment are replaced by others, while
// one replica goes on.
func TestWorkSurvivesKills(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		w.writing(ctx, t, 2*time.Millisecond)
		w.start(ctx)
		for i := range namespaces {
			before := len(w.creates())
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "map")
			if i%10 != 5 {
				continue
			}
			r := w.start(ctx)
			eventually.True(t, eventually.Long, "a create", func() bool { return len(w.creates()) > before })
			r.kill()
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "another")
		}
		w.done(ctx, t)
	})
}

// While a kind is recorded anew, an object that is missing may just not be recorded
// yet, so nothing is created in its place.
func TestRemadeStreamsGiveNoCreates(t *testing.T) {
	for name, controller := range map[string]reconcile.Any{"named": copies(), "every": copiesOfAll()} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(ctx context.Context, t *testing.T, w *world) {
				w.writing(ctx, t, 0)
				w.start(ctx, controller)
				w.start(ctx, controller)
				for i := range namespaces {
					if i == namespaces-1 {
						eventually.True(t, eventually.Long, "most are created", func() bool { return len(w.creates()) == namespaces-1 })
						w.remake(ctx, kinds.ServiceAccounts.Kind)
						w.remake(ctx, kinds.ConfigMaps.Kind)
					}
					w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "map")
				}
				w.done(ctx, t)
			})
		})
	}
}

// A controller decides nothing before each of its kinds has been recorded completely.
func TestFirstListIsAwaited(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		for i := range namespaces {
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "map")
			if i > 0 {
				w.say(ctx, kinds.ServiceAccounts.Kind, fmt.Sprint("ns", i), "copy")
			}
		}
		w.writing(ctx, t, 0)
		if err := w.bus.DeleteKind(ctx, kinds.ServiceAccounts.Name); err != nil {
			t.Fatal(err)
		}
		w.start(ctx)
		w.remake(ctx, kinds.ServiceAccounts.Kind)
		eventually.True(t, eventually.Long, "the one that is missing is created", func() bool { return len(w.creates()) > 0 })
		eventually.True(t, eventually.Long, "every turn has its outcome", func() bool { return w.quiet(ctx) })
		if got := w.creates(); len(got) != 1 || got["ns0"] != 1 {
			t.Errorf("creates are %v, want one in ns0", got)
		}
	})
}

func TestChecksAndMetrics(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, w *world) {
		s := w.start(ctx)
		w.writing(ctx, t, 0)
		eventually.True(t, eventually.Long, "healthy", func() bool {
			for _, check := range s.Checks() {
				if check() != nil {
					return false
				}
			}
			return true
		})
		registry := prometheus.NewPedanticRegistry()
		registry.MustRegister(s.Collectors()...)
		for at := 0; !counted(t, registry); at++ {
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", at), "map")
			eventually.True(t, eventually.Long, "a create", func() bool { return len(w.creates()) > at })
		}
	})
}

// counted reports whether every metric that a turn changes has been counted.
func counted(t *testing.T, registry *prometheus.Registry) bool {
	t.Helper()
	found, there := map[string]bool{}, map[string]bool{}
	for _, one := range metrictest.Read(t, registry) {
		at := one.Name
		if len(one.Labels) > 0 {
			at += "/" + one.Labels[0].Value
		}
		there[at] = true
		found[at] = found[at] || one.Value > 0
	}
	return found["workqueue_adds_total/copies_queue"] && found["workqueue_queue_duration_seconds/copies_queue"] &&
		found["workqueue_work_duration_seconds/copies_queue"] && found["millrace_reconcilers_turns_total/copies"] &&
		found["millrace_reconcilers_answers_total/200"] && found["millrace_reconcilers_fold_age_seconds/configmaps"] && there["millrace_reconcilers_lag/configmaps"] &&
		there["millrace_reconcilers_lag_seconds/configmaps"] && there["millrace_reconcilers_controller_lag/copies"] &&
		there["millrace_reconcilers_controller_lag_seconds/copies"] && found["millrace_reconcilers_stage_duration_seconds/copies"] &&
		found["millrace_reconcilers_members"]
}
