package reconcilers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/reconcilers/engine"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// timed is a bus that records when it is called, and answers as the test sets.
type timed struct {
	bus.Bus
	answer func(ctx context.Context, nth int) error

	mu       sync.Mutex
	began    time.Time
	at       []time.Duration
	ids      map[string]bool
	reported []report.Report
}

func (b *timed) asked(ctx context.Context) error {
	b.mu.Lock()
	b.at = append(b.at, time.Since(b.began))
	n := len(b.at)
	b.mu.Unlock()
	if b.answer == nil {
		return nil
	}
	return b.answer(ctx, n)
}

func (b *timed) Put(ctx context.Context, m events.Message, id string) (uint64, error) {
	r, err := report.DecodeReport(m)
	b.mu.Lock()
	b.ids[id], b.reported = true, append(b.reported, r)
	b.mu.Unlock()
	return 1, errors.Join(err, b.asked(ctx))
}

func (b *timed) Kinds(ctx context.Context) ([]kinds.Kind, error) { return nil, b.asked(ctx) }

// times runs a service on a timed bus for some virtual time, and returns the bus.
func times(t *testing.T, long time.Duration, answer func(ctx context.Context, nth int) error, controllers []reconcile.Any, run func(context.Context, *Service)) (b *timed) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b = &timed{Bus: memory.New(memory.Options{}), answer: answer, began: time.Now(), ids: map[string]bool{}}
		s := idle(t, b, controllers...)
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		run(ctx, s)
	})
	return b
}

// The service reports its controllers every twenty seconds, and five seconds after a failed report,
// each time with a new id, because the bus stores one message of each id.
func TestHowOftenItIsReported(t *testing.T) {
	fails := func(ctx context.Context, nth int) error {
		if nth <= 3 {
			return errors.New("no room")
		}
		return nil
	}
	hangs := func(ctx context.Context, nth int) error {
		if nth == 1 {
			<-ctx.Done()
		}
		return ctx.Err()
	}
	for what, c := range map[string]struct {
		answer func(context.Context, int) error
		want   []time.Duration
	}{
		"well":              {nil, []time.Duration{0, 20, 40, 60}},
		"without room":      {fails, []time.Duration{0, 5, 10, 15, 35, 55}},
		"on one that hangs": {hangs, []time.Duration{0, 10, 30, 50}},
	} {
		b := times(t, 61*time.Second, c.answer, []reconcile.Any{}, func(ctx context.Context, s *Service) { s.watchStalls(ctx) })
		for i := range c.want {
			c.want[i] *= time.Second
		}
		if !slices.Equal(b.at, c.want) || len(b.ids) != len(b.at) {
			t.Errorf("%s the reports are at %v under %d ids, want %v", what, b.at, len(b.ids), c.want)
		}
	}
}

// A replica reports the controllers of which it owns keys.
func TestWhoIsReported(t *testing.T) {
	b := times(t, time.Second, nil, []reconcile.Any{reader("a")}, func(ctx context.Context, s *Service) { s.watchStalls(ctx) })
	if len(b.reported) != 1 || len(b.reported[0].Controllers) != 0 {
		t.Errorf("a replica to which nothing falls reports %+v", b.reported)
	}
}

// A loop that does not answer holds up the others for a second.
func TestHowLongALoopIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := reconcile.Input{Kind: kinds.Pods.Kind}
		s := idle(t, memory.New(memory.Options{}), reader("a", pods), reader("b", pods))
		took := func() time.Duration {
			began := time.Now()
			s.stalls.look(t.Context(), s.loops)
			return time.Since(began)
		}
		if d := took(); d != 0 {
			t.Errorf("two loops without work are asked for %v, want no question", d)
		}
		if err := s.prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := took(); d != 2*time.Second {
			t.Errorf("two loops with work are asked for %v, want 2s", d)
		}
	})
}

// The service looks for kinds ten times a second while one is missing, and every five seconds when
// none is missing and nothing happens.
func TestHowOftenKindsAreLookedFor(t *testing.T) {
	away := func(context.Context, int) error { return errors.New("away") }
	for what, c := range map[string]struct {
		controller reconcile.Any
		answer     func(context.Context, int) error
		want       int
		second     time.Duration
	}{
		"while one is missing":  {reader("a", reconcile.Input{Kind: kinds.Pods.Kind}), nil, 122, 100 * time.Millisecond},
		"when there are all":    {reader("a"), nil, 3, 5 * time.Second},
		"of a bus that is away": {reader("a"), away, 122, 100 * time.Millisecond},
	} {
		b := times(t, 12150*time.Millisecond, c.answer, []reconcile.Any{c.controller}, func(ctx context.Context, s *Service) {
			var all sync.WaitGroup
			s.discover(ctx, &all)
			all.Wait()
		})
		if len(b.at) != c.want || b.at[1] != c.second {
			t.Errorf("%s they are looked for %d times, first at %v; want %d", what, len(b.at), b.at[:2], c.want)
		}
	}
}

