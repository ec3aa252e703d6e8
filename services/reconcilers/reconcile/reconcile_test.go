package reconcile

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

var pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
	Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7",
	OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "rs"}},
}}

// What a command may do without being told is what it may do at the wrong time.
func TestEveryCommandCarriesItsConditions(t *testing.T) {
	owner := metav1.OwnerReference{Kind: "Node", Name: "n", UID: "node"}
	for what, c := range map[string]struct {
		command events.Command
		want    events.If
	}{
		"update": {Update(kinds.Pods.Kind, pod), events.If{UID: "u", ResourceVersion: "7"}},
		"status": {UpdateStatus(kinds.Pods.Kind, pod), events.If{UID: "u", ResourceVersion: "7"}},
		"patch":  {Patch(kinds.Pods.Kind, pod, types.MergePatchType, nil), events.If{UID: "u"}},
		"delete": {Delete(kinds.Pods.Kind, pod), events.If{UID: "u"}},
		"delete, with everything": {
			Delete(kinds.Pods.Kind, pod, IfUnchanged(pod), IfSameOwners(pod), IfAbsent(owner), IfLeaving(owner), IfAlive(kinds.Pods.Kind, pod), IfUnused(), IfUnshared()),
			events.If{
				Unused: true, Unshared: true, UID: "u", ResourceVersion: "7", SameOwners: pod.OwnerReferences,
				Absent: []metav1.OwnerReference{owner}, Leaving: []metav1.OwnerReference{owner},
				Alive: &events.Alive{Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", UID: "u"},
			},
		},
	} {
		if got, want := Body(c.command.If), Body(c.want); string(got) != string(want) {
			t.Errorf("%s: if %s, want %s", what, got, want)
		}
		if c.command.Ref() != (events.Ref{Kind: "pods", Namespace: "ns", Name: "p"}) || c.command.Version != "v1" {
			t.Errorf("%s is about %v in %s", what, c.command.Ref(), c.command.Version)
		}
	}
	if c := Create(kinds.Pods.Kind, "ns", "p", json.RawMessage(`{}`)); c.If != nil || c.Verb != events.VerbCreate {
		t.Errorf("a create is %+v", c)
	}
}

func TestAPromiseIsKeptToTheLetter(t *testing.T) {
	writes := Writes{{Verb: events.VerbDelete, Kind: "pods"}, {Verb: events.VerbUpdate, Kind: "pods", Subresource: "status"}, {Verb: events.VerbPatch, Any: true}}
	for _, c := range []struct {
		command events.Command
		allowed bool
	}{
		{events.Command{Verb: events.VerbDelete, Kind: "pods"}, true},
		{events.Command{Verb: events.VerbDelete, Kind: "nodes"}, false},
		{events.Command{Verb: events.VerbCreate, Kind: "pods"}, false},
		{events.Command{Verb: events.VerbUpdate, Kind: "pods", Subresource: "status"}, true},
		{events.Command{Verb: events.VerbUpdate, Kind: "pods"}, false},
		{events.Command{Verb: events.VerbPatch, Kind: "nodes"}, true},
		{events.Command{Verb: events.VerbPatch, Kind: "nodes", Subresource: "status"}, false},
		{events.Command{Verb: events.VerbRecord}, true},
	} {
		if got := writes.Allows(c.command); got != c.allowed {
			t.Errorf("%s %s/%s: %t, want %t", c.command.Verb, c.command.Kind, c.command.Subresource, got, c.allowed)
		}
	}
}

func TestJoinedDecisionsKeepTheEarliestWakeAndEveryCommand(t *testing.T) {
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	early, late := Wake(at, "soon"), Wake(at.Add(time.Hour), "later")
	write, status := Do("write", Delete(kinds.Pods.Kind, pod)), Do("status", UpdateStatus(kinds.Pods.Kind, pod))
	for _, order := range [][]Decision{{write, late, early, status}, {write, early, late, status}} {
		d := Join(order...)
		if !d.WakeAt.Equal(at) || len(d.Commands) != 2 || d.Retry {
			t.Errorf("joined: %+v", d)
		}
		if writes, reports := d.In(events.LaneWrite).Commands, d.In(events.LaneStatus).Commands; len(writes) != 1 || writes[0].Verb != events.VerbDelete || len(reports) != 1 {
			t.Errorf("writes %+v, reports %+v", writes, reports)
		}
	}
	passing := status
	passing.Passing = true
	if d := Join(write, passing, early); !d.Passing {
		t.Error("the only report is passing, and all of it is not")
	}
	if d := Join(passing, status); d.Passing {
		t.Error("one report is not passing, and all of it is")
	}
	first := status
	first.ReportFirst = true
	if d := Join(write, first); !d.ReportFirst || Join(write, status).ReportFirst {
		t.Error("a decision reports first if one of its parts does, and else not")
	}
	if d := Join(Nothing("first"), Nothing("second")); d.Because != "first" {
		t.Errorf("because %q", d.Because)
	}
	if d := Join(Nothing("idle"), late, Decision{Because: "again", Retry: true}); d.Because != "later; again" || !d.Retry {
		t.Errorf("because %q, retry %t", d.Because, d.Retry)
	}
}

// A decision can be encoded however far away an object's times are, and an overdue wake stays
// overdue.
func TestAWakeCanBeWritten(t *testing.T) {
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for wanted, want := range map[time.Time]time.Time{
		{}:                 {},
		now.Add(time.Hour): now.Add(time.Hour),
		time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC):                     LatestWake,
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600)): LatestWake,
		time.Date(292_277_026_596, 12, 4, 15, 30, 7, 0, time.UTC):         LatestWake,
		time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC):                         now,
		time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)):          now,
		now.Add(-time.Hour): now.Add(-time.Hour),
	} {
		c := Controller[struct{}]{
			Name:    "c",
			Observe: func(Snapshot, events.Key) (struct{}, bool) { return struct{}{}, true },
			Decide:  func(struct{}, time.Time) Decision { return Wake(wanted, "later") },
		}
		asked, _ := c.Ask(nil, events.Key{}, now)
		judged, err := c.Judge(json.RawMessage(`{}`), now)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range []Decision{asked, judged} {
			if !d.WakeAt.Equal(want) {
				t.Errorf("a wake at %v is at %v, want %v", wanted, d.WakeAt, want)
			}
			if _, err := events.EncodeJSON(events.Turn{WakeAt: &d.WakeAt}, events.Trace{}); err != nil {
				t.Errorf("a wake at %v: %v", wanted, err)
			}
		}
	}
}

