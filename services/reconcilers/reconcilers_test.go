package reconcilers_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// copies wants one "copy" ServiceAccount in every namespace that has a
// ConfigMap.
func copies() reconcile.Any {
	return reconcile.Controller[bool]{
		Name: "copies", Queue: "copies_queue",
		Inputs: []reconcile.Input{
			{Kind: kinds.ConfigMaps.Kind, Keys: namespace},
			{Kind: kinds.ServiceAccounts.Kind, Keys: namespace},
		},
		Writes: reconcile.Writes{{Verb: events.VerbCreate, Kind: kinds.ServiceAccounts.Name}},
		Observe: func(s reconcile.Snapshot, k events.Key) (bool, bool) {
			_, there := s.Get(kinds.ServiceAccounts.Name, k.Name, "copy")
			return there, len(s.List(kinds.ConfigMaps.Name, k.Name)) > 0
		},
		Decide: func(there bool, _ time.Time) reconcile.Decision {
			if there {
				return reconcile.Nothing("there")
			}
			return reconcile.Do("missing", reconcile.Create(kinds.ServiceAccounts.Kind, "", "copy", []byte(`{}`)))
		},
	}
}

func namespace(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	return []events.Key{{Name: now.GetNamespace()}}
}

// world plays the watcher and the writer on a bus in memory.
type world struct {
	t   *testing.T
	bus *memory.Bus

	mu      sync.Mutex
	version int
	logs    map[kinds.Name]bus.Appender
	born    map[string]int // births carried out, by namespace
}

func newWorld(ctx context.Context, t *testing.T) *world {
	w := &world{t: t, bus: memory.New(memory.Options{}), logs: map[kinds.Name]bus.Appender{}, born: map[string]int{}}
	for _, kind := range []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind} {
		if err := w.bus.EnsureKind(ctx, kind); err != nil {
			t.Fatal(err)
		}
		log, err := w.bus.Append(ctx, kind.Name)
		if err != nil {
			t.Fatal(err)
		}
		w.logs[kind.Name] = log
	}
	if err := w.bus.EnsureController(ctx, "copies"); err != nil {
		t.Fatal(err)
	}
	return w
}

// say publishes an object and gives its version.
func (w *world) say(ctx context.Context, kind kinds.Kind, namespace, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	version := strconv.Itoa(w.version)
	ref := events.Ref{Kind: kind.Name, Namespace: namespace, Name: name}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(ref.String()), ResourceVersion: version}
	var body []byte
	var err error
	if kind.Name == kinds.ConfigMaps.Name {
		body, err = kinds.Encode(kind, &corev1.ConfigMap{ObjectMeta: meta})
	} else {
		body, err = kinds.Encode(kind, &corev1.ServiceAccount{ObjectMeta: meta})
	}
	m := events.EncodeDelta(events.Delta{
		Kind: kind.Name, Ref: ref, Op: events.Is, UID: meta.UID, ResourceVersion: version,
		At: time.Now(), ContentType: kinds.Protobuf, Form: kinds.Full, Body: body,
	})
	m.Subject = subject.Delta(ref)
	if err == nil {
		err = w.logs[kind.Name].Append(ctx, m)
	}
	if err != nil && ctx.Err() == nil {
		w.t.Errorf("publish %v: %v", ref, err)
	}
	return version
}

// write carries out turns, as slowly as asked.
func (w *world) write(ctx context.Context, slowly time.Duration) {
	work := bus.Work{Stream: subject.TurnStream("copies"), Durable: "writer"}
	_ = w.bus.Work(ctx, work, func(d bus.Delivery) {
		var turn events.Turn
		m := d.Message()
		if err := events.DecodeJSON(m, &turn); err != nil {
			w.t.Error(err)
			return
		}
		<-time.After(slowly) // a writer takes its time
		o := events.Outcome{Controller: "copies", Key: turn.Key, Lane: turn.Lane, Turn: m.Sequence}
		for i, c := range turn.Commands {
			version := w.say(ctx, kinds.ServiceAccounts.Kind, turn.Key.Name, c.Name)
			w.mu.Lock()
			w.born[turn.Key.Name]++
			w.mu.Unlock()
			ref := events.Ref{Kind: c.Kind, Namespace: turn.Key.Name, Name: c.Name}
			o.Results = append(o.Results, events.Result{
				Command: i, Status: events.Applied, Ref: ref, UID: types.UID(ref.String()), Version: version,
			})
		}
		answer, err := events.EncodeJSON(o, events.Trace{})
		answer.Subject = subject.Outcome("copies", turn.Lane, turn.Key)
		if err == nil {
			_, err = w.bus.Put(ctx, answer, fmt.Sprint("outcome/", m.Sequence))
		}
		if err != nil && ctx.Err() == nil {
			w.t.Errorf("store outcome: %v", err)
		}
		d.Done()
	})
}

