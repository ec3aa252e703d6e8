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

// One command, the answers it gets, and what is made of them.
func TestWhatAnswersMean(t *testing.T) {
	const other = `{"metadata":{"ownerReferences":[{"uid":"else","controller":true}]}}`
	leaving := live("uid", "9", owned)
	leaving.Object.Deleting = true
	zero := int64(0)
	versioned := death("p", "uid")
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
	ownerless := birth("default")
	ownerless.Body = json.RawMessage(`{"metadata":{}}`)

	for _, story := range []struct {
		name    string
		command events.Command
		again   bool
		answers []Response
		want    events.Result
	}{
		{"born", birth("p"), false, []Response{live("uid", "9", "")}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"born before", birth("p"), true, []Response{taken, live("uid", "9", owned)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"born, reply lost", birth("p"), false, []Response{noAnswer, taken, live("uid", "9", owned)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"name taken", birth("p"), false, []Response{taken, live("uid", "9", other)}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "AlreadyExists"}},
		{"name of one that leaves", birth("p"), false, []Response{taken, leaving}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "AlreadyExists"}},
		{"ownerless there", ownerless, false, []Response{taken, live("uid", "9", `{"metadata":{}}`)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"quota", birth("p"), false, []Response{{Code: 403, Reason: "Forbidden", Message: "exceeded quota"}}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden", Message: "exceeded quota"}},
		{"namespace goes", birth("p"), false, []Response{{Code: 403, Reason: "Forbidden", Cause: "NamespaceTerminating"}}, events.Result{Status: events.Refused, Code: 403, Reason: "Forbidden", Cause: "NamespaceTerminating"}},
		{"a delete that may have happened, and has not", versioned, false, []Response{noAnswer, {Spent: true, Reason: "NoAnswer"}, {Spent: true}, live("uid", "9", "")}, events.Result{Status: events.Failed, UID: "uid", Version: "9", Reason: "NoAnswer"}},
		{"a delete that may have happened, and has", versioned, false, []Response{noAnswer, {Spent: true, Reason: "NoAnswer"}, nothing}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"an update that may have happened, and has not", put, false, []Response{{Code: 504, Spent: true}, live("uid", "9", `{"spec":{"replicas":1}}`)}, events.Result{Status: events.Failed, UID: "uid", Version: "9", Code: 504}},
		{"an update that may have happened, and has", put, false, []Response{{Code: 504, Spent: true}, live("uid", "9", `{"metadata":{"uid":"uid","labels":{"a":"b"}},"spec":{"replicas":2}}`)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"a delete that cannot have happened", versioned, false, []Response{{Code: 429}, {Code: 429, Spent: true}}, events.Result{Status: events.Failed, Code: 429}},
		{"too busy for a birth", birth("p"), false, []Response{{Code: 429}, {Code: 429, Spent: true}}, events.Result{Status: events.Failed, Code: 429}},
		{"a birth whose name is taken, by whom is not told", birth("p"), false, []Response{taken, {Code: 429, Spent: true}, live("uid", "9", owned)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"a birth that an earlier delivery may have made", birth("p"), true, []Response{{Code: 429, Spent: true}, taken, live("uid", "9", owned)}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"a birth that may have happened", birth("p"), false, []Response{noAnswer, {Spent: true}, {Spent: true}, taken, live("uid", "9", owned)}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},

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

		{"deleted", death("p", "uid"), false, []Response{{Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"deleted in peace", death("p", "uid"), false, []Response{leaving}, events.Result{Status: events.Applied, UID: "uid", Version: "9"}},
		{"deleted at once", death("p", "uid"), false, []Response{{Code: 200, Object: Object{UID: "uid", Deleting: true, Grace: &zero}}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"deleted before", death("p", "uid"), false, []Response{nothing}, events.Result{Status: events.Unchanged, UID: "uid", Removed: true}},
		{"deleted, reply lost", death("p", "uid"), false, []Response{{Code: 500}, nothing}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"another of that name", death("p", "old"), false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Unchanged, UID: "old", Removed: true}},
		{"redelivered, on its way", death("p", "uid"), true, []Response{leaving}, events.Result{Status: events.Unchanged, UID: "uid", Version: "9"}},
		{"redelivered, still there", death("p", "uid"), true, []Response{live("uid", "9", ""), {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"changed, same owners", versioned, false, []Response{moved, sameOwners, {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"changed again, same owners", versioned, false, []Response{moved, sameOwners, moved, sameOwners, {Code: 200}}, events.Result{Status: events.Applied, UID: "uid", Removed: true}},
		{"changed again, and its owners", versioned, false, []Response{moved, sameOwners, moved, live("uid", "10", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "10", Code: 409, Reason: "Conflict"}},
		{"changes all the time", versioned, false, slices.Concat(slices.Repeat([]Response{moved, sameOwners}, mostChases), []Response{moved, sameOwners}), events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
		{"changed owners", versioned, false, []Response{moved, live("uid", "9", "")}, events.Result{Status: events.Conflict, UID: "uid", Version: "9", Code: 409, Reason: "Conflict"}},
	} {
		t.Run(story.name, func(t *testing.T) {
			p := New(turn(story.command), Options{Again: story.again})
			for i, a := range story.answers {
				requests := p.Next()
				if len(requests) != 1 {
					t.Fatalf("before answer %d: %d requests", i, len(requests))
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
	for _, story := range []struct {
		command events.Command
		want    string
	}{
		{put, `{"metadata":{"resourceVersion":"7","uid":"rs"},"spec":{}}`},
		{patch, `[{"op":"add","path":"/metadata/uid","value":"rs"},{"op":"add","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/spec/a"}]`},
		{birth(`a"b`), `{"spec":{"a":1},"metadata":{"name":"a\"b","namespace":"ns","ownerReferences":[{"kind":"ReplicaSet","name":"web","uid":"rs","controller":true}]}}`},
	} {
		if got := string(New(turn(story.command), Options{}).Next()[0].Body); got != story.want {
			t.Errorf("%s\n got %s\nwant %s", story.command.Verb, got, story.want)
		}
	}
}

func TestRetriesWaitAsAsked(t *testing.T) {
	p := New(turn(birth("p")), Options{})
	if r := p.Next()[0]; r.Wait || r.Try != 1 {
		t.Fatalf("the first try is %+v", r)
	}
	p.Answer(0, Response{Code: 429, RetryAfter: 3 * time.Second})
	if r := p.Next()[0]; !r.Wait || r.After != 3*time.Second || r.Try != 2 {
		t.Fatalf("the second try is %+v", r)
	}
}

func TestLongMessagesAreCut(t *testing.T) {
	p := New(turn(birth("p")), Options{})
	p.Next()
	p.Answer(0, Response{Code: 422, Reason: "Invalid", Message: strings.Repeat("ä", maxMessage)})
	results, _ := p.Results()
	if got := results[0].Message; len(got) > maxMessage+len(" …") || !utf8.ValidString(got) {
		t.Errorf("%d bytes, valid: %v", len(got), utf8.ValidString(got))
	}
}

// What 500 births of one template cost before they are on the wire.
func BenchmarkBirths(b *testing.B) {
	var commands []events.Command
	for i := range 500 {
		commands = append(commands, birth("web-"+strconv.Itoa(i)))
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
