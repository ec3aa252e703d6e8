package plan

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
)

func TestWhatMakesATurnStale(t *testing.T) {
	seen := events.Turn{Lane: events.LaneWrite, Kind: "replicasets.apps", UID: "rs", ResourceVersion: "5", Generation: 2}
	is := func(change func(*events.Delta)) events.Delta {
		d := events.Delta{Op: events.Is, UID: "rs", ResourceVersion: "5", Generation: 2}
		if change != nil {
			change(&d)
		}
		return d
	}
	report := seen
	report.Lane = events.LaneStatus
	for _, c := range []struct {
		what  string
		turn  events.Turn
		live  events.Delta
		known bool
		stale bool
	}{
		{"as it was seen", seen, is(nil), true, false},
		{"a newer status", seen, is(func(d *events.Delta) { d.ResourceVersion = "9" }), true, false},
		{"the next generation", seen, is(func(d *events.Delta) { d.Generation = 3 }), true, true},
		{"gone", seen, is(func(d *events.Delta) { d.Op = events.Gone }), true, true},
		{"unknown", seen, events.Delta{}, false, true},
		{"its namesake", seen, is(func(d *events.Delta) { d.UID = "other" }), true, true},
		{"its namesake, of the first generation", seen, is(func(d *events.Delta) { d.UID, d.Generation = "other", 1 }), true, true},
		{"on its way out, of a kind without generations", func() events.Turn { s := seen; s.Generation = 0; return s }(),
			is(func(d *events.Delta) { d.Deleting, d.Generation, d.ResourceVersion = true, 0, "6" }), true, true},
		{"on its way out, as it was seen", func() events.Turn { s := seen; s.Generation = 0; return s }(),
			is(func(d *events.Delta) { d.Deleting, d.Generation = true, 0 }), true, false},
		{"changed, of a kind without generations", func() events.Turn { s := seen; s.Generation = 0; return s }(),
			is(func(d *events.Delta) { d.Generation, d.ResourceVersion = 0, "6" }), true, false},
		{"on its way out, of a kind with generations", seen, is(func(d *events.Delta) { d.Deleting, d.ResourceVersion = true, "6" }), true, false},
		{"a report", report, is(func(d *events.Delta) { d.Generation = 3 }), true, false},
		{"no object", events.Turn{Lane: events.LaneWrite}, events.Delta{}, false, false},
	} {
		if got := Stale(c.turn, c.live, c.known); (got != Refusal{}) != c.stale {
			t.Errorf("%s: %+v, want stale %t", c.what, got, c.stale)
		}
	}
}

func TestWhatMakesATurnTooOld(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	turn := events.Turn{Now: now.Add(-time.Minute)}
	if got := Aged(turn, now, time.Minute); got != (Refusal{}) {
		t.Errorf("at its limit: %+v", got)
	}
	if got := Aged(turn, now.Add(1), time.Minute); got.Reason != "TooOld" {
		t.Errorf("a turn beyond the age limit is refused with %+v, want TooOld", got)
	}
	if got := Aged(turn, now.Add(time.Hour), 0); got != (Refusal{}) {
		t.Errorf("a turn without an age limit is refused with %+v, want no refusal", got)
	}
	turn.Commands = []events.Command{create("a"), create("b")}
	results := Refusal{Reason: "TooOld", Message: "m"}.Refuse(turn)
	if len(results) != 2 || results[1].Command != 1 || results[1].Ref.Name != "b" || results[1].Status != events.Refused || results[1].Reason != "TooOld" || results[1].Message != "m" {
		t.Errorf("the refused commands have the results %+v", results)
	}
}

func TestATurnIsOverWhenAnEpochIs(t *testing.T) {
	turn := events.Turn{Epochs: events.Epochs{"pods": 1, "replicasets.apps": 1}}
	for _, c := range []struct {
		what string
		now  events.Epochs
		all  uint64
		over bool
	}{
		{"the same", events.Epochs{"pods": 1, "replicasets.apps": 1}, 1, false},
		{"one is later", events.Epochs{"pods": 1, "replicasets.apps": 2}, 2, true},
		{"one is later, and has been for long", events.Epochs{"pods": 1, "replicasets.apps": 2}, 1, true},
		{"not known", nil, 0, false},
		{"a kind in its first epoch, as when it was decided", events.Epochs{"nodes": 0}, 1, false},
		{"a kind that has been told anew since", events.Epochs{"nodes": 7}, 7, true},
		{"the storage has gone back, and nothing has been told anew", events.Epochs{"pods": 1, "replicasets.apps": 1}, 2, true},
	} {
		if got := Over(turn, c.now, c.all); (got.Reason == "Stale") != c.over {
			t.Errorf("%s: the turn is refused with %+v, want it stale: %t", c.what, got, c.over)
		}
	}
}

