package ask_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

var asksContents = events.Command{
	Verb: events.VerbAsk, Kind: "namespaces", Version: "v1", Name: "ns", Subresource: query.SubContents,
	Body: json.RawMessage(`{"first":["pods"]}`), If: &events.If{UID: "uid-ns"},
}

func contentsOf(t *testing.T, s *apiservertest.Server) query.Contents {
	t.Helper()
	r := carry(t, open(t, s), plan.Options{}, asksContents)[0]
	if r.Status != events.Answered {
		t.Fatalf("asked what a namespace holds: %+v", r)
	}
	var c query.Contents
	if err := json.Unmarshal(r.Answer.Body, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// The contents of a namespace are found by discovery and lists; while it has pods no other kinds
// are listed.
func TestContents(t *testing.T) {
	const sets = "/apis/apps/v1/namespaces/ns/replicasets"
	s := applytest.Serve(t)
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
		!slices.Equal(h.Standing, []query.Standing{{Name: "a", UID: "uid-a"}, {Name: "c", UID: "uid-c"}}) {
		t.Errorf("the contents of three sets are %+v, want three replicasets.apps, of which a and c have no finalizers", h)
	}

	s.Put(podPath+"p", "uid-q", object("p", map[string]any{"deletionTimestamp": "2030-01-01T00:00:00Z", "deletionGracePeriodSeconds": 30}))
	before := len(s.Requests())
	if c = contentsOf(t, s); !c.Partial || len(c.Kinds) != 1 || c.Kinds[0].Kind != "pods" || c.Kinds[0].Grace != 30 || len(c.Kinds[0].Standing) != 0 {
		t.Errorf("with a pod that is being deleted the contents are %+v, want it with its 30 s of grace", c)
	}
	for _, r := range s.Requests()[before:] {
		if r.Path == sets {
			t.Error("sets are looked at although there is a pod")
		}
	}
}

// Failures are part of the answer: no namespace counts as empty because it could not be read.
func TestContentsThatCannotBeRead(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/api/v1/namespaces/ns", "uid-ns", object("ns", nil))
	broken := ""
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Path == broken {
			return apiservertest.Fault{Code: 503}
		}
		return apiservertest.Fault{}
	})
	broken = "/apis/apps/v1"
	if c := contentsOf(t, s); c.Groups != 1 || !strings.HasPrefix(c.Undiscovered, "unable to retrieve the complete list of server APIs: apps/v1: ") {
		t.Errorf("when a group does not answer the contents are %+v, want one group, and apps/v1 as not discovered", c)
	}
	broken = "/apis/apps/v1/namespaces/ns/replicasets"
	if c := contentsOf(t, s); len(c.Kinds) != 1 || c.Kinds[0].Failure == "" || c.Kinds[0].Count != 0 {
		t.Errorf("when a kind cannot be listed the contents are %+v, want its failure, and no count", c)
	}
}

// The answer names a bounded number of objects, and counts all.
func TestContentsAreBounded(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/api/v1/namespaces/ns", "uid-ns", object("ns", nil))
	for i := range query.MaxStanding + 7 {
		name := fmt.Sprint("s", i)
		s.Put("/apis/apps/v1/namespaces/ns/replicasets/"+name, "uid-"+name, object(name, nil))
	}
	c := contentsOf(t, s)
	if len(c.Kinds) != 1 || c.Kinds[0].Count != query.MaxStanding+7 || len(c.Kinds[0].Standing) != query.MaxStanding {
		t.Errorf("%d are counted, %d named", c.Kinds[0].Count, len(c.Kinds[0].Standing))
	}
}

// The answer is not about a later namespace of that name.
func TestContentsOfAnotherNamespace(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/api/v1/namespaces/ns", "uid-later", object("ns", nil))
	if r := carry(t, open(t, s), plan.Options{}, asksContents)[0]; r.Status != events.Absent || r.Answer != nil {
		t.Errorf("the contents of a namespace with another uid are %+v, want Absent without an answer", r)
	}
}

// many is an API server of many kinds, in as many groups, each with an object in the namespace;
// one group has an invalid version.
type many struct {
	kinds int
	wait  func() // called before a list is answered
	lists int
	mu    sync.Mutex
}

// RoundTrip is [http.RoundTripper].
func (m *many) RoundTrip(r *http.Request) (*http.Response, error) {
	var body any = map[string]any{"kind": "APIVersions"}
	group := func(i int) string { return fmt.Sprintf("g%02d.example.com", i) }
	switch parts := strings.Split(r.URL.Path, "/"); {
	case r.URL.Path == "/apis":
		list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for i := range m.kinds {
			v := metav1.GroupVersionForDiscovery{GroupVersion: group(m.kinds-i) + "/v1", Version: "v1"}
			if i == 0 {
				v.GroupVersion = "a/b/c"
			}
			list.Groups = append(list.Groups, metav1.APIGroup{Name: group(m.kinds - i), Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
		}
		body = list
	case len(parts) == 4:
		body = metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: parts[2] + "/v1",
			APIResources: []metav1.APIResource{{Name: "things", Kind: "Thing", Namespaced: true, Verbs: metav1.Verbs{"list", "delete"}}},
		}
	case strings.HasSuffix(r.URL.Path, "/things"):
		m.mu.Lock()
		m.lists++
		m.mu.Unlock()
		m.wait()
		body = map[string]any{"items": []any{object("x", map[string]any{"uid": "uid-x"})}} // one object under all kinds
	case strings.HasSuffix(r.URL.Path, "/namespaces/ns"):
		body = object("ns", map[string]any{"uid": "uid-ns"})
	}
	text, err := json.Marshal(body)
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(string(text))), Request: r,
	}, err
}

