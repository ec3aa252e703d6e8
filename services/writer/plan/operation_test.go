package plan

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

var (
	taken    = Response{Code: 409, Reason: "AlreadyExists"}
	moved    = Response{Code: 409, Reason: "Conflict"}
	nothing  = Response{Code: 404, Reason: "NotFound"}
	noAnswer = Response{}
)

func live(uid types.UID, version, body string) Response {
	r := Response{Code: 200, Body: json.RawMessage(body)}
	r.Object.UID, r.Object.ResourceVersion = uid, version
	return r
}

// One command, the answers that it gets, and its result.
func TestWhatAnswersMean(t *testing.T) {
	const other = `{"metadata":{"ownerReferences":[{"uid":"else","controller":true}]}}`
	leaving := live("uid", "9", owned)
	leaving.Object.Deleting = true
	zero := int64(0)
	versioned := deletion("p", "uid")
	versioned.If.ResourceVersion = "1"
	versioned.If.SameOwners = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", UID: "rs"}}
	sameOwners := Response{Code: 200, Object: Object{UID: "uid", ResourceVersion: "9", Owners: versioned.If.SameOwners}}
	put := update("web", "1", `{"metadata":{"labels":{"a":"b"}},"spec":{"replicas":2}}`)
	put.If.UID = "uid"
	freed := events.Command{
		Verb: events.VerbPatch, Kind: "replicasets.apps", Version: "v1", Namespace: "ns", Name: "web",
		PatchType: types.MergePatchType, If: &events.If{UID: "uid", ResourceVersion: "1"},
		Body: json.RawMessage(`{"metadata":{"uid":"uid","resourceVersion":"1","finalizers":["b"],"ownerReferences":null}}`),
	}
	ownerless := create("default")
	ownerless.Body = json.RawMessage(`{"metadata":{}}`)

	forbidden := Response{Code: 403, Reason: "Forbidden"}
	strategic := freed
	strategic.PatchType = types.StrategicMergePatchType
	reliant := freed
	reliant.If = &events.If{UID: "uid", Alive: &events.Alive{Kind: "replicasets.apps", Version: "v1", Namespace: "ns", Name: "web", UID: "rs"}}
	between := reliant
	between.If = &events.If{UID: "uid", Alive: reliant.If.Alive, Absent: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "a", UID: "a"}}}
	freeOnly := events.Command{
		Verb: events.VerbPatch, Kind: kinds.ServiceCIDRs.Name, Version: "v1", Name: "a", PatchType: types.StrategicMergePatchType,
		If: &events.If{UID: "uid", Unused: true}, Body: json.RawMessage(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["f"]}}`),
	}
	free, needed, unread := live("uid", "9", `{}`), live("uid", "9", `{"names":["10.0.0.7"],"count":1}`), live("uid", "9", `null`)
	unique := events.Command{
		Verb: events.VerbPatch, Kind: kinds.Nodes.Name, Version: "v1", Name: "a", PatchType: types.StrategicMergePatchType,
		If: &events.If{UID: "uid", Unshared: true}, Body: json.RawMessage(`{"spec":{"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.1.0/24","fd00::/64"]}}`),
	}
	ranged := func(body string) Response { return Response{Code: 200, Body: json.RawMessage(body)} }
	owner, aliveOwner := Response{Code: 200, Object: Object{UID: "rs"}}, Response{Code: 200, Object: Object{UID: "a"}}
	atAnyVersion := put
	atAnyVersion.If = nil
	bareVersion := deletion("p", "uid")
	bareVersion.If.ResourceVersion = "1"
	graceful := deletion("p", "uid")
	graceful.GraceSeconds = new(int64(30))
	within := func(seconds int64) Response {
		r := leaving
		r.Object.Grace = &seconds
		return r
	}

	for _, story := range []struct {
		name    string
		command events.Command
		again   bool
		answers []Response
		want    events.Result
	}{
		{"name free again", create("p"), false, []Response{taken, nothing}, events.Result{Status: events.Conflict, Code: 409, Reason: "AlreadyExists"}},
		{"name taken, by whom may not be seen", create("p"), false, []Response{taken, forbidden}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden"}},
		{"a create that contends", create("p"), false, []Response{moved}, events.Result{Status: events.Conflict, Code: 409, Reason: "Conflict"}},
		{"updated at any version", atAnyVersion, false, []Response{live("uid", "9", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"patched before, another one", freed, true, []Response{moved, live("other", "9", `{"metadata":{"finalizers":["b"]}}`)}, events.Result{Status: events.Conflict, UID: "other", Version: "9", Code: 409, Reason: "Conflict"}},
		{"patched before, in a way that is not compared", strategic, true, []Response{moved, live("uid", "9", `{"metadata":{"finalizers":["b"]}}`)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},

		{"what it relies on leaves", reliant, false, []Response{{Code: 200, Object: Object{UID: "rs", Deleting: true}}}, events.Result{Status: events.Refused, Reason: "OwnerGone"}},
		{"what it relies on is gone", reliant, false, []Response{nothing}, events.Result{Status: events.Refused, Reason: "OwnerGone"}},
		{"what it relies on may not be seen", reliant, false, []Response{forbidden}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden"}},
		{"what it relies on lives, and what must be gone", between, false, []Response{owner, aliveOwner}, events.Result{Status: events.Refused, Reason: "OwnerAlive"}},
		{"what it relies on lives, and the other one is gone", between, false, []Response{owner, nothing, live("uid", "9", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},

		{"nothing needs it", freeOnly, false, []Response{free, live("uid", "10", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "10"}},
		{"nothing needs it, and it comes again", freeOnly, true, []Response{free, live("uid", "10", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "10"}},
		{"something needs it", freeOnly, false, []Response{needed}, events.Result{Status: events.Refused, Reason: "InUse", Message: "needed by 10.0.0.7"}},
		{"something needs it by the time that it is found out", freeOnly, false, []Response{{Code: 500}, needed}, events.Result{Status: events.Refused, Reason: "InUse"}},
		{"what needs it may not be seen", freeOnly, false, []Response{forbidden}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden"}},
		{"what needs it is not said", freeOnly, false, []Response{unread}, events.Result{Status: events.Refused, Reason: "InUse"}},
		{"nothing needs another of its name", freeOnly, false, []Response{live("other", "9", `{}`)}, events.Result{Status: events.Absent, UID: "other", Version: "9", Code: 200}},
		{"nothing needs what is gone", freeOnly, false, []Response{nothing}, events.Result{Status: events.Absent, Code: 404, Reason: "NotFound"}},

		{"no other shares it", unique, false, []Response{ranged(`[{"name":"b","ranges":["10.0.2.0/24"]}]`), live("uid", "10", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "10"}},
		{"there are no others", unique, false, []Response{ranged(`[]`), live("uid", "10", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "10"}},
		{"it has them itself", unique, true, []Response{ranged(`[{"name":"a","uid":"uid","ranges":["10.0.1.0/24"]}]`), live("uid", "10", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "10"}},
		{"another has it", unique, false, []Response{ranged(`[{"name":"b","ranges":["fd00::/64"]}]`)}, events.Result{Status: events.Refused, Reason: ReasonShared, Message: "b has fd00::/64"}},
		{"another has a part of it", unique, false, []Response{ranged(`[{"name":"c","ranges":["x"]},{"name":"b","ranges":["10.0.1.128/25"]}]`)}, events.Result{Status: events.Refused, Reason: ReasonShared}},
		{"another has more", unique, true, []Response{{Code: 500}, ranged(`[{"name":"b","ranges":["10.0.0.0/8"]}]`)}, events.Result{Status: events.Refused, Reason: ReasonShared}},
		{"who shares it may not be seen", unique, false, []Response{forbidden}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden"}},
		{"who shares it is not said", unique, false, []Response{ranged(`null`)}, events.Result{Status: events.Refused, Reason: ReasonShared}},
		{"who shares it cannot be read", unique, false, []Response{ranged(`{}`)}, events.Result{Status: events.Refused, Reason: ReasonShared}},

		{"redelivered, gone", deletion("p", "uid"), true, []Response{nothing}, events.Result{Status: events.Unchanged, UID: "uid", Removed: true}},
		{"redelivered, another of that name", deletion("p", "uid"), true, []Response{live("other", "9", "")}, events.Result{Status: events.Unchanged, UID: "uid", Removed: true}},
		{"redelivered, and may not look", deletion("p", "uid"), true, []Response{forbidden, {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"redelivered, leaves in its time", graceful, true, []Response{within(30)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"redelivered, leaves sooner", graceful, true, []Response{within(10)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"redelivered, leaves later", graceful, true, []Response{within(60), {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"redelivered, leaves at no known time", graceful, true, []Response{leaving, {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"contended, on its way", deletion("p", "uid"), false, []Response{moved, leaving}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"contended, there", deletion("p", "uid"), false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"contended, may not be seen", deletion("p", "uid"), false, []Response{moved, forbidden}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden"}},
		{"another version, on its way", bareVersion, false, []Response{moved, leaving}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"another version, without owners", bareVersion, false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"created", create("p"), false, []Response{live("uid", "9", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"created before", create("p"), true, []Response{taken, live("uid", "9", owned)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"created, reply lost", create("p"), false, []Response{noAnswer, taken, live("uid", "9", owned)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"name taken", create("p"), false, []Response{taken, live("uid", "9", other)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "AlreadyExists"}},
		{"name of one that leaves", create("p"), false, []Response{taken, leaving}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "AlreadyExists"}},
		{"ownerless there", ownerless, false, []Response{taken, live("uid", "9", `{"metadata":{}}`)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"quota", create("p"), false, []Response{{Code: 403, Reason: "Forbidden", Message: "exceeded quota"}}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden", Message: "exceeded quota"}},
		{"namespace goes", create("p"), false, []Response{{Code: 403, Reason: "Forbidden", Cause: "NamespaceTerminating"}}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden", Cause: "NamespaceTerminating"}},
		{"a delete that may have happened, and has not", versioned, false, []Response{noAnswer, {Spent: true, Reason: "NoAnswer"}, {Spent: true}, live("uid", "9", "")}, events.Result{Status: events.Failed, UID: "uid", Version: "9", Reason: "NoAnswer"}},
		{"a delete that may have happened, and has", versioned, false, []Response{noAnswer, {Spent: true, Reason: "NoAnswer"}, nothing}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"an update that may have happened, and has not", put, false, []Response{{Code: 504, Spent: true}, live("uid", "9", `{"spec":{"replicas":1}}`)}, events.Result{Status: events.Failed, UID: "uid", Version: "9", Code: 504}},
		{"an update that may have happened, and has", put, false, []Response{{Code: 504, Spent: true}, live("uid", "9", `{"metadata":{"uid":"uid","labels":{"a":"b"}},"spec":{"replicas":2}}`)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"a delete that cannot have happened", versioned, false, []Response{{Code: 429}, {Code: 429, Spent: true}}, events.Result{Status: events.Failed, Code: 429}},
		{"too busy for a create", create("p"), false, []Response{{Code: 429}, {Code: 429, Spent: true}}, events.Result{Status: events.Failed, Code: 429}},
		{"a create whose name is taken, by whom is not told", create("p"), false, []Response{taken, {Code: 429, Spent: true}, live("uid", "9", owned)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"a create that an earlier delivery may have made", create("p"), true, []Response{{Code: 429, Spent: true}, taken, live("uid", "9", owned)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"a create that may have happened", create("p"), false, []Response{noAnswer, {Spent: true}, {Spent: true}, taken, live("uid", "9", owned)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},

		{"updated", put, false, []Response{live("uid", "9", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"updated nothing", put, false, []Response{live("uid", "1", "")}, events.Result{Status: events.Unchanged, UID: "uid", Version: "1"}},
		{"update too late", put, false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"update too late, it is gone", put, false, []Response{moved, nothing}, events.Result{Status: events.Absent, Code: 404, Reason: "NotFound"}},
		{"update too late, what is there is not told", put, false, []Response{moved, {Code: 403, Reason: "Forbidden"}}, events.Result{Status: events.Conflict, Code: 409, Reason: "Conflict"}},
		{"patched, reply lost", freed, false, []Response{noAnswer, moved, live("uid", "9", `{"metadata":{"finalizers":["b"]}}`)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"patched before", freed, true, []Response{moved, live("uid", "9", `{"metadata":{"finalizers":["b"],"labels":{"x":"y"}}}`)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"patched before, changed since", freed, true, []Response{moved, live("uid", "9", `{"metadata":{"finalizers":["a","b"]}}`)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"patch before, not on this owner", freed, true, []Response{moved, live("uid", "9", `{"metadata":{"finalizers":["b"],"ownerReferences":[{"uid":"o"}]}}`)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"patch too late", freed, false, []Response{moved, live("uid", "9", `{"metadata":{"finalizers":["b"]}}`)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"updated before", put, true, []Response{moved, live("uid", "9", `{"kind":"ReplicaSet","metadata":{"uid":"uid","labels":{"a":"b"},"generation":2},"spec":{"replicas":2},"status":{"replicas":1}}`)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"updated before, changed since", put, true, []Response{moved, live("uid", "9", `{"metadata":{"uid":"uid","labels":{"a":"b"}},"spec":{"replicas":3}}`)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"updated before, more since", put, true, []Response{moved, live("uid", "9", `{"metadata":{"uid":"uid","labels":{"a":"b"}},"spec":{"replicas":2,"paused":true}}`)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"nothing to update", put, false, []Response{nothing}, events.Result{Status: events.Absent, Code: 404, Reason: "NotFound"}},
		{"another of that name now", put, false, []Response{{Code: 422, Reason: "Invalid", Field: "metadata.uid"}}, events.Result{Status: events.Absent, Code: 422, Reason: "Invalid"}},
		{"kind not served", put, false, []Response{{Code: 404, Reason: "NotFound", Cause: "UnexpectedServerResponse"}}, events.Result{Status: events.Refused, Code: 404, Reason: "NotFound", Cause: "UnexpectedServerResponse"}},

		{"deleted", deletion("p", "uid"), false, []Response{{Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"deleted in peace", deletion("p", "uid"), false, []Response{leaving}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"deleted at once", deletion("p", "uid"), false, []Response{{Code: 200, Object: Object{UID: "uid", Deleting: true, Grace: &zero}}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"deleted before", deletion("p", "uid"), false, []Response{nothing}, events.Result{Status: events.Unchanged, UID: "uid", Removed: true}},
		{"deleted, reply lost", deletion("p", "uid"), false, []Response{{Code: 500}, nothing}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"another of that name", deletion("p", "old"), false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Unchanged, UID: "old", Removed: true}},
		{"redelivered, on its way", deletion("p", "uid"), true, []Response{leaving}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"redelivered, still there", deletion("p", "uid"), true, []Response{live("uid", "9", ""), {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"changed, same owners", versioned, false, []Response{moved, sameOwners, {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"changed again, same owners", versioned, false, []Response{moved, sameOwners, moved, sameOwners, {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"changed again, and its owners", versioned, false, []Response{moved, sameOwners, moved, live("uid", "10", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "10", Code: 409, Reason: "Conflict"}},
		{"changes all the time", versioned, false, slices.Concat(slices.Repeat([]Response{moved, sameOwners}, 5), []Response{moved, sameOwners}), events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"changed owners", versioned, false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
	} {
		t.Run(story.name, func(t *testing.T) {
			p := New(turn(story.command), Options{Again: story.again})
			for i, a := range story.answers {
				requests := p.Next()
				if len(requests) != 1 {
					t.Fatalf("before answer %d there are %d requests, want 1", i, len(requests))
				}
				p.Answer(0, a)
			}
			results, done := p.Results()
			if !done {
				t.Fatalf("not done; next is %+v", p.Next())
			}
			got := results[0]
			if got.Ref != story.command.Ref() {
				t.Errorf("the result is about %v", got.Ref)
			}
			got.Ref, got.Unsure = events.Ref{}, false // see TestUnsure
			if story.want.Message == "" {
				got.Message = ""
			}
			if got != story.want {
				t.Errorf("got  %+v\nwant %+v", got, story.want)
			}
		})
	}
}

func TestConditionsGoOnTheWire(t *testing.T) {
	put := update("web", "7", `{"metadata":{"uid":"old"},"spec":{}}`)
	patch := put
	patch.Verb, patch.PatchType, patch.Body = events.VerbPatch, "application/json-patch+json", json.RawMessage(`[{"op":"remove","path":"/spec/a"}]`)
	free, bound, at := put, put, put
	free.If, free.Body = nil, json.RawMessage(`{ "spec":{} }`)
	bound.If, at.If = &events.If{UID: "rs"}, &events.If{ResourceVersion: "7"}
	alive := free
	alive.If = &events.If{Alive: &events.Alive{Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", UID: "u"}}
	named, cluster := create("p"), create("p")
	named.Body = json.RawMessage(`{"z":1,"metadata":{"name":"x","labels":{"a":"b"},"namespace":"y","annotations":{}},"b":2,"a":3}`)
	cluster.Namespace, cluster.Body = "", json.RawMessage(`{"metadata":{}}`)
	for _, story := range []struct {
		command events.Command
		want    string
	}{
		{free, `{ "spec":{} }`},
		{bound, `{"metadata":{"uid":"rs"},"spec":{}}`},
		{at, `{"metadata":{"resourceVersion":"7","uid":"old"},"spec":{}}`},
		{named, `{"a":3,"b":2,"z":1,"metadata":{"name":"p","namespace":"ns","annotations":{},"labels":{"a":"b"}}}`},
		{cluster, `{"metadata":{"name":"p"}}`},
		{put, `{"metadata":{"resourceVersion":"7","uid":"rs"},"spec":{}}`},
		{patch, `[{"op":"add","path":"/metadata/uid","value":"rs"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/spec/a"}]`},
		{create(`a"b`), `{"spec":{"a":1},"metadata":{"name":"a\"b","namespace":"ns","ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]}}`},
	} {
		if got := string(New(turn(story.command), Options{}).Next()[0].Body); got != story.want {
			t.Errorf("%s\n got %s\nwant %s", story.command.Verb, got, story.want)
		}
	}
	p := New(turn(alive), Options{})
	p.Next()
	p.Answer(0, Response{Code: 200, Object: Object{UID: "u"}})
	if got := string(p.Next()[0].Body); got != `{ "spec":{} }` {
		t.Errorf("an update that relies on another object goes as %s", got)
	}
	one, other := create("a"), create("b")
	other.Body = json.RawMessage(`{"spec":{"a":2}}`)
	bare := events.Turn{Lane: events.LaneWrite, Commands: []events.Command{one, other}, Seen: map[kinds.Name]uint64{"pods": 7}}
	p = New(bare, Options{})
	first := p.Next()[0]
	p.Answer(0, Response{Code: 201})
	if second := p.Next()[0]; !strings.Contains(string(first.Body), `"a":1`) || !strings.Contains(string(second.Body), `"a":2`) || first.Seen != 7 {
		t.Errorf("two creates of bodies of their own go as %s and %s, seen up to %d", first.Body, second.Body, first.Seen)
	}
}

