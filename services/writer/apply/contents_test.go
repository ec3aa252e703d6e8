package apply_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/internal/fakeserver"
	"github.com/millrace/millrace/services/writer/plan"
)

var asksContents = events.Command{
	Verb: events.VerbAsk, Kind: "namespaces", Version: "v1", Name: "ns", Subresource: events.SubContents,
	Body: json.RawMessage(`{"first":["pods"]}`), If: &events.If{UID: "uid-ns"},
}

func contentsOf(t *testing.T, s *fakeserver.Server) events.Contents {
	t.Helper()
	r := carry(t, open(t, s), plan.Options{}, asksContents)[0]
	if r.Status != events.Answered {
		t.Fatalf("asked what a namespace holds: %+v", r)
	}
	var c events.Contents
	if err := json.Unmarshal(r.Answer.Body, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func object(name string, more map[string]any) map[string]any {
	metadata := map[string]any{"name": name}
	for key, value := range more {
		metadata[key] = value
	}
	return map[string]any{"metadata": metadata}
}

// What a namespace holds is found by discovery and lists; while there are pods nothing
// else is looked at.
func TestContents(t *testing.T) {
	const sets = "/apis/apps/v1/namespaces/ns/replicasets"
	s := fakeserver.New(t)
	s.Put("/api/v1/namespaces/ns", "uid-ns", object("ns", nil))
	s.Put("/api/v1/namespaces/other/pods/p", "uid-p", object("p", nil))
	if c := contentsOf(t, s); len(c.Kinds) > 0 || c.Partial || c.Undiscovered != "" {
		t.Errorf("an empty namespace holds %+v", c)
	}

	s.Put(sets+"/a", "uid-a", object("a", map[string]any{"finalizers": []string{"example.com/x", "example.com/y"}}))
	s.Put(sets+"/b", "uid-b", object("b", map[string]any{"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": []string{"example.com/x"}}))
	s.Put(sets+"/c", "uid-c", object("c", map[string]any{"deletionTimestamp": "2030-01-01T00:00:00Z", "finalizers": []string{"foregroundDeletion"}}))
	c := contentsOf(t, s)
	if len(c.Kinds) != 1 || c.Partial {
		t.Fatalf("a namespace of three sets holds %+v", c)
	}
	h := c.Kinds[0]
	if h.Kind != "replicasets.apps" || h.Version != "v1" || h.Count != 3 || fmt.Sprint(h.Finalizers) != "map[example.com/x:2 example.com/y:1 foregroundDeletion:1]" ||
		!slices.Equal(h.Standing, []events.Standing{{Name: "a", UID: "uid-a"}, {Name: "c", UID: "uid-c"}}) {
		t.Errorf("of three sets there is %+v", h)
	}

	s.Put(podPath+"p", "uid-q", object("p", map[string]any{"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}))
	before := len(s.Requests())
	if c = contentsOf(t, s); !c.Partial || len(c.Kinds) != 1 || c.Kinds[0].Kind != "pods" || c.Kinds[0].Grace != 30 || len(c.Kinds[0].Standing) != 0 {
		t.Errorf("with a pod on its way out it holds %+v", c)
	}
	for _, r := range s.Requests()[before:] {
		if r.Path == sets {
			t.Error("sets are looked at although there is a pod")
		}
	}
}

// What cannot be found out is said: no namespace is empty because nobody could look.
func TestContentsThatNobodyKnows(t *testing.T) {
	s := fakeserver.New(t)
	s.Put("/api/v1/namespaces/ns", "uid-ns", object("ns", nil))
	broken := ""
	s.Break(func(r fakeserver.Request) fakeserver.Fault {
		if r.Path == broken {
			return fakeserver.Fault{Code: 503}
		}
		return fakeserver.Fault{}
	})
	broken = "/apis/apps/v1"
	if c := contentsOf(t, s); c.Groups != 1 || !strings.HasPrefix(c.Undiscovered, "unable to retrieve the complete list of server APIs: apps/v1: ") {
		t.Errorf("when a group does not answer: %+v", c)
	}
	broken = "/apis/apps/v1/namespaces/ns/replicasets"
	if c := contentsOf(t, s); len(c.Kinds) != 1 || c.Kinds[0].Failure == "" || c.Kinds[0].Count != 0 {
		t.Errorf("when a kind cannot be listed: %+v", c)
	}
}

// No more is named than an answer may hold, and everything is counted.
func TestContentsAreBounded(t *testing.T) {
	s := fakeserver.New(t)
	s.Put("/api/v1/namespaces/ns", "uid-ns", object("ns", nil))
	for i := range events.MaxStanding + 7 {
		name := fmt.Sprint("s", i)
		s.Put("/apis/apps/v1/namespaces/ns/replicasets/"+name, "uid-"+name, object(name, nil))
	}
	c := contentsOf(t, s)
	if len(c.Kinds) != 1 || c.Kinds[0].Count != events.MaxStanding+7 || len(c.Kinds[0].Standing) != events.MaxStanding {
		t.Errorf("%d are counted, %d named", c.Kinds[0].Count, len(c.Kinds[0].Standing))
	}
}

// Another namespace of that name is not the one that was meant.
func TestContentsOfAnotherNamespace(t *testing.T) {
	s := fakeserver.New(t)
	s.Put("/api/v1/namespaces/ns", "uid-later", object("ns", nil))
	if r := carry(t, open(t, s), plan.Options{}, asksContents)[0]; r.Status != events.Absent || r.Answer != nil {
		t.Errorf("%+v", r)
	}
}