// Only the loops that wait for a discovery are told of it: those of controllers that read every kind, until
// the first has ended.
func TestWhoIsToldOfADiscovery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idle(t, memory.New(memory.Options{}), reader("a"), reader("every", reconcile.Input{Every: true}))
		is := func(want ...string) {
			t.Helper()
			var names []string
			for _, l := range s.awaitingDiscovery() {
				names = append(names, l.Name())
			}
			if !slices.Equal(names, want) {
				t.Errorf("%q wait for a discovery, want %q", names, want)
			}
		}
		is("every")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second) // virtual
		is()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// All loops are told the time of the bus every twenty seconds.
func TestHowOftenTheClockOfTheBusIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := bustest.Wrap(memory.New(memory.Options{}))
		b.OnStreamState = func(context.Context, string) (bus.State, error) {
			return bus.State{Now: time.Now().Add(time.Hour)}, nil
		}
		s := idle(t, b, reader("a"), reader("b"))
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() { s.readTime(ctx) })
		is := func(after, ahead time.Duration) {
			t.Helper()
			time.Sleep(after) // virtual
			synctest.Wait()
			for _, l := range s.loops {
				if got := l.BusTime().Sub(time.Now()); got != ahead {
					t.Errorf("the bus is taken to be %v ahead by %s, want %v", got, l.Name(), ahead)
				}
			}
		}
		is(20*time.Second-1, 0)
		is(1, time.Hour)
		cancel()
		reading.Wait()
	})
}

// A service is ready once it has looked for the kinds, until it ends.
func TestAServiceThatEndsIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idle(t, memory.New(memory.Options{}), reader("a"))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		time.Sleep(time.Second) // virtual
		check := s.Checks()["reconcilers"]
		if err := check(); err != nil {
			t.Errorf("the check of a running service: %v, want nil", err)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the service ends with %v, want nil", err)
		}
		if err := check(); err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("the check of an ended service: %v, want \"ended\"", err)
		}
	})
}

// named returns the number of metrics of each name.
func named(t *testing.T, collectors ...prometheus.Collector) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, one := range metrictest.Collect(t, collectors...) {
		found[strings.TrimPrefix(one.Name, "millrace_reconcilers_")]++
	}
	return found
}

