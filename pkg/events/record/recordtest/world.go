package recordtest

import (
	"errors"
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
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/pkg/events/subject"
)

// World is a bus in memory on which a test stores a record of the Deployment [Web], its
// ReplicaSet [WebSet] and their Pods. Its time is virtual, and only Wait, and what says so, lets
// it pass.
type World struct {
	*testing.T
	Bus *memory.Bus
	// Version is the resourceVersion given last.
	Version int
	// Linked is true if deltas name the ones before them, as those of a watcher do.
	Linked bool
	// Tally is the census of each kind.
	Tally map[kinds.Name]*events.Tally

	places  map[events.Ref]uint64
	gaps    map[kinds.Name]uint64
	objects map[events.Ref]runtime.Object
}

// RunWorlds runs a test in a world of its own, once with deltas that point to their predecessors,
// and once with deltas of a watcher that did not record that.
func RunWorlds(t *testing.T, test func(w *World)) {
	for _, linked := range []bool{true, false} {
		t.Run(fmt.Sprintf("linked=%v", linked), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memory.New(memory.Options{})
				w := &World{
					T: t, Bus: b, Version: 100, Linked: linked,
					Tally: map[kinds.Name]*events.Tally{}, places: map[events.Ref]uint64{}, gaps: map[kinds.Name]uint64{}, objects: map[events.Ref]runtime.Object{},
				}
				for _, k := range []kinds.Kind{kinds.Pods.Kind, kinds.Deployments.Kind, kinds.ReplicaSets.Kind} {
					w.Must(b.EnsureKind(t.Context(), k))
					w.Tally[k.Name] = &events.Tally{}
				}
				for _, c := range []string{Deployments, ReplicaSets} {
					w.Must(b.EnsureController(t.Context(), c))
				}
				test(w)
				w.Must(b.Close())
			})
		})
	}
}

// Must ends the test on an error.
func (w *World) Must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// Wait lets virtual time pass.
func (w *World) Wait(d time.Duration) { time.Sleep(d) }

// The Deployment and the ReplicaSet of a [World].
var (
	Web    = events.Ref{Kind: "deployments.apps", Namespace: "shop", Name: "web"}
	WebSet = events.Ref{Kind: "replicasets.apps", Namespace: "shop", Name: "web-1"}
)

// Pod names a Pod of a [World].
func Pod(name string) events.Ref { return events.Ref{Kind: "pods", Namespace: "shop", Name: name} }

// Delta is a delta of an object as a client wrote it.
func (w *World) Delta(ref events.Ref, op events.Op, by string, change func(metav1.Object)) events.Delta {
	w.Helper()
	w.Version++
	object := w.objects[ref]
	if object == nil {
		object = blank(ref, w.Version)
		w.objects[ref] = object
	}
	meta := object.(metav1.Object)
	meta.SetResourceVersion(strconv.Itoa(w.Version))
	if change != nil {
		change(meta)
	}
	body, err := kinds.Encode(KindOf(ref.Kind), object.DeepCopyObject())
	w.Must(err)
	if op == events.Gone {
		delete(w.objects, ref)
	}
	return events.Delta{
		Kind: ref.Kind, Ref: ref, Op: op, UID: meta.GetUID(), ResourceVersion: meta.GetResourceVersion(), Generation: meta.GetGeneration(),
		Deleting: meta.GetDeletionTimestamp() != nil, Form: kinds.Full, ContentType: kinds.Protobuf, Body: body,
		By: events.Manager{Name: by, Operation: "Update", Time: time.Now()},
	}
}

