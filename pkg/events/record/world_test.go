package record_test

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// world is a bus on which a test stores a record. Its time is virtual, and only wait lets it
// pass.
type world struct {
	*testing.T
	bus     *memory.Bus
	record  *record.Record
	version int
	// linked: deltas say where the ones before them are, as watchers have it.
	linked  bool
	tally   map[kinds.Name]*events.Tally
	places  map[events.Ref]uint64
	gaps    map[kinds.Name]uint64
	objects map[events.Ref]runtime.Object
}

const (
	deployments = "deployment-controller"
	replicaSets = "replicaset-controller"
)

// tell runs a test in a world of its own, once with deltas that point to their predecessors, and
// once with deltas of a watcher that did not record that.
func tell(t *testing.T, story func(w *world)) {
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprintf("linked=%v", linked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.Options{})
				w := &world{
					T: t, bus: b, record: record.New(b), version: 100, linked: linked,
					tally: map[kinds.Name]*events.Tally{}, places: map[events.Ref]uint64{}, gaps: map[kinds.Name]uint64{}, objects: map[events.Ref]runtime.Object{},
				}
				for _, k := range []kinds.Kind{kinds.Pods.Kind, kinds.Deployments.Kind, kinds.ReplicaSets.Kind} {
					w.must(b.EnsureKind(t.Context(), k))
					w.tally[k.Name] = &events.Tally{}
				}
				for _, c := range []string{deployments, replicaSets} {
					w.must(b.EnsureController(t.Context(), c))
				}
				story(w)
				w.must(b.Close())
			})
		})
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) wait(d time.Duration) { time.Sleep(d) } // of virtual time

var (
	web    = events.Ref{Kind: "deployments.apps", Namespace: "shop", Name: "web"}
	webSet = events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "web-1"}
)

func pod(name string) events.Ref { return events.Ref{Kind: "pods", Namespace: "shop", Name: name} }

// delta is a delta of an object as a client wrote it.
func (w *world) delta(ref events.Ref, op events.Op, by string, change func(metav1.Object)) events.Delta {
	w.Helper()
	w.version++
	object := w.objects[ref]
	if object == nil {
		object = blank(ref, w.version)
		w.objects[ref] = object
	}
	meta := object.(metav1.Object)
	meta.SetResourceVersion(strconv.Itoa(w.version))
	if change != nil {
		change(meta)
	}
	body, err := kinds.Encode(kindOf(ref.Kind), object.DeepCopyObject())
	w.must(err)
	if op == events.Gone {
		delete(w.objects, ref)
	}
	return events.Delta{
		Kind: ref.Kind, Ref: ref, Op: op, UID: meta.GetUID(), ResourceVersion: meta.GetResourceVersion(), Generation: meta.GetGeneration(),
		Deleting: meta.GetDeletionTimestamp() != nil, Form: kinds.Full, ContentType: kinds.Protobuf, Body: body,
		By: events.Manager{Name: by, Operation: "Update", Time: time.Now()},
	}
}

func kindOf(name kinds.Name) kinds.Kind {
	return map[kinds.Name]kinds.Kind{"pods": kinds.Pods.Kind, "deployments.apps": kinds.Deployments.Kind, "replicasets.apps": kinds.ReplicaSets.Kind}[name]
}

func blank(ref events.Ref, n int) runtime.Object {
	meta := metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: types.UID(fmt.Sprintf("uid-%d", n)), CreationTimestamp: metav1.Now()}
	owned := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "owner"}}
	}
	switch ref.Kind {
	case "deployments.apps":
		meta.Generation = 1
		return &appsv1.Deployment{ObjectMeta: meta}
	case "replicasets.apps":
		meta.Generation = 1
		meta.OwnerReferences = owned("Deployment", "web")
		return &appsv1.ReplicaSet{ObjectMeta: meta}
	default:
		meta.OwnerReferences = owned("ReplicaSet", "web-1")
		return &corev1.Pod{ObjectMeta: meta}
	}
}

// say stores a delta one second after the previous one, and gives its sequence.
func (w *world) say(d events.Delta) uint64 {
	w.Helper()
	w.tally[d.Kind].Fold(d)
	d.Census = w.tally[d.Kind].Census()
	return w.sayUncounted(d)
}