// Every metric is exported from the start, for each controller: an alert on a missing metric never
// fires.
func TestMetricsAreThereFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := func(reconcile.Snapshot, reconcile.Object, reconcile.Object) []events.Key { return nil }
		s := idle(t, ending(7, time.Time{}), reader("a", reconcile.Input{Kind: kinds.Pods.Kind, Keys: keys}))
		s.claim(kinds.Pods.Kind)
		ctx, cancel := context.WithCancel(t.Context())
		go s.loops[0].Run(ctx)
		found := named(t, s.Collectors()...)
		for name, want := range map[string]int{
			"members": 1, "turns_total": 4, "fence_waits_total": 1, "parked": 1, "active": 1, "broken_total": 1, "overtaken_total": 1, "lag": 1, "lag_seconds": 1,
			"controller_lag": 1, "controller_lag_seconds": 1, "stalled_seconds": 1, "losses_total": 3, "unproven_outcomes_total": 1, "unproven_heartbeats_total": 1,
			"stage_duration_seconds": len(engine.Stages), "running_managed_controllers": 1, "workqueue_depth": 1, "workqueue_adds_total": 1, "workqueue_retries_total": 1,
			"workqueue_unfinished_work_seconds": 1, "workqueue_longest_running_processor_seconds": 1, "workqueue_queue_duration_seconds": 1, "workqueue_work_duration_seconds": 1,
		} {
			if found[name] != want {
				t.Errorf("the metric %s has %d series, want %d", name, found[name], want)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// histogram returns the observations of a histogram.
func histogram(t *testing.T, o prometheus.Observer) *dto.Histogram {
	t.Helper()
	var said dto.Metric
	if err := o.(prometheus.Metric).Write(&said); err != nil {
		t.Fatal(err)
	}
	return said.GetHistogram()
}

// The buckets are upstream's if it has the metric, and wide enough for the measured times.
func TestBucketsOfHistograms(t *testing.T) {
	controllers := []reconcile.Any{reader("a")}
	s := idle(t, memory.New(memory.Options{}), controllers...)
	u := newUpstream(controllers)
	for what, c := range map[string]struct {
		of          prometheus.Observer
		n           int
		first, last float64
	}{
		"the age of a fold":    {s.metrics.foldAge.WithLabelValues("pods"), 15, 0.5e-3, 8.192},
		"a stage":              {s.metrics.stages.WithLabelValues("a", string(engine.Stages[0])), 18, 0.5e-3, 65.536},
		"a queue":              {u.queueTime.WithLabelValues("q"), 10, 10e-9, 10},
		"work":                 {u.workTime.WithLabelValues("q"), 10, 10e-9, 10},
		"root certificates":    {u.rootCATime.WithLabelValues("200"), 15, 0.001, 16.384},
		"bundles":              {u.bundleTime.WithLabelValues("200"), 15, 0.001, 16.384},
		"mirrors of endpoints": {u.mirrorTime, 15, 0.001, 16.384},
	} {
		b := histogram(t, c.of).GetBucket()
		near := func(got, want float64) bool { return got > 0.99*want && got < 1.01*want }
		if len(b) != c.n || !near(b[0].GetUpperBound(), c.first) || !near(b[len(b)-1].GetUpperBound(), c.last) {
			t.Errorf("%s has %d buckets: %v", what, len(b), b)
		}
	}
	folded := s.metrics.folded("pods")
	folded(-time.Hour) // by a clock that is ahead
	folded(2 * time.Second)
	if h := histogram(t, s.metrics.foldAge.WithLabelValues("pods")); h.GetSampleCount() != 2 || h.GetSampleSum() != 2 {
		t.Errorf("two folds have taken %v", h)
	}
}

// The service measures what a loop reports of its queue, of pending effects and of its figures.
func TestWhatALoopTellsIsMeasured(t *testing.T) {
	of := func(name string) reconcile.Controller[bool] {
		c := reader(name).(reconcile.Controller[bool])
		c.Queue, c.Writes = "q", reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.Pods.Name}, {Verb: events.VerbDelete, Kind: kinds.ReplicaSets.Name}}
		c.Metrics = []reconcile.Metric{{Name: "done", Sort: reconcile.Counter}, {Name: "open", Sort: reconcile.Gauge}}
		return c
	}
	keeper := of("replicaset-controller")
	u := newUpstream([]reconcile.Any{keeper})
	var s shell.Settings
	u.watch(&s, keeper.Describe())
	u.worked("q")(3 * time.Second)
	s.Waited(2 * time.Second)
	s.Held(kinds.ReplicaSets.Name)
	s.Measured(reconcile.Count("done", 5))
	s.Shared(events.Key{Name: "web"}, []reconcile.Figure{{Metric: "open", Value: 7}})
	if h := histogram(t, u.queueTime.WithLabelValues("q")); h.GetSampleCount() != 1 || h.GetSampleSum() != 2 {
		t.Errorf("the time in the queue is measured as %v, want 2 s once", h)
	}
	if h := histogram(t, u.workTime.WithLabelValues("q")); h.GetSampleCount() != 1 || h.GetSampleSum() != 3 {
		t.Errorf("the time of the work is measured as %v, want 3 s once", h)
	}
	if got := written(t, u.stale["replicaset-controller"].Collect); !slices.Equal(got, []string{"//pods 0", "/apps/replicasets 1"}) {
		t.Errorf("the awaited effects are measured as %q", got)
	}
	if got := readings(t, u.own, keeper.Describe()); got != "5, 7" {
		t.Errorf("the figures are measured as %q, want \"5, 7\"", got)
	}
	if found := named(t, u.collectors([]reconcile.Any{keeper})...); found["replicaset_controller_stale_sync_skips_total"] != 2 || found["done"] != 1 {
		t.Errorf("there are %v", found)
	}
	var other shell.Settings
	if u.watch(&other, of("other").Describe()); other.Held != nil {
		t.Error("effects are measured of a controller of which upstream measures none")
	}
}

// Heartbeats that do not count are logged once in ten seconds, however many there are.
func TestAForgedHeartbeatIsLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, err := sign.Provide(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		trust, err := sign.TrustFile(keys.Turns.Public, nil)
		if err != nil {
			t.Fatal(err)
		}
		said, s := capture(t), newSignatures(shell.Signatures{Turns: trust}, time.Now)
		for _, step := range []struct {
			after  time.Duration
			logged bool
		}{{0, true}, {0, false}, {10*time.Second - 1, false}, {1, true}, {5 * time.Second, false}} {
			time.Sleep(step.after) // virtual
			if s.signed([]byte(`{"id":"other"}`)) {
				t.Error("a heartbeat without a signature counts")
			}
			if logged := strings.Contains(said(), "Ignored a reconciler's heartbeat"); logged != step.logged {
				t.Errorf("%v later it is logged: %t", step.after, logged)
			}
		}
	})
}
