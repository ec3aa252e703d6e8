package plan

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/redact"
)

const owned = `{"metadata":{"ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]},"spec":{"a":1}}`

func create(name string) events.Command {
	return events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: name, Body: json.RawMessage(owned)}
}

func deletion(name string, uid types.UID) events.Command {
	return events.Command{Verb: events.VerbDelete, Kind: "pods", Version: "v1", Namespace: "ns", Name: name, If: &events.If{UID: uid}}
}

func update(name, version, body string) events.Command {
	return events.Command{
		Verb: events.VerbUpdate, Kind: "replicasets.apps", Version: "v1", Namespace: "ns", Name: name,
		Body: json.RawMessage(body), If: &events.If{UID: "rs", ResourceVersion: version},
	}
}

func turn(commands ...events.Command) events.Turn {
	t := events.Turn{Controller: "replicaset-controller", Lane: events.LaneWrite, Key: events.Key{Namespace: "ns", Name: "web"}, Commands: slices.Clone(commands)}
	t.Pack()
	return t
}

// run answers a plan from a world until the plan is done.
func run(t rapidOrTest, p *Plan, answer func(Request) Response) []events.Result {
	t.Helper()
	for range 10_000 {
		requests := p.Next()
		for _, r := range requests {
			p.Answer(r.Command, answer(r))
		}
		if results, done := p.Results(); done {
			return results
		}
		if len(requests) == 0 {
			t.Fatalf("the plan is not done and asks nothing")
		}
	}
	t.Fatalf("the plan does not end")
	return nil
}

type rapidOrTest interface {
	Helper()
	Fatalf(format string, args ...any)
}

// A random turn, with lost answers, refusals and answers in any order, ends, gives every command
// one result, writes each object in the turn's order, and changes nothing when delivered again.
func TestAnyTurnHasOneEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, tn := drawTurn(t)
		faults := rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "faults in ten")
		p := New(tn, Options{})
		results := runShuffled(t, w, p, faults)
		if len(results) != len(tn.Commands) {
			t.Fatalf("%d results for %d commands", len(results), len(tn.Commands))
		}
		for i, r := range results {
			if r.Command != i || r.Status == "" {
				t.Fatalf("result %d is %+v", i, r)
			}
			if !r.OK() {
				t.Fatalf("command %d of a turn that can succeed is %+v", i, r)
			}
		}
		perObject := map[events.Ref]int{}
		for _, ref := range w.changes {
			perObject[ref]++
		}
		for ref, n := range perObject {
			if n > 1 {
				t.Fatalf("%v was changed %d times", ref, n)
			}
		}
		changes := len(w.changes)
		for _, r := range runShuffled(t, w, New(tn, Options{Again: true}), faults) {
			if !r.OK() {
				t.Fatalf("delivered again, a command is %+v", r)
			}
		}
		if len(w.changes) != changes {
			t.Fatalf("delivered again, the turn changed %v", w.changes[changes:])
		}
	})
}

func drawTurn(t *rapid.T) (*world, events.Turn) {
	w := newWorld()
	var commands []events.Command
	for i := range rapid.IntRange(0, 60).Draw(t, "commands") {
		name := fmt.Sprintf("p%d", i)
		ref := events.Ref{Kind: "pods", Namespace: "ns", Name: name}
		switch rapid.IntRange(0, 2).Draw(t, "verb") {
		case 0:
			commands = append(commands, create(name))
		case 1:
			w.put(ref, types.UID(name), `{"metadata":{}}`)
			commands = append(commands, deletion(name, types.UID(name)))
		default:
			ref.Kind = "replicasets.apps"
			before := w.put(ref, "rs", `{"metadata":{},"spec":{"replicas":1}}`)
			commands = append(commands, update(name, before.version, `{"metadata":{},"spec":{"replicas":2}}`))
		}
	}
	return w, turn(commands...)
}