// A promise to add allows no kind of removal that patches have.
func TestWhatOnlyAddsTakesNothingAway(t *testing.T) {
	d := Controller[struct{}]{Name: "c", Owns: &kinds.Pods.Kind, Writes: Writes{
		{Verb: events.VerbPatch, Kind: "pods", Fields: []string{".metadata.finalizers", ".metadata.labels"}, Adds: true},
	}}.Describe()
	for body, fits := range map[string]bool{
		`{"metadata":{"finalizers":["a"],"labels":{"a":"b"}}}`:                      true,
		`{"metadata":{"finalizers":null}}`:                                          false,
		`{"metadata":{"finalizers":[null]}}`:                                        false,
		`{"metadata":{"labels":{"a":null}}}`:                                        false,
		`{"metadata":{"labels":{"$patch":"replace"}}}`:                              false,
		`{"metadata":{"$deleteFromPrimitiveList/finalizers":["a"]}}`:                false,
		`{"metadata":{"finalizers":["a"],"$setElementOrder/finalizers":["a","b"]}}`: false,
		`{"metadata":{"finalizers":[{"$patch":"delete"}]}}`:                         false,
	} {
		c := Patch(kinds.Pods.Kind, pod, types.StrategicMergePatchType, json.RawMessage(body))
		err := d.Fits(events.Turn{Controller: "c", Key: events.Key{Namespace: "ns", Name: "p"}}, func() metav1.Object { return pod }, nil)(c)
		if (err == nil) != fits {
			t.Errorf("%s fits %t, %v", body, !fits, err)
		}
	}
}

// A command that may be within one promise is superseded, wherever that promise stands among
// others of its verb and kind.
func TestASupersededCommandIsSoByAnyOfSeveralPromises(t *testing.T) {
	stale := Write{Verb: events.VerbUpdate, Kind: "pods", Changes: []string{".metadata.labels"}}
	beyond := Write{Verb: events.VerbUpdate, Kind: "pods", On: Itself, Changes: []string{".metadata.labels"}}
	for what, writes := range map[string]Writes{"alone": {stale}, "first": {stale, beyond}, "last": {beyond, stale}} {
		d := Controller[struct{}]{Name: "c", Owns: &kinds.Nodes.Kind, Writes: writes}.Describe()
		unknown := func(events.Ref) metav1.Object { return nil }
		fits := d.Fits(events.Turn{Controller: "c", Key: events.Key{Name: "n"}}, func() metav1.Object { return nil }, unknown)
		if err := fits(Update(kinds.Pods.Kind, pod)); !errors.Is(err, events.ErrSuperseded) {
			t.Errorf("the promise is %s: %v", what, err)
		}
	}
	d := Controller[struct{}]{Name: "c", Owns: &kinds.Nodes.Kind, Writes: Writes{beyond, beyond}}.Describe()
	if err := d.Fits(events.Turn{Controller: "c"}, func() metav1.Object { return nil }, nil)(Update(kinds.Pods.Kind, pod)); err == nil || errors.Is(err, events.ErrSuperseded) {
		t.Errorf("a command that no promise may hold gives %v", err)
	}
}
