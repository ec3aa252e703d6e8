package reconcilers_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events/stream/embedded"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/pkg/events/trace"
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

// copiesOfAll is copies, but reads every kind.
func copiesOfAll() reconcile.Any {
	c := copies().(reconcile.Controller[bool])
	c.Inputs = []reconcile.Input{{Every: true, Keys: namespace}}
	return c
}

func namespace(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	if now.None() {
		now = was
	}
	return []events.Key{{Name: now.GetNamespace()}}
}

// world plays the API server, the watcher and the writer.
type world struct {
	t       *testing.T
	bus     bus.Bus
	connect func() bus.Bus // for one replica; kill closes it
	tracer  *trace.Tracer  // of all replicas
	// replicas is how many have been started; the n-th signs its turns with the code test-n.
	replicas int

	mu      sync.Mutex
	trace   events.Trace // of the next messages
	version int
	logs    map[kinds.Name]bus.Appender
	objects map[kinds.Name]map[events.Ref]string // versions
	created map[string]int                       // creates carried out, by namespace
}

var worldKinds = []kinds.Kind{kinds.ConfigMaps.Kind, kinds.ServiceAccounts.Kind}

// onEach runs a test on a bus in memory and on JetStream.
func onEach(t *testing.T, test func(context.Context, *testing.T, *world)) {
	for name, open := range map[string]func(*testing.T) (bus.Bus, func() bus.Bus){"memory": inMemory, "jetstream": onJetStream} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, logs: map[kinds.Name]bus.Appender{}, objects: map[kinds.Name]map[events.Ref]string{}, created: map[string]int{}}
			w.bus, w.connect = open(t)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			for _, kind := range worldKinds {
				w.objects[kind.Name] = map[events.Ref]string{}
				w.open(ctx, kind)
				w.mark(ctx, kind)
			}
			if err := w.bus.EnsureController(ctx, "copies"); err != nil {
				t.Fatal(err)
			}
			test(ctx, t, w)
		})
	}
}

// keep ignores Close, because others use the bus, too.
type keep struct{ bus.Bus }

func (keep) Close() error { return nil }

func inMemory(*testing.T) (bus.Bus, func() bus.Bus) {
	b := memory.New(memory.Options{})
	return b, func() bus.Bus { return keep{b} }
}

func onJetStream(t *testing.T) (bus.Bus, func() bus.Bus) {
	server, err := embedded.Serve(embedded.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	connect := func() bus.Bus {
		b, err := stream.Connect(context.Background(), stream.Options{Server: server})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() }) // a killed replica's is closed already
		return b
	}
	return connect(), connect
}

// open creates the streams of a kind and opens its log.
func (w *world) open(ctx context.Context, kind kinds.Kind) {
	w.t.Helper()
	if err := w.bus.EnsureKind(ctx, kind); err != nil {
		w.t.Fatal(err)
	}
	log, err := w.bus.Append(ctx, kind.Name)
	if err != nil {
		w.t.Fatal(err)
	}
	w.logs[kind.Name] = log
}

// mark publishes a mark: the watcher has recorded all objects of a kind.
func (w *world) mark(ctx context.Context, kind kinds.Kind) {
	w.version++
	m := subject.Message(events.Delta{Kind: kind.Name, Op: events.Mark, ResourceVersion: strconv.Itoa(w.version), At: time.Now()})
	w.append(ctx, kind, m)
}

func (w *world) append(ctx context.Context, kind kinds.Kind, m events.Message) {
	if err := w.logs[kind.Name].Append(ctx, m); err != nil && ctx.Err() == nil {
		w.t.Errorf("publish on %s: %v", m.Subject, err)
	}
}

// say publishes an object and returns its version.
func (w *world) say(ctx context.Context, kind kinds.Kind, namespace, name string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.version++
	ref := events.Ref{Kind: kind.Name, Namespace: namespace, Name: name}
	w.objects[kind.Name][ref] = strconv.Itoa(w.version)
	w.tell(ctx, kind, ref)
	return w.objects[kind.Name][ref]
}

func (w *world) tell(ctx context.Context, kind kinds.Kind, ref events.Ref) {
	version := w.objects[kind.Name][ref]
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(ref.String()), ResourceVersion: version}
	var body []byte
	var err error
	if kind.Name == kinds.ConfigMaps.Name {
		body, err = kinds.Encode(kind, &corev1.ConfigMap{ObjectMeta: meta})
	} else {
		body, err = kinds.Encode(kind, &corev1.ServiceAccount{ObjectMeta: meta})
	}
	if err != nil {
		w.t.Errorf("encode %v: %v", ref, err)
		return
	}
	m := subject.Message(events.Delta{
		Kind: kind.Name, Ref: ref, Op: events.Is, UID: meta.UID, ResourceVersion: version,
		At: time.Now(), ContentType: kinds.Protobuf, Form: kinds.Full, Body: body, Trace: w.trace,
	})
	w.append(ctx, kind, m)
}

// remake deletes the streams of a kind and publishes all its objects again,
// slowly. Nothing else is written meanwhile.
func (w *world) remake(ctx context.Context, kind kinds.Kind) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.bus.DeleteKind(ctx, kind.Name); err != nil {
		w.t.Fatal(err)
	}
	w.open(ctx, kind)
	refs := slices.SortedFunc(maps.Keys(w.objects[kind.Name]), func(a, b events.Ref) int {
		return len(a.String()) - len(b.String())
	})
	for _, ref := range refs {
		w.tell(ctx, kind, ref)
		<-time.After(5 * time.Millisecond) // a list takes its time
	}
	w.mark(ctx, kind)
}

// write carries out turns, each after a delay.
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
			w.created[turn.Key.Name]++
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
		d.Ack()
	})
}

func (w *world) creates() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.created)
}

// quiet reports whether every turn has its outcome.
func (w *world) quiet(ctx context.Context) bool {
	turns, err := w.bus.StreamState(ctx, subject.TurnStream("copies"))
	outcomes, err2 := w.bus.StreamState(ctx, subject.OutcomeStream("copies"))
	return err == nil && err2 == nil && turns.Messages == outcomes.Messages
}

// replica is a running service. end lets it finish what it is doing; kill cuts
// it off the bus.
type replica struct {
	*reconcilers.Service
	end, kill func()
}

func (w *world) start(ctx context.Context, controllers ...reconcile.Any) replica {
	if controllers == nil {
		controllers = []reconcile.Any{copies()}
	}
	b := w.connect()
	w.replicas++
	s, err := reconcilers.New(reconcilers.Config{Bus: b, Controllers: controllers, Code: fmt.Sprint("test-", w.replicas), Trace: w.tracer})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var run sync.WaitGroup
	run.Go(func() {
		if err := s.Run(ctx); err != nil {
			w.t.Errorf("run: %v", err)
		}
	})
	end := func() { cancel(); run.Wait() }
	w.t.Cleanup(end)
	return replica{Service: s, end: end, kill: func() {
		if err := b.Close(); err != nil {
			w.t.Errorf("cut off a replica: %v", err)
		}
		end()
	}}
}