// An owner in "leaving" must be gone, or be waiting for its dependents to go first. An owner that
// exists otherwise, or that is being deleted in the background, keeps its dependents.
func TestOwnersThatMustBeLeaving(t *testing.T) {
	owner := metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "rs"}
	for what, c := range map[string]struct {
		answer Response
		goes   bool
	}{
		"lives":             {Response{Code: 200, Object: Object{UID: "rs"}}, false},
		"is being deleted":  {Response{Code: 200, Object: Object{UID: "rs", Deleting: true}}, false},
		"waits":             {Response{Code: 200, Object: Object{UID: "rs", Deleting: true, Waiting: true}}, true},
		"is gone":           {nothing, true},
		"is another by now": {Response{Code: 200, Object: Object{UID: "other"}}, true},
	} {
		command := deletion("p", "uid")
		command.If.Leaving = []metav1.OwnerReference{owner}
		p := New(turn(command), Options{})
		p.Next()
		p.Answer(0, c.answer)
		if requests := p.Next(); (len(requests) == 1 && requests[0].Verb == Delete) != c.goes {
			t.Errorf("an owner that %s: next is %+v", what, requests)
		}
	}
}

// The first refused create ends its batch, whatever the reason.
func TestAnyRefusalEndsABatchOfCreates(t *testing.T) {
	for _, code := range []int{403, 422, 400, 413} {
		var commands []events.Command
		for i := range 50 {
			commands = append(commands, create(fmt.Sprint("p", i)))
		}
		p := New(turn(commands...), Options{})
		if first := p.Next(); len(first) != 1 {
			t.Fatalf("%d creates at first", len(first))
		}
		p.Answer(0, Response{Code: code, Reason: "No"})
		results, done := p.Results()
		if !done || results[0].Status != events.Refused || results[49].Status != events.Skipped {
			t.Errorf("after code %d done is %t and %d requests are next, want the rest skipped", code, done, len(p.Next()))
		}
	}
}

// Waves of successful creates grow.
func TestCreatesSpeedUp(t *testing.T) {
	var commands []events.Command
	for i := range 500 {
		commands = append(commands, create(fmt.Sprint("p", i)))
	}
	p := New(turn(commands...), Options{})
	waves := 0
	for requests := p.Next(); len(requests) > 0; requests = p.Next() {
		if want := 1 << waves; len(requests) != min(want, 500-want+1) {
			t.Fatalf("%d creates in wave %d", len(requests), waves)
		}
		waves++
		for _, r := range requests {
			p.Answer(r.Command, live("uid", "9", ""))
		}
	}
	if waves != 9 {
		t.Errorf("500 creates in %d waves, want 9", waves)
	}
}

// A name that derives from a short hash may collide with another's. Only the same template and
// data identify the intended child.
func TestWhatWasMeantToBeCreated(t *testing.T) {
	body := func(owner, image, data string) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"metadata":{"ownerReferences":[{"uid":%q,"controller":true}]},
			"spec":{"replicas":3,"template":{"spec":{"containers":[{"image":%q}]}}},"data":{"ca":%q}}`, owner, image, data))
	}
	meant := body("d", "web:1", "x")
	for what, c := range map[string]struct {
		there json.RawMessage
		same  bool
	}{
		"the same":                 {meant, true},
		"another owner's":          {body("e", "web:1", "x"), false},
		"of another template":      {body("d", "web:2", "x"), false},
		"with other data":          {body("d", "web:1", "y"), false},
		"scaled by now":            {json.RawMessage(`{"metadata":{"ownerReferences":[{"uid":"d","controller":true}]},"spec":{"replicas":5,"template":{"spec":{"containers":[{"image":"web:1"}]}}},"data":{"ca":"x"}}`), true},
		"an orphan":                {json.RawMessage(`{"metadata":{},"spec":{"template":{"spec":{"containers":[{"image":"web:1"}]}}},"data":{"ca":"x"}}`), false},
		"nothing that can be read": {json.RawMessage(`[]`), false},
	} {
		if got := created(meant, c.there); got != c.same {
			t.Errorf("%s: %t, want %t", what, got, c.same)
		}
	}
}

// A turn without an object was decided when there was none.
func TestATurnWithoutAnObjectIsStaleWhereThereIsOne(t *testing.T) {
	turn := events.Turn{Lane: events.LaneWrite, Key: events.Key{Namespace: "ns", Name: "web"}}
	if Stale(turn, events.Delta{Op: events.Is, UID: "u"}, true) == (Refusal{}) {
		t.Error("there is one, and the turn is carried out")
	}
	for _, live := range []struct {
		delta events.Delta
		known bool
	}{{events.Delta{Op: events.Gone, UID: "u"}, true}, {events.Delta{}, false}} {
		if refusal := Stale(turn, live.delta, live.known); refusal != (Refusal{}) {
			t.Errorf("there is none: %+v", refusal)
		}
	}
}
