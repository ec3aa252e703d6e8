// Package cachetest has what the tests of the cache and of the engine fold: a small controller, its
// objects, and their messages.
package cachetest

import (
	"fmt"
	"maps"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// View is what the controller [Toy] sees: a set and its pods.
type View struct {
	Set    *appsv1.ReplicaSet
	Pods   []*corev1.Pod
	Failed bool
}

// Toy keeps a ReplicaSet at its number of pods and reports that number. Some
// annotations make it misbehave.
func Toy() reconcile.Controller[View] {
	return reconcile.Controller[View]{
		Name: "toy", Owns: &kinds.ReplicaSets.Kind, StatusBlind: true,
		Inputs: []reconcile.Input{
			reconcile.Own(kinds.ReplicaSets.Kind),
			{Kind: kinds.Pods.Kind, Keys: podKeys},
		},
		Writes: reconcile.Writes{
			{Verb: events.VerbCreate, Kind: kinds.Pods.Name},
			{Verb: events.VerbDelete, Kind: kinds.Pods.Name},
			{Verb: events.VerbUpdate, Kind: kinds.ReplicaSets.Name, Subresource: "status"},
		},
		Events: reconcile.EventPromises{{Kind: kinds.ReplicaSets.Kind, On: reconcile.Itself}},
		Metrics: []reconcile.Metric{
			{Name: "asked", Sort: reconcile.Counter}, {Name: "created", Sort: reconcile.Counter},
			{Name: "notCreated", Sort: reconcile.Counter}, {Name: "wanted", Sort: reconcile.Gauge},
		},
		Observe: func(s reconcile.Snapshot, k events.Key) (View, bool) {
			set, ok := reconcile.Get(s, kinds.ReplicaSets, k.Namespace, k.Name)
			if !ok {
				return View{}, false
			}
			last, failed := s.Last(k, events.LaneWrite)
			return View{
				Set: set, Pods: reconcile.ControlledBy(s, kinds.Pods, set.UID), Failed: failed && !last.OK(),
			}, true
		},
		Decide: decide,
	}
}

func podKeys(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
	var keys []events.Key
	for _, o := range []reconcile.Object{was, now} {
		if o.None() {
			continue
		}
		if o.GetAnnotations()["toy"] == "maps-badly" {
			panic("a mapping that breaks")
		}
		if owner := metav1.GetControllerOf(o.Object); owner != nil {
			keys = append(keys, events.Key{Namespace: o.GetNamespace(), Name: owner.Name})
		}
	}
	return keys
}

func decide(v View, now time.Time) reconcile.Decision {
	switch v.Set.Annotations["toy"] {
	case "panics":
		panic("a set that breaks")
	case "lies":
		return reconcile.Do("a lie", reconcile.Delete(kinds.Deployments.Kind, v.Set))
	case "retries":
		return reconcile.Decision{Because: "not yet", Retry: true}
	case "wakes":
		return reconcile.Wake(v.Set.CreationTimestamp.Add(time.Hour), "an hour")
	}
	want, have := int(*v.Set.Spec.Replicas), len(v.Pods)
	d := reconcile.Decision{
		Because: fmt.Sprintf("%d of %d", have, want),
		Sure:    v.Set.Annotations["toy"] == "counts", StatusBlind: v.Set.Annotations["toy"] == "overlooks",
		Passing: v.Set.Annotations["toy"] == "passes", ReportFirst: v.Set.Annotations["toy"] == "says-why",
	}
	d.Figures = []reconcile.Figure{{Metric: "wanted", Value: float64(want)}, reconcile.Count("asked", 1)}
	taken := map[string]bool{}
	for _, p := range v.Pods {
		taken[p.Name] = true
	}
	for i, creates := 0, want-have; creates > 0; i++ {
		name := fmt.Sprintf("%s-%s-%d", v.Set.Name, v.Set.ResourceVersion, i)
		if taken[name] {
			continue
		}
		creates--
		create := reconcile.Create(kinds.Pods.Kind, v.Set.Namespace, name, []byte(`{}`))
		d.Commands = append(d.Commands, create)
		if v.Set.Annotations["toy"] == "announces" {
			d.Sure, d.Commands = true, append(d.Commands, reconcile.Record(events.Notice{About: reconcile.About(kinds.ReplicaSets.Kind, v.Set), Reason: "Create"}))
		}
		d.Figures = append(d.Figures, reconcile.Figure{Metric: "created", Value: 1, Of: create.Ref()}, reconcile.Figure{Metric: "notCreated", Value: 1, Of: create.Ref(), Failed: true})
		if v.Set.Annotations["toy"] == "times" {
			d.Figures = append(d.Figures, reconcile.Figure{Metric: "took", Of: create.Ref(), Took: true}, reconcile.Figure{Metric: "failed after", Of: create.Ref(), Took: true, Failed: true})
		}
	}
	for i := want; i < have; i++ {
		d.Commands = append(d.Commands, reconcile.Delete(kinds.Pods.Kind, v.Pods[i]))
	}
	if int(v.Set.Status.Replicas) != have {
		set := v.Set.DeepCopy()
		set.Status.Replicas = int32(have)
		d.Commands = append(d.Commands, reconcile.UpdateStatus(kinds.ReplicaSets.Kind, set))
	}
	return d
}

// Set is a ReplicaSet of the namespace default; annotation makes [Toy] misbehave.
func Set(name string, version int, replicas, status int32, annotation string) *appsv1.ReplicaSet {
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name),
		ResourceVersion: fmt.Sprint(version), Generation: int64(version),
	}}
	set.Spec.Replicas, set.Status.Replicas = &replicas, status
	if annotation != "" {
		set.Annotations = map[string]string{"toy": annotation}
	}
	set.CreationTimestamp = metav1.NewTime(Epoch)
	return set
}