// A command whose body cannot be parsed is refused without a request.
func TestBodiesThatCannotBeRead(t *testing.T) {
	patch := update("web", "7", "")
	patch.Verb, patch.PatchType = events.VerbPatch, types.JSONPatchType
	for _, c := range []events.Command{create("p"), update("web", "7", ""), patch} {
		for _, body := range []string{`{`, `7`, `{"metadata":7}`, `[7`} {
			c.Body = json.RawMessage(body)
			p := New(events.Turn{Lane: events.LaneWrite, Commands: []events.Command{c}}, Options{})
			if results, done := p.Results(); !done || results[0].Reason != "Malformed" || len(p.Next()) > 0 {
				t.Errorf("%s of %s: %+v, done: %t", c.Verb, body, results, done)
			}
		}
	}
}

// A command that makes the door panic has failed, and is not repeated. A write may have happened;
// a read has no effect.
func TestACommandThatPanics(t *testing.T) {
	reliant := update("web", "7", "{}")
	reliant.If.Alive = &events.Alive{Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", UID: "u"}
	for name, c := range map[string]struct {
		command events.Command
		unsure  bool
	}{"a write": {update("web", "7", "{}"), true}, "a look": {reliant, false}} {
		p := New(turn(c.command), Options{})
		p.Next()
		p.Answer(0, Response{Reason: ReasonPanicked, Spent: true})
		results, done := p.Results()
		if !done || results[0].Status != events.Failed || results[0].Reason != ReasonPanicked || results[0].Unsure != c.unsure {
			t.Errorf("%s: %+v, done: %t", name, results, done)
		}
	}
}

// Only kinds with known users can be checked for users.
func TestWhatNeedsWhatCannotBeFoundOut(t *testing.T) {
	unused := func(c events.Command) events.Command {
		c.If = &events.If{UID: "u", ResourceVersion: "7", Unused: true}
		return c
	}
	asks := events.Command{Verb: events.VerbAsk, Kind: "pods", Version: "v1", Namespace: "ns", Name: "p", Subresource: query.SubUsers, If: &events.If{UID: "u"}}
	for name, c := range map[string]events.Command{"an update of a set": unused(update("web", "7", `{}`)), "a create": unused(create("p")), "a question": asks} {
		p := New(turn(c), Options{})
		if results, done := p.Results(); !done || results[0].Reason != "Malformed" || len(p.Next()) > 0 {
			t.Errorf("%s: %+v, done: %t", name, results, done)
		}
	}
}

// If a redelivered turn is refused, the plan looks for the effects of the first delivery.
func TestWhatAnEarlierDeliveryDid(t *testing.T) {
	leaving := live("uid", "9", owned)
	leaving.Object.Deleting = true
	put := update("web", "1", `{"spec":{"replicas":2}}`)
	put.If.UID = "uid"
	for name, c := range map[string]struct {
		command events.Command
		there   Response
		want    events.Status
	}{
		"a delete, gone":               {deletion("p", "uid"), nothing, events.Unchanged},
		"a delete, another is there":   {deletion("p", "uid"), live("other", "9", owned), events.Unchanged},
		"a delete, on its way":         {deletion("p", "uid"), leaving, events.Unchanged},
		"a delete, there":              {deletion("p", "uid"), live("uid", "9", owned), events.Refused},
		"a delete, may not be seen":    {deletion("p", "uid"), Response{Code: 403, Reason: "Forbidden"}, events.Refused},
		"an update, done":              {put, live("uid", "9", `{"metadata":{"uid":"uid"},"spec":{"replicas":2}}`), events.Unchanged},
		"an update of one that leaves": {put, leaving, events.Refused},
		"an update, gone":              {put, nothing, events.Refused},
	} {
		p := New(turn(c.command), Options{Again: true, Refused: Refusal{Reason: "Stale"}})
		if requests := p.Next(); len(requests) != 1 || requests[0].Verb.Writes() {
			t.Fatalf("%s: the requests are %+v", name, requests)
		}
		p.Answer(0, c.there)
		if results, done := p.Results(); !done || results[0].Status != c.want || c.want == events.Refused && results[0].Reason != "Stale" {
			t.Errorf("%s: %+v, done: %t, want %s", name, results, done, c.want)
		}
	}
}

// A command without a request, and a dry run, say so in the result; a note goes back with the
// result.
func TestResultsWithoutAnEffect(t *testing.T) {
	record, put := events.Command{Verb: events.VerbRecord}, update("web", "1", `{}`)
	put.Note = json.RawMessage(`"n"`)
	unaskable := events.Command{Verb: events.VerbAsk, Subresource: "scale", Namespace: "ns", Of: &metav1.OwnerReference{APIVersion: "v1", Kind: "X", Name: "../x"}}
	superseded := func(events.Command, []byte) error { return events.ErrSuperseded }
	for name, c := range map[string]struct {
		command events.Command
		options Options
		want    events.Result
	}{
		"a record":                {record, Options{}, events.Result{Status: events.Applied}},
		"a record, only tried":    {record, Options{DryRun: true}, events.Result{Status: events.DryRun}},
		"a record, superseded":    {record, Options{Fits: superseded}, events.Result{Status: events.Refused, Reason: "Stale"}},
		"an update, only tried":   {put, Options{DryRun: true}, events.Result{Status: events.DryRun}},
		"an update":               {put, Options{}, events.Result{Status: events.Applied}},
		"of what cannot be named": {unaskable, Options{}, events.Result{Status: events.Absent, Code: 404, Reason: "NotFound"}},
	} {
		p := New(turn(c.command), c.options)
		p.Answer(0, Response{Code: 500}) // an answer to no request
		for _, wrong := range []int{-1, 1} {
			p.Answer(wrong, Response{Code: 500})
		}
		for range p.Next() {
			p.Answer(0, Response{Code: 200})
		}
		results, done := p.Results()
		if !done || results[0].Status != c.want.Status || results[0].Reason != c.want.Reason || results[0].Code != c.want.Code {
			t.Errorf("%s: %+v, done: %t", name, results, done)
		}
		if answer := results[0].Answer; c.command.Note != nil && (answer == nil || string(answer.Note) != `"n"`) {
			t.Errorf("%s: the note comes back as %+v", name, answer)
		}
	}
}

// Commands other than creates begin with 32 at a time.
func TestHowManyBeginAtATime(t *testing.T) {
	var commands []events.Command
	for i := range 40 {
		commands = append(commands, deletion("p"+strconv.Itoa(i), "uid"))
	}
	if n := len(New(turn(commands...), Options{}).Next()); n != 32 {
		t.Errorf("%d deletes at first, want 32", n)
	}
}

// A command that names no object, or a patch without a type, is refused with the reason.
func TestWhatIsWrongWithACommand(t *testing.T) {
	edit := func(c events.Command, change func(*events.Command)) events.Command { change(&c); return c }
	patch := update("web", "7", `{}`)
	patch.Verb = events.VerbPatch
	for _, story := range []struct {
		command events.Command
		want    string
	}{
		{edit(create("p"), func(c *events.Command) { c.Kind = "" }), "names no object"},
		{edit(create("p"), func(c *events.Command) { c.Version = "" }), "names no object"},
		{edit(create("p"), func(c *events.Command) { c.Name = "" }), "names no object"},
		{patch, "the patch has no type"},
	} {
		results, done := New(turn(story.command), Options{}).Results()
		if !done || results[0].Reason != "Malformed" || !strings.Contains(results[0].Message, story.want) {
			t.Errorf("want %q, got %+v", story.want, results)
		}
	}
}

func TestRetriesWaitAsAsked(t *testing.T) {
	p := New(turn(create("p")), Options{})
	if r := p.Next()[0]; r.Wait || r.Try != 1 {
		t.Fatalf("the first try is %+v", r)
	}
	p.Answer(0, Response{Code: 429, RetryAfter: 3 * time.Second})
	if r := p.Next()[0]; !r.Wait || r.After != 3*time.Second || r.Try != 2 {
		t.Fatalf("the second try is %+v", r)
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	p := New(turn(create("p")), Options{})
	p.Next()
	p.Answer(0, Response{Code: 422, Reason: "Invalid", Message: strings.Repeat("ä", maxMessage)})
	results, _ := p.Results()
	if got := results[0].Message; len(got) > maxMessage+len(" …") || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
}

// The cost of encoding 500 creates of one template.
func BenchmarkCreates(b *testing.B) {
	var commands []events.Command
	for i := range 500 {
		commands = append(commands, create("web-"+strconv.Itoa(i)))
	}
	tn := turn(commands...)
	for b.Loop() {
		p := New(tn, Options{})
		for {
			requests := p.Next()
			if len(requests) == 0 {
				break
			}
			for _, r := range requests {
				p.Answer(r.Command, Response{Code: 201})
			}
		}
		if _, done := p.Results(); !done {
			b.Fatal("not done")
		}
	}
}