// runShuffled answers in random order; some answers get lost, before or after the write.
func runShuffled(t *rapid.T, w *world, p *Plan, faults int) []events.Result {
	var open []Request
	busy := map[int]bool{}
	for range 10_000 {
		for _, r := range p.Next() {
			if busy[r.Command] {
				t.Fatalf("command %d has two requests under way", r.Command)
			}
			busy[r.Command] = true
			open = append(open, r)
		}
		if results, done := p.Results(); done {
			return results
		}
		if len(open) == 0 {
			t.Fatalf("the plan is not done and asks nothing")
		}
		i := rapid.IntRange(0, len(open)-1).Draw(t, "next")
		r := open[i]
		open = append(open[:i], open[i+1:]...)
		delete(busy, r.Command)
		var response Response
		switch fault := rapid.IntRange(0, 9).Draw(t, "fault"); {
		case fault >= faults:
			response = w.do(r)
		case fault == 0: // done, but the answer is lost
			w.do(r)
		case fault == 1:
			response = Response{Code: 429}
		default:
			response = Response{Code: 503}
		}
		p.Answer(r.Command, response)
	}
	t.Fatalf("the plan does not end")
	return nil
}

// A batch of n creates of which only the first k succeed costs at most 2k+1 requests.
func TestFailingCreatesCostLittle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 500).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		var commands []events.Command
		for i := range n {
			commands = append(commands, create(fmt.Sprintf("p%d", i)))
		}
		requests := 0
		results := run(t, New(turn(commands...), Options{}), func(r Request) Response {
			requests++
			if r.Command >= k {
				return Response{Code: 403, Reason: "Forbidden"}
			}
			return Response{Code: 201, Object: Object{UID: "u", ResourceVersion: "1"}}
		})
		if requests > 2*k+1 {
			t.Fatalf("%d requests for %d creates of which %d could succeed", requests, n, k)
		}
		for i, r := range results {
			if (r.Status == events.Applied) != (i < k) {
				t.Fatalf("create %d of %d good ones is %s", i, k, r.Status)
			}
		}
	})
}

func TestForbiddenDeletionsStopAfterOneWave(t *testing.T) {
	var commands []events.Command
	for i := range 500 {
		commands = append(commands, deletion(fmt.Sprintf("p%d", i), "u"))
	}
	requests := 0
	results := run(t, New(turn(commands...), Options{}), func(Request) Response {
		requests++
		return Response{Code: 403, Reason: "Forbidden"}
	})
	if requests != firstOthers {
		t.Fatalf("%d requests, want %d", requests, firstOthers)
	}
	if got := results[499].Status; got != events.Skipped {
		t.Fatalf("the last delete is %s, want skipped", got)
	}
}

func TestCommandsOnOneObjectKeepTheirOrder(t *testing.T) {
	first := update("web", "1", `{"metadata":{}}`)
	second := first
	second.Verb, second.PatchType = events.VerbPatch, types.MergePatchType
	last := first
	last.Verb = events.VerbDelete
	for _, fails := range []int{-1, 0, 1, 2} {
		var order []int
		results := run(t, New(turn(first, second, last), Options{}), func(r Request) Response {
			order = append(order, r.Command)
			if r.Command == fails {
				return Response{Code: 422, Reason: "Invalid"}
			}
			return Response{Code: 200, Object: Object{UID: "rs", ResourceVersion: "2"}}
		})
		for i, at := range order {
			if i != at {
				t.Fatalf("command %d fails: order %v", fails, order)
			}
		}
		for i, r := range results {
			switch {
			case fails >= 0 && i > fails && r.Status != events.Skipped,
				i == fails && r.Status != events.Refused,
				(fails < 0 || i < fails) && !r.OK():
				t.Fatalf("command %d fails: result %d is %+v", fails, i, r)
			}
		}
	}
}