// Pod is a pod of the namespace default. The ReplicaSet owner controls it, unless that is empty.
func Pod(name, owner string, version int) *corev1.Pod {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, UID: types.UID("uid-" + name), ResourceVersion: fmt.Sprint(version),
	}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID("uid-" + owner), Controller: &yes,
		}}
	}
	return p
}

// Epoch is the moment of all messages.
var Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Delta is an object's message as the log has it.
func Delta(kind kinds.Kind, op events.Op, obj Object, sequence uint64) events.Message {
	body, err := kinds.Encode(kind, obj)
	if err != nil {
		panic(err)
	}
	ref := events.Ref{Kind: kind.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	m := subject.Message(events.Delta{
		Kind: kind.Name, Ref: ref, Op: op, UID: obj.GetUID(), ResourceVersion: obj.GetResourceVersion(),
		At: Epoch, ContentType: kinds.Protobuf, Form: kinds.Full, Body: body,
	})
	m.Sequence = sequence
	return m
}

// Mark is a message of a kind's log that says that everything up to a version has been recorded.
func Mark(kind kinds.Kind, version string, sequence uint64) events.Message {
	m := subject.Message(events.Delta{Kind: kind.Name, Op: events.Mark, ResourceVersion: version, At: Epoch})
	m.Sequence = sequence
	return m
}

// PodRef names a pod of the namespace default.
func PodRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: "default", Name: name}
}

// Counted is a message with the census of some others, which must be messages of pods.
func Counted(m events.Message, pods ...events.Message) events.Message {
	var tally events.Tally
	for _, p := range pods {
		ref, err := subject.ParseDelta(p.Subject)
		if err != nil {
			panic(err)
		}
		d, err := events.DecodeDelta(ref, p)
		if err != nil {
			panic(err)
		}
		tally.Fold(d)
	}
	m.Header = maps.Clone(m.Header)
	m.Header[events.HeaderCensus] = []string{tally.Census().String()}
	return events.Seal(m)
}

// Changed is a message with another delta.
func Changed(t *testing.T, m events.Message, change func(*events.Delta)) events.Message {
	t.Helper()
	ref, err := subject.ParseDelta(m.Subject)
	if err != nil {
		t.Fatal(err)
	}
	d, err := events.DecodeDelta(ref, m)
	if err != nil {
		t.Fatal(err)
	}
	change(&d)
	again := subject.Message(d)
	again.Sequence = m.Sequence
	return again
}

// Spread is a controller for which a change of a set asks for a turn of each pod that the set
// controls, as for the garbage collector.
func Spread() reconcile.Controller[bool] {
	return reconcile.Controller[bool]{
		Name: "toy", Inputs: []reconcile.Input{{Every: true, Keys: func(s reconcile.Snapshot, was, _ reconcile.Object) (keys []events.Key) {
			if was.None() {
				return nil
			}
			for _, pod := range s.ControlledBy(kinds.Pods.Name, was.GetUID()) {
				keys = append(keys, events.Key{Kind: kinds.Pods.Name, Namespace: pod.GetNamespace(), Name: pod.GetName()})
			}
			return keys
		}}},
	}
}

// WithCensus adds to every delta of a log the census at its sequence.
func WithCensus(t *testing.T, log ...events.Message) []events.Message {
	t.Helper()
	var tally events.Tally
	for i, m := range log {
		ref, err := subject.ParseDelta(m.Subject)
		if err != nil {
			t.Fatal(err)
		}
		d, err := events.DecodeDelta(ref, m)
		if err != nil {
			t.Fatal(err)
		}
		tally.Fold(d)
		d.Census = tally.Census()
		log[i] = subject.Message(d)
		log[i].Sequence = m.Sequence
	}
	return log
}

// Choosy is a controller that a pod's change asks for a turn only when the pod is created,
// deleted or changes its owners, as for the garbage collector. asked counts its turns.
func Choosy(asked *int) reconcile.Controller[bool] {
	return reconcile.Controller[bool]{
		Name: "toy", Owns: &kinds.Pods.Kind,
		Inputs: []reconcile.Input{
			{Kind: kinds.Pods.Kind, Keys: func(_ reconcile.Snapshot, was, now reconcile.Object) []events.Key {
				if !was.None() && !now.None() && len(was.GetOwnerReferences()) == len(now.GetOwnerReferences()) {
					return nil
				}
				if now.None() {
					now = was
				}
				return []events.Key{{Namespace: now.GetNamespace(), Name: now.GetName()}}
			}},
			{Kind: kinds.ReplicaSets.Kind},
		},
		Observe: func(reconcile.Snapshot, events.Key) (bool, bool) { *asked++; return true, true },
		Decide:  func(bool, time.Time) reconcile.Decision { return reconcile.Nothing("as it should be") },
	}
}