// The kinds of a namespace are listed several at a time, and returned in a fixed order. An object
// under several kinds is in Standing once; an invalid version is reported.
func TestContentsOfManyKinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const all = 30
		goOn := make(chan struct{})
		m := &many{kinds: all + 1, wait: func() { <-goOn }}
		door, err := apply.New(apply.Config{REST: &rest.Config{Host: "http://api.invalid", Transport: m}, Timeout: time.Hour}, []apply.Actor{actor})
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan plan.Response)
		go func() { answer <- door.Do(t.Context(), actor, contentsRequest, "") }()
		synctest.Wait()
		if m.lists != 8 {
			t.Errorf("%d kinds are listed at a time", m.lists)
		}
		close(goOn)
		r := <-answer
		var c query.Contents
		if err := json.Unmarshal(r.Body, &c); err != nil || r.Code != http.StatusOK {
			t.Fatalf("the answer is %+v, %v; want code 200 with contents", r, err)
		}
		inOrder := slices.IsSortedFunc(c.Kinds, func(a, b query.Holding) int { return strings.Compare(string(a.Kind), string(b.Kind)) })
		standing := 0
		for _, h := range c.Kinds {
			standing += len(h.Standing)
		}
		if len(c.Kinds) != all || !inOrder || standing != 1 || !strings.Contains(c.Unparsed, "a/b/c") || c.Partial {
			t.Errorf("%d kinds, in order: %t, with %d objects that stand; %q cannot be read", len(c.Kinds), inOrder, standing, c.Unparsed)
		}
	})
}

// A kind that cannot be listed, although discovery says so, has nothing to delete; one that the
// writer may not list may have.
func TestContentsOfKindsThatAreNotListed(t *testing.T) {
	for code, failure := range map[int]bool{http.StatusNotFound: false, http.StatusMethodNotAllowed: false, http.StatusForbidden: true, http.StatusBadRequest: true} {
		s, door := prepared(t, (&applytest.Answering{At: "/replicasets", Code: code, Body: `{}`}).By)
		s.Remove(podPath + "b")
		r := door.Do(t.Context(), actor, contentsRequest, "")
		var c query.Contents
		if err := json.Unmarshal(r.Body, &c); err != nil || (len(c.Kinds) == 1) != failure || failure && c.Kinds[0].Failure == "" {
			t.Errorf("%d: %s, %v", code, r.Body, err)
		}
	}
}

// A panic while one kind is listed is reported as a failure of that kind: its namespace is not
// empty.
func TestAFaultEmptiesNoNamespace(t *testing.T) {
	faults := 0
	s, door := prepared(t, (&applytest.Answering{At: "/pods", Code: http.StatusForbidden, Body: `{}`}).By, func(c *apply.Config) {
		c.Hides = func(context.Context, kinds.Name) bool { panic("a fault") }
		c.Panicked = func(_ string, cause any, stack []byte) {
			if faults++; cause != "a fault" || len(stack) == 0 {
				t.Errorf("the panic is reported as %v, want \"a fault\" with its stack", cause)
			}
		}
	})
	defer s.Close()
	r := door.Do(t.Context(), actor, contentsRequest, "")
	var c query.Contents
	if err := json.Unmarshal(r.Body, &c); err != nil || len(c.Kinds) != 1 || c.Kinds[0].Kind != "pods" || c.Kinds[0].Failure != "the writer has a fault" || faults != 1 {
		t.Errorf("%s, %v, after %d faults", r.Body, err, faults)
	}
}

// If discovery fails the ask is repeated. A writer that stops answers that it was interrupted, and
// nothing about the namespace.
func TestContentsThatAreNotFoundOut(t *testing.T) {
	s, door := prepared(t)
	s.Break(func(r apiservertest.Request) (f apiservertest.Fault) {
		if r.Path == "/api" || r.Path == "/apis" {
			f.Code = http.StatusServiceUnavailable
		}
		return f
	})
	if r := door.Do(t.Context(), actor, contentsRequest, ""); r.Code != http.StatusServiceUnavailable || len(r.Body) > 0 {
		t.Errorf("when nothing is discovered the answer is %+v, want code 503 without contents", r)
	}
	for what, asked := range map[string]struct {
		at      string
		request plan.Request
	}{"contents": {"/pods", contentsRequest}, "readings of pods": {podsMetered, readingsRequest}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		_, door = prepared(t, func(c *apply.Config) {
			c.REST.WrapTransport = func(through http.RoundTripper) http.RoundTripper {
				return stopping{asked.at, func() { cancel(errors.New("the writer stops")) }, through}
			}
		})
		if r := door.Do(ctx, actor, asked.request, ""); r.Code != 0 || r.Reason != "Interrupted" || r.Message != "the writer stops" || len(r.Body) > 0 {
			t.Errorf("%s, when the writer stops: %+v", what, r)
		}
	}
}

// stopping calls a function before a request.
type stopping struct {
	at      string
	do      func()
	through http.RoundTripper
}

// RoundTrip is [http.RoundTripper].
func (s stopping) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.Contains(r.URL.Path, s.at) {
		s.do()
	}
	return s.through.RoundTrip(r)
}
