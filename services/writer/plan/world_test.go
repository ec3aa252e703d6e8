package plan

import (
	"encoding/json"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// world is an API server as a plan sees it: named objects with a uid, a version and preconditions
// on writes.
type world struct {
	objects map[events.Ref]*thing
	clock   int
	changes []events.Ref // every write that changed something, in order
	asked   int          // writes received
}

type thing struct {
	uid      types.UID
	version  string
	deleting bool
	owners   []metav1.OwnerReference
	body     json.RawMessage
}

func newWorld() *world { return &world{objects: map[events.Ref]*thing{}} }

func (w *world) tick() string { w.clock++; return strconv.Itoa(w.clock) }

// put adds an object that exists before the turn.
func (w *world) put(ref events.Ref, uid types.UID, body string) *thing {
	t := &thing{uid: uid, version: w.tick(), body: json.RawMessage(body)}
	w.objects[ref] = t
	return t
}

func refOf(r Request) events.Ref {
	return events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// do carries out a request.
func (w *world) do(r Request) Response {
	if r.Owner != nil {
		for _, t := range w.objects {
			if t.uid == r.Owner.UID {
				return t.response(false)
			}
		}
		return Response{Code: 404, Reason: "NotFound"}
	}
	t := w.objects[refOf(r)]
	if r.Verb.Writes() {
		w.asked++
	}
	switch {
	case r.Verb == Create && t != nil:
		return Response{Code: 409, Reason: "AlreadyExists"}
	case r.Verb == Create:
		w.changes = append(w.changes, refOf(r))
		t = w.put(refOf(r), types.UID("uid-"+strconv.Itoa(w.clock)), string(r.Body))
		return t.response(false)
	case t == nil:
		return Response{Code: 404, Reason: "NotFound"}
	case !r.Verb.Writes():
		return t.response(r.Verb == Read)
	case !t.meets(r):
		return Response{Code: 409, Reason: "Conflict"}
	case r.Verb == Delete:
		w.changes = append(w.changes, refOf(r))
		delete(w.objects, refOf(r))
		return Response{Code: 200}
	default:
		if !updated(r.Body, t.whole(), r.Subresource) {
			w.changes = append(w.changes, refOf(r))
			t.version, t.body = w.tick(), r.Body
		}
		return t.response(false)
	}
}

func (t *thing) meets(r Request) bool {
	if r.Verb == Delete {
		p := r.Delete.Preconditions
		return *p.UID == t.uid && (p.ResourceVersion == nil || *p.ResourceVersion == t.version)
	}
	metadata := at(read(r.Body), "metadata")
	fields, _ := metadata.(map[string]any)
	return (fields["uid"] == nil || fields["uid"] == string(t.uid)) &&
		(fields["resourceVersion"] == nil || fields["resourceVersion"] == t.version)
}

func (t *thing) whole() json.RawMessage {
	object := read(t.body)
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
		object["metadata"] = metadata
	}
	metadata["uid"], metadata["resourceVersion"] = string(t.uid), t.version
	text, err := json.Marshal(object)
	if err != nil {
		panic(fmt.Sprintf("an object of the world has no JSON form: %v", err))
	}
	return text
}

func (t *thing) response(body bool) Response {
	r := Response{Code: 200, Object: Object{UID: t.uid, ResourceVersion: t.version, Deleting: t.deleting, Owners: t.owners}}
	if body {
		r.Body = t.whole()
	}
	return r
}