func (w *world) births() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[string]int{}
	for k, v := range w.born {
		out[k] = v
	}
	return out
}

func (w *world) start(ctx context.Context, all *sync.WaitGroup) *reconcilers.Service {
	s, err := reconcilers.New(reconcilers.Config{Bus: w.bus, Controllers: []reconcile.Any{copies()}, Code: "test"})
	if err != nil {
		w.t.Fatal(err)
	}
	all.Go(func() {
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	return s
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

const namespaces = 50

// Three replicas share the work; each effect is wanted once.
func TestReplicasDecideOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	w := newWorld(ctx, t)
	for i := range namespaces / 2 {
		w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "there-before")
	}
	for range 3 {
		w.start(ctx, &all)
	}
	all.Go(func() { w.write(ctx, time.Millisecond) })
	for i := range namespaces {
		for n := range 4 {
			w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), fmt.Sprint("map", n))
		}
	}
	eventually(t, "every namespace has its copy", func() bool { return len(w.births()) == namespaces })
	eventually(t, "all tickets are answered", func() bool { return w.quiet(ctx) })
	for at, n := range w.births() {
		if n != 1 {
			t.Errorf("%s has %d births, want 1", at, n)
		}
	}
}

// quiet tells whether every turn has its outcome.
func (w *world) quiet(ctx context.Context) bool {
	turns, err := w.bus.StreamState(ctx, subject.TurnStream("copies"))
	outcomes, err2 := w.bus.StreamState(ctx, subject.OutcomeStream("copies"))
	return err == nil && err2 == nil && turns.Messages == outcomes.Messages
}

// A replica that ends leaves its work to one that comes later, in whatever state
// its turns are.
func TestWorkSurvivesReplicas(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	w := newWorld(ctx, t)
	all.Go(func() { w.write(ctx, 5*time.Millisecond) })
	for i := range namespaces {
		w.say(ctx, kinds.ConfigMaps.Kind, fmt.Sprint("ns", i), "map")
		if i%10 != 0 {
			continue
		}
		one, end := context.WithCancel(ctx)
		var run sync.WaitGroup
		w.start(one, &run)
		before := len(w.births())
		eventually(t, "a birth", func() bool { return len(w.births()) > before })
		end()
		run.Wait()
	}
	w.start(ctx, &all)
	eventually(t, "every namespace has its copy", func() bool { return len(w.births()) == namespaces })
	eventually(t, "every turn has its outcome", func() bool { return w.quiet(ctx) })
	for at, n := range w.births() {
		if n != 1 {
			t.Errorf("%s has %d births, want 1", at, n)
		}
	}
}

func TestChecksAndMetrics(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	w := newWorld(ctx, t)
	w.say(ctx, kinds.ConfigMaps.Kind, "ns", "map")
	s := w.start(ctx, &all)
	all.Go(func() { w.write(ctx, 0) })
	eventually(t, "healthy", func() bool {
		for _, check := range s.Checks() {
			if check() != nil {
				return false
			}
		}
		return true
	})
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(s.Collectors()...)
	eventually(t, "a turn is counted", func() bool {
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, f := range families {
			for _, m := range f.Metric {
				label := m.GetLabel()[0].GetValue()
				found[f.GetName()+"/"+label] = m.GetCounter().GetValue()+m.GetGauge().GetValue() > 0 ||
					m.GetHistogram().GetSampleCount() > 0 || found[f.GetName()+"/"+label]
			}
		}
		return found["workqueue_adds_total/copies_queue"] && found["workqueue_queue_duration_seconds/copies_queue"] &&
			found["workqueue_work_duration_seconds/copies_queue"] && found["millrace_reconcilers_turns_total/copies"]
	})
}