// KindOf is one of the kinds of a [World].
func KindOf(name kinds.Name) kinds.Kind {
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

// Say stores a delta one second after the previous one, and gives its sequence.
func (w *World) Say(d events.Delta) uint64 {
	w.Helper()
	w.Tally[d.Kind].Fold(d)
	d.Census = w.Tally[d.Kind].Census()
	return w.SayUncounted(d)
}

// SayUncounted stores a delta like Say, with the census that it has.
func (w *World) SayUncounted(d events.Delta) uint64 {
	w.Helper()
	w.Wait(time.Second)
	d.At = time.Now()
	d.Before = events.Place{Known: w.Linked, Sequence: w.places[d.Ref]}
	if d.Ref.Name == "" {
		d.Before.Sequence = w.gaps[d.Kind]
	}
	m := subject.Message(d)
	if !w.Linked {
		delete(m.Header, events.HeaderBefore)
	}
	a, err := w.Bus.Append(w.Context(), d.Kind)
	w.Must(err)
	w.Must(a.Append(w.Context(), m))
	w.Must(a.Flush(w.Context()))
	at := a.Last()
	w.Must(a.Close())
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

// Is stores an object as a client changed it.
func (w *World) Is(ref events.Ref, by string, change func(metav1.Object)) uint64 {
	w.Helper()
	return w.Say(w.Delta(ref, events.Is, by, change))
}

// Decide stores a turn about an own object, triggered by deltas.
func (w *World) Decide(controller string, own events.Ref, because string, commands []events.Command, asked ...events.Trigger) uint64 {
	w.Helper()
	w.Wait(100 * time.Millisecond)
	key := events.Key{Namespace: own.Namespace, Name: own.Name}
	turn := events.Turn{
		Controller: controller, Key: key, Lane: events.LaneWrite, Now: time.Now(), Because: because, Commands: commands, Triggers: asked,
		Seen: events.Position{},
	}
	for _, k := range []kinds.Name{"pods", "deployments.apps", "replicasets.apps"} {
		state, err := w.Bus.StreamState(w.Context(), subject.LogStream(k))
		w.Must(err)
		turn.Seen[k] = state.Last
	}
	if object, ok := w.objects[own].(metav1.Object); ok {
		turn.Kind, turn.UID, turn.ResourceVersion, turn.Generation = own.Kind, object.GetUID(), object.GetResourceVersion(), object.GetGeneration()
	}
	m, err := events.EncodeJSON(turn, events.Trace{})
	w.Must(err)
	m.Subject = subject.Turn(controller, events.LaneWrite, key)
	sequence, err := w.Bus.Put(w.Context(), m, fmt.Sprint(controller, w.Version, because))
	w.Must(err)
	return sequence
}

// Done stores the outcome of a turn: each command made one version.
func (w *World) Done(controller string, own events.Ref, turn uint64, made ...events.Delta) {
	w.Helper()
	w.outcome(controller, own, turn, events.Applied, made)
}

// Met stores the outcome of a turn whose commands conflicted with other versions.
func (w *World) Met(controller string, own events.Ref, turn uint64, those ...events.Delta) {
	w.Helper()
	w.outcome(controller, own, turn, events.Conflict, those)
}

func (w *World) outcome(controller string, own events.Ref, turn uint64, status events.Status, about []events.Delta) {
	w.Helper()
	key := events.Key{Namespace: own.Namespace, Name: own.Name}
	o := events.Outcome{Controller: controller, Key: key, Lane: events.LaneWrite, Turn: turn, At: time.Now()}
	for i, d := range about {
		o.Results = append(o.Results, events.Result{
			Command: i, Status: status, Ref: d.Ref, UID: d.UID, Version: d.ResourceVersion, Removed: d.Op == events.Gone, AuditID: "audit-" + d.ResourceVersion,
		})
	}
	m, err := events.EncodeJSON(o, events.Trace{})
	w.Must(err)
	m.Subject = subject.Outcome(controller, events.LaneWrite, key)
	_, err = w.Bus.Put(w.Context(), m, fmt.Sprint(controller, turn))
	w.Must(err)
}

// TriggeredBy is the trigger of a turn: a delta in the log of an object's kind.
func TriggeredBy(ref events.Ref, sequence uint64) events.Trigger {
	return events.Trigger{Stream: subject.LogStream(ref.Kind), Sequence: sequence, Ref: ref}
}

// Replicas changes the wanted number of replicas, and so the generation.
func Replicas(n int32) func(metav1.Object) {
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

// Create is the command that creates an object.
func Create(ref events.Ref) events.Command {
	return events.Command{Verb: events.VerbCreate, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

// Compared stores three findings of a shadow, two of them with their turns.
func (w *World) Compared() {
	w.Helper()
	w.Must(w.Bus.EnsureShadow(w.Context(), ReplicaSets))
	key := events.Key{Namespace: "shop", Name: "web-1"}
	m, err := events.EncodeJSON(events.Turn{Controller: ReplicaSets, Key: key, Lane: events.LaneWrite, Because: "too few Pods"}, events.Trace{})
	w.Must(err)
	m.Subject = subject.ShadowTurn(ReplicaSets, events.LaneWrite, key)
	turn, err := w.Bus.Put(w.Context(), m, "turn")
	w.Must(err)
	for i, f := range []report.Finding{
		{Agreement: report.Agreed, What: "first", Turn: turn}, {Agreement: report.Differs, What: "second"}, {Agreement: report.Agreed, What: "third", Turn: turn},
	} {
		w.Wait(time.Second)
		f.Controller, f.Key, f.At = ReplicaSets, key, time.Now()
		m, err := events.EncodeJSON(f, events.Trace{})
		w.Must(err)
		m.Subject = subject.Finding(ReplicaSets, key)
		_, err = w.Bus.Put(w.Context(), m, fmt.Sprint("finding", i))
		w.Must(err)
	}
}

// Scaled stores the record of a Deployment that a user creates and scales: two controllers follow,
// and the second creates a Pod, which runs.
func (w *World) Scaled() {
	w.Is(Web, "kubectl-create", Replicas(1))
	set := w.Delta(WebSet, events.Is, events.FieldManager, Replicas(1))
	w.Done(Deployments, Web, w.Decide(Deployments, Web, "there is no set of this template", []events.Command{Create(WebSet)}), set)
	w.Say(set)
	asked := w.Is(Web, "kubectl-scale", Replicas(2))
	turn := w.Decide(Deployments, Web, "as many as are wanted", []events.Command{{Verb: events.VerbPatch, Kind: WebSet.Kind, Namespace: "shop", Name: WebSet.Name}}, TriggeredBy(Web, asked))
	set = w.Delta(WebSet, events.Is, events.FieldManager, Replicas(2))
	said := w.Say(set) // a delta may precede its outcome
	w.Done(Deployments, Web, turn, set)
	created := w.Delta(Pod("a"), events.Is, events.FieldManager, nil)
	w.Done(ReplicaSets, WebSet, w.Decide(ReplicaSets, WebSet, "too few Pods", []events.Command{Create(Pod("a"))}, TriggeredBy(WebSet, said)), created)
	w.Say(created)
	w.Is(Pod("a"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning })
}

// Report stores a replica's report.
func (w *World) Report(r report.Report) {
	w.Helper()
	m, err := r.Encode()
	w.Must(err)
	m.Subject = subject.StatusSubject
	_, err = w.Bus.Put(w.Context(), m, fmt.Sprint(r.Replica, time.Now()))
	w.Must(err)
	time.Sleep(time.Second) // virtual
}

// Eventful stores a record with every type of content.
func (w *World) Eventful() {
	w.Helper()
	w.Scaled()
	w.Compared()
	w.Is(Pod("a"), "kubelet", func(o metav1.Object) { now := metav1.Now(); o.SetDeletionTimestamp(&now) })
	w.Is(Pod("a"), "kubelet", func(o metav1.Object) { o.SetLabels(map[string]string{"seen": "yes"}) })
	gone := w.Say(w.Delta(Pod("a"), events.Gone, "kubelet", nil))
	w.Say(events.Delta{Kind: "pods", Op: events.Gap, ContentType: kinds.JSON, Body: []byte(`{"reason":"the watcher was away"}`)})
	created := w.Delta(Pod("b"), events.Is, events.FieldManager, nil)
	w.Done(ReplicaSets, WebSet, w.Decide(ReplicaSets, WebSet, "too few Pods", []events.Command{Create(Pod("b"))}, TriggeredBy(Pod("a"), gone)), created)
	w.Say(created)
	w.Is(Pod("b"), "kubelet", func(o metav1.Object) { o.(*corev1.Pod).Status.Phase = corev1.PodRunning })
	for _, n := range []int32{3, 7, 3, 7, 3, 7} {
		w.Is(Web, map[int32]string{3: "pipeline", 7: "scaler"}[n], Replicas(n))
	}
	key := events.Key{Namespace: "shop", Name: "broken"}
	m, err := events.EncodeJSON(events.Turn{Controller: ReplicaSets, Key: key, Lane: events.LanePark, Because: "panic"}, events.Trace{})
	w.Must(err)
	m.Subject = subject.Turn(ReplicaSets, events.LanePark, key)
	_, err = w.Bus.Put(w.Context(), m, "broken")
	w.Must(err)
	w.Report(report.Report{Replica: "a", Controllers: []string{Deployments, ReplicaSets}})
}

// CutEverywhere asks a question once for each of its calls of the bus, which fails; the answer
// must be that error.
func (w *World) CutEverywhere(name string, ask func(b *memory.Cut) error) {
	w.Helper()
	whole := &memory.Cut{NotaryBus: w.Bus}
	if err := ask(whole); err != nil {
		w.Errorf("%s: with nothing cut: %v", name, err)
	}
	if whole.Calls() == 0 {
		w.Errorf("%s: the bus is not asked", name)
	}
	for at := 1; at <= whole.Calls(); at++ {
		b := &memory.Cut{NotaryBus: w.Bus, Call: at}
		// The number of parallel calls may be lower in this run.
		if err := ask(b); b.Calls() >= at && !errors.Is(err, memory.ErrCut) {
			w.Errorf("%s: call %d of %d is cut, and the answer is no error of it: %v", name, at, whole.Calls(), err)
		}
	}
}