// A turn reads the adopting owner once, as upstream does in a sync.
func TestAdoptersAreLookedAtOnce(t *testing.T) {
	var commands []events.Command
	for i := range 20 {
		c := events.Command{
			Verb: events.VerbPatch, PatchType: types.StrategicMergePatchType, Kind: "pods", Version: "v1",
			Namespace: "ns", Name: fmt.Sprintf("p%d", i), Body: json.RawMessage(`{}`),
			If: &events.If{UID: "u", Alive: &events.Alive{Kind: "replicasets.apps", Version: "v1", Namespace: "ns", Name: "web", UID: "rs"}},
		}
		commands = append(commands, c)
	}
	for _, owner := range []struct {
		response Response
		want     events.Status
	}{
		{Response{Code: 200, Object: Object{UID: "rs"}}, events.Applied},
		{Response{Code: 200, Object: Object{UID: "rs", Deleting: true}}, events.Refused},
		{Response{Code: 200, Object: Object{UID: "other"}}, events.Refused},
		{Response{Code: 404, Reason: "NotFound"}, events.Refused},
		{Response{Spent: true}, events.Failed},
	} {
		looks := 0
		results := run(t, New(turn(commands...), Options{}), func(r Request) Response {
			if r.Verb == Look {
				looks++
				return owner.response
			}
			return Response{Code: 200, Object: Object{UID: "u", ResourceVersion: "5"}}
		})
		if looks != 1 {
			t.Errorf("owner %+v: %d looks", owner.response, looks)
		}
		for _, r := range results {
			if r.Status != owner.want {
				t.Fatalf("owner %+v: %+v, want %s", owner.response, r, owner.want)
			}
		}
	}
}

func TestSwitchedOffAsksNothing(t *testing.T) {
	p := New(turn(create("a"), deletion("b", "u"), events.Command{Verb: events.VerbRecord}), Options{Off: true})
	if requests := p.Next(); len(requests) != 0 {
		t.Fatalf("asked %v", requests)
	}
	results, done := p.Results()
	if !done || results[0].Reason != "Off" || results[2].Reason != "Off" {
		t.Fatalf("done %v, results %+v", done, results)
	}
}

func TestUnsafeOrUnpromisedCommandsAreRefused(t *testing.T) {
	secret := create("s")
	secret.Kind = "secrets"
	nameless := create("")
	torn := create("t")
	torn.Body = json.RawMessage(`[]`)
	p := New(turn(secret, deletion("x", ""), nameless, torn), Options{
		Promised: func(c events.Command) bool { return c.Kind == "pods" },
	})
	results, done := p.Results()
	if !done {
		t.Fatalf("the plan wants requests: %+v", p.Next())
	}
	for i, reason := range []string{"NotPromised", "Malformed", "Malformed", "Malformed"} {
		if results[i].Status != events.Refused || results[i].Reason != reason {
			t.Errorf("command %d: %+v, want %s", i, results[i], reason)
		}
	}
}

// TestWhatWasHiddenIsNotWritten: a create with a shared body, a patch, or bytes with the marker of
// hidden values are refused.
func TestWhatWasHiddenIsNotWritten(t *testing.T) {
	config := &corev1.ConfigMap{Data: map[string]string{"a": "secret"}, BinaryData: map[string][]byte{"b": []byte("secret")}}
	redact.MustParsePath(".data").Hide(config)
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	hidden := create("h")
	hidden.Body = text
	redact.MustParsePath(".binaryData").Hide(config)
	bytes := create("b")
	bytes.Body = json.RawMessage(`{"binaryData":{"b":"` + base64.StdEncoding.EncodeToString(config.BinaryData["b"]) + `"}}`)
	patched := deletion("p", "u")
	patched.Verb, patched.PatchType = events.VerbPatch, types.MergePatchType
	patched.Body = json.RawMessage(`{"metadata":{"annotations":{"a":"` + redact.Marker + `"}}}`)
	all := turn(hidden, hidden, bytes, patched, create("fine"))
	all.Pack()
	p := New(all, Options{})
	for range 4 {
		for _, r := range p.Next() {
			if r.Command != 4 {
				t.Errorf("command %d is carried out", r.Command)
			}
			p.Answer(r.Command, Response{Code: 201, Object: Object{UID: "n", ResourceVersion: "1"}})
		}
	}
	results, done := p.Results()
	if !done {
		t.Fatal("the plan is not done")
	}
	for i, r := range results {
		if refused := r.Reason == Redacted; refused != (i != 4) {
			t.Errorf("command %d: %+v", i, r)
		}
	}
}