func (w *world) sayUncounted(d events.Delta) uint64 {
	w.Helper()
	w.wait(time.Second)
	d.At = time.Now()
	m := events.Message{}
	if d.Ref.Name == "" {
		d.Before = events.Place{Known: w.linked, Sequence: w.gaps[d.Kind]}
		m = events.EncodeDelta(d)
		m.Subject = subject.Mark(d.Kind)
	} else {
		d.Before = events.Place{Known: w.linked, Sequence: w.places[d.Ref]}
		m = events.EncodeDelta(d)
		m.Subject = subject.Delta(d.Ref)
	}
	if !w.linked {
		delete(m.Header, events.HeaderBefore)
	}
	a, err := w.bus.Append(w.Context(), d.Kind)
	w.must(err)
	w.must(a.Append(w.Context(), m))
	w.must(a.Flush(w.Context()))
	at := a.Last()
	w.must(a.Close())
	switch d.Op {
	case events.Is:
		w.places[d.Ref] = at
	case events.Gone:
		delete(w.places, d.Ref)
	case events.Gap:
		w.gaps[d.Kind] = at
	case events.Mark:
	}
	return at
}

// is stores an object as a client changed it.
func (w *world) is(ref events.Ref, by string, change func(metav1.Object)) uint64 {
	w.Helper()
	return w.say(w.delta(ref, events.Is, by, change))
}

// decide stores a turn about an own object, triggered by deltas.
func (w *world) decide(controller string, own events.Ref, because string, commands []events.Command, asked ...events.Trigger) uint64 {
	w.Helper()
	w.wait(100 * time.Millisecond)
	key := events.Key{Namespace: own.Namespace, Name: own.Name}
	turn := events.Turn{
		Controller: controller, Key: key, Lane: events.LaneWrite, Now: time.Now(), Because: because, Commands: commands, Triggers: asked,
		Seen: events.Position{},
	}
	for _, k := range []kinds.Name{"pods", "deployments.apps", "replicasets.apps"} {
		state, err := w.bus.StreamState(w.Context(), subject.LogStream(k))
		w.must(err)
		turn.Seen[k] = state.Last
	}
	if object, ok := w.objects[own].(metav1.Object); ok {
		turn.Kind, turn.UID, turn.ResourceVersion, turn.Generation = own.Kind, object.GetUID(), object.GetResourceVersion(), object.GetGeneration()
	}
	m, err := events.EncodeJSON(turn, events.Trace{})
	w.must(err)
	m.Subject = subject.Turn(controller, events.LaneWrite, key)
	sequence, err := w.bus.Put(w.Context(), m, fmt.Sprint(controller, w.version, because))
	w.must(err)
	return sequence
}

// done stores the outcome of a turn: each command made one version.
func (w *world) done(controller string, own events.Ref, turn uint64, made ...events.Delta) {
	w.Helper()
	w.outcome(controller, own, turn, events.Applied, made)
}

// met stores the outcome of a turn whose commands conflicted with other versions.
func (w *world) met(controller string, own events.Ref, turn uint64, those ...events.Delta) {
	w.Helper()
	w.outcome(controller, own, turn, events.Conflict, those)
}

func (w *world) outcome(controller string, own events.Ref, turn uint64, status events.Status, about []events.Delta) {
	w.Helper()
	key := events.Key{Namespace: own.Namespace, Name: own.Name}
	o := events.Outcome{Controller: controller, Key: key, Lane: events.LaneWrite, Turn: turn, At: time.Now()}
	for i, d := range about {
		o.Results = append(o.Results, events.Result{
			Command: i, Status: status, Ref: d.Ref, UID: d.UID, Version: d.ResourceVersion, Removed: d.Op == events.Gone, AuditID: "audit-" + d.ResourceVersion,
		})
	}
	m, err := events.EncodeJSON(o, events.Trace{})
	w.must(err)
	m.Subject = subject.Outcome(controller, events.LaneWrite, key)
	_, err = w.bus.Put(w.Context(), m, fmt.Sprint(controller, turn))
	w.must(err)
}

func trigger(ref events.Ref, sequence uint64) events.Trigger {
	return events.Trigger{Stream: subject.LogStream(ref.Kind), Sequence: sequence, Ref: ref}
}

func replicas(n int32) func(metav1.Object) {
	return func(o metav1.Object) {
		o.SetGeneration(o.GetGeneration() + 1)
		switch o := o.(type) {
		case *appsv1.Deployment:
			o.Spec.Replicas = &n
		case *appsv1.ReplicaSet:
			o.Spec.Replicas = &n
		}
	}
}

func create(ref events.Ref) events.Command {
	return events.Command{Verb: events.VerbCreate, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}