func TestOwnersThatMustBeGone(t *testing.T) {
	c := deletion("p", "u")
	c.If.ResourceVersion = "7"
	c.If.Absent = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "a", UID: "a"}, {Kind: "ReplicaSet", Name: "b", UID: "b"}}
	gone := Response{Code: 404, Reason: "NotFound"}
	for _, story := range []struct {
		name   string
		b      Response
		status events.Status
		reason string
	}{
		{"both gone", gone, events.Applied, ""},
		{"another of that name", Response{Code: 200, Object: Object{UID: "c"}}, events.Applied, ""},
		{"one exists", Response{Code: 200, Object: Object{UID: "b"}}, events.Refused, "OwnerAlive"},
		{"unknown kind", Response{Reason: ReasonNoMatch, Message: "Foo.example.com"}, events.Refused, ReasonNoMatch},
		{"no way to look", Response{Code: 403, Reason: "Forbidden"}, events.Refused, "Forbidden"},
	} {
		wrote := 0
		results := run(t, New(turn(c), Options{}), func(r Request) Response {
			switch {
			case r.Owner != nil && r.Owner.UID == "a":
				return gone
			case r.Owner != nil:
				return story.b
			default:
				wrote++
				return Response{Code: 200}
			}
		})
		if results[0].Status != story.status || results[0].Reason != story.reason {
			t.Errorf("%s: the result is %+v, want %s because of %q", story.name, results[0], story.status, story.reason)
		}
		if (wrote > 0) != (story.status == events.Applied) {
			t.Errorf("%s: %d deletes were made", story.name, wrote)
		}
	}
}

// An owner without a uid matches any object of its name, for a change as for a delete.
func TestAnOwnerOfAnyUIDMustBeGone(t *testing.T) {
	failed := events.Command{
		Verb: events.VerbPatch, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Subresource: "status",
		PatchType: types.StrategicMergePatchType, Body: json.RawMessage(`{"status":{"phase":"Failed"}}`), If: &events.If{UID: "u"},
	}
	for _, c := range []events.Command{deletion("p", "u"), failed} {
		c.If.Absent = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n1"}}
		for _, there := range []bool{true, false} {
			wrote := false
			results := run(t, New(turn(c), Options{}), func(r Request) Response {
				switch {
				case r.Owner == nil:
					wrote = true
				case there:
					return Response{Code: 200, Object: Object{UID: "any"}}
				default:
					return Response{Code: 404, Reason: "NotFound"}
				}
				return Response{Code: 200, Object: Object{UID: "u"}}
			})
			if wrote == there || (results[0].Status == events.Applied) == there {
				t.Errorf("with the node there: %v, the command %s has the result %s", there, c.Verb, results[0].Status)
			}
		}
	}
}

// A redelivered turn that fails midway must still report what its first delivery did.
func TestWhatWasDoneBeforeIsFoundThoughTheRestFails(t *testing.T) {
	body := json.RawMessage(`{"metadata":{"ownerReferences":[{"uid":"rs","controller":true}]},"spec":{}}`)
	create := func(name string) events.Command {
		return events.Command{Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "ns", Name: name, Body: body}
	}
	stale := Refusal{Reason: "Stale", Message: "the object has a newer generation"}
	for name, o := range map[string]Options{"refused": {Again: true, Refused: stale}, "first one fails": {Again: true}} {
		t.Run(name, func(t *testing.T) {
			results := run(t, New(turn(create("a"), create("b"), create("c")), o), func(r Request) Response {
				if r.Verb.Writes() {
					return Response{Code: 403, Reason: "Forbidden"}
				}
				if r.Name != "b" {
					return Response{Code: 404, Reason: "NotFound"}
				}
				return Response{Code: 200, Body: body, Object: Object{UID: "b", ResourceVersion: "7"}}
			})
			if results[1].Status != events.Unchanged || results[1].Version != "7" {
				t.Errorf("the create of the first delivery is %+v", results[1])
			}
			if results[0].Status != events.Refused || results[2].OK() {
				t.Errorf("the others are %+v and %+v", results[0], results[2])
			}
		})
	}
}
