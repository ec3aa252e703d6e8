package apiservertest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/pkg/events/apiservertest"
)

const pods = "/api/v1/namespaces/ns/pods"

type object = map[string]any

// send makes a request, and returns its answer; nil if there is none.
func send(t *testing.T, s *apiservertest.Server, method, path, body string, header ...string) *http.Response {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	got, err := s.Client().Do(r)
	if err != nil {
		return nil
	}
	t.Cleanup(func() { got.Body.Close() })
	return got
}

// ask makes a request, and returns the code and the body of the answer; 0 if there is none.
func ask(t *testing.T, s *apiservertest.Server, method, path, body string, header ...string) (code int, answer string, got http.Header) {
	t.Helper()
	r := send(t, s, method, path, body, header...)
	if r == nil {
		return 0, "", nil
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, "", nil
	}
	return r.StatusCode, strings.TrimSpace(string(text)), r.Header
}

// A write is stored if its preconditions hold; an invalid one is refused.
func TestWrites(t *testing.T) {
	s := apiservertest.New(t)
	version := s.Put(pods+"/a", "u", object{"spec": "x", "metadata": object{"name": "a", "labels": object{"l": "1", "k": "2"}}})
	if version != "1" {
		t.Errorf("the first version is %s, want 1", version)
	}
	for i, c := range []struct {
		method, path, body string
		code               int
		want               string // in the answer
	}{
		{"POST", pods, `{"metadata":{"name":"b","uid":"mine"}}`, 201, `"uid":"uid-2"`},
		{"POST", pods, `{"metadata":{"name":"b"}}`, 409, `"reason":"AlreadyExists"`},
		{"POST", pods, `{"metadata":{"name":"d","resourceVersion":"7"}}`, 400, `"reason":"BadRequest"`},
		{"POST", pods, `{"metadata":{}}`, 422, `"reason":"Invalid"`},
		{"POST", pods, `{}`, 422, `"reason":"Invalid"`},
		{"POST", pods, `[`, 400, `"reason":"BadRequest"`},
		{"POST", pods + "?dryRun=All", `{"metadata":{"name":"c"}}`, 201, `"name":"c"`},
		{"GET", pods + "/b", ``, 200, `"resourceVersion":"2"`},
		{"GET", pods + "/c", ``, 404, `"reason":"NotFound"`},
		{"PATCH", pods + "/a", `{"status":"s","metadata":{"labels":{"l":"3","k":null}}}`, 200, `{"metadata":{"labels":{"l":"3"},"name":"a","namespace":"ns","resourceVersion":"3","uid":"u"},"spec":"x","status":"s"}`},
		{"PATCH", pods + "/a/status", `{"metadata":{"resourceVersion":"1"}}`, 409, `"reason":"Conflict"`},
		{"PATCH", pods + "/a", `{"metadata":{"uid":"v"}}`, 409, `"reason":"Conflict"`},
		{"PUT", pods + "/a", `{"metadata":{"uid":"u","resourceVersion":"2"}}`, 409, `"reason":"Conflict"`},
		{"PUT", pods + "/a/status", `{"spec":"y","status":"t","metadata":{"uid":"u","resourceVersion":"3"}}`, 200, `{"metadata":{"name":"a","namespace":"ns","resourceVersion":"4","uid":"u"},"spec":"x","status":"t"}`},
		{"PUT", pods + "/a", `[`, 400, `"reason":"BadRequest"`},
		{"PUT", pods + "/c", `{}`, 404, `"reason":"NotFound"`},
		{"DELETE", pods + "/a", `[`, 400, `"reason":"BadRequest"`},
		{"DELETE", pods + "/c", `{}`, 404, `"reason":"NotFound"`},
		{"DELETE", pods + "/a", `{"preconditions":{"uid":"v"}}`, 409, `"reason":"Conflict"`},
		{"DELETE", pods + "/a", `{"preconditions":{"resourceVersion":"1"}}`, 409, `"reason":"Conflict"`},
		{"DELETE", pods + "/a", `{"dryRun":["All"]}`, 200, `"status":"Success"`},
		{"DELETE", pods + "/a", `{"preconditions":{"uid":"u","resourceVersion":"4"}}`, 200, `"status":"Success"`},
		{"DELETE", pods + "/b", ``, 200, `"code":200`},
		{"OPTIONS", pods, ``, 405, `"reason":"MethodNotAllowed"`},
	} {
		code, answer, _ := ask(t, s, c.method, c.path, c.body)
		if code != c.code || !strings.Contains(answer, c.want) || code >= 400 && !strings.Contains(answer, `"status":"Failure"`) {
			t.Errorf("number %d, %s %s: %d %s, want %d %s", i, c.method, c.path, code, answer, c.code, c.want)
		}
	}
	if s.Created(pods+"/b") != 1 || s.Created(pods+"/c") != 0 || len(s.Paths()) != 0 || len(s.Requests()) != 24 || s.Answered("GET "+pods+"/b") != 1 {
		t.Errorf("b was created %d times; there are %v after %d requests", s.Created(pods+"/b"), s.Paths(), len(s.Requests()))
	}
	if code, answer, _ := ask(t, s, "POST", pods, `{"metadata":{"generateName":"web-"}}`); code != 201 || len(s.Paths()) != 1 || !strings.HasPrefix(s.Paths()[0], pods+"/web-") {
		t.Errorf("an object with a generated name: %d %s, and there are %v", code, answer, s.Paths())
	}
}

// listed is a list, or a page of it.
type listed struct {
	Kind, APIVersion string
	Metadata         struct{ ResourceVersion, Continue string }
	Items            []struct{ Metadata struct{ Name string } }
}

func list(t *testing.T, s *apiservertest.Server, path string, header ...string) (l listed, names string) {
	t.Helper()
	code, answer, _ := ask(t, s, "GET", path, "", header...)
	if err := json.Unmarshal([]byte(answer), &l); err != nil || code != 200 {
		t.Errorf("%s: %d %s", path, code, answer)
	}
	var all []string
	for _, item := range l.Items {
		all = append(all, item.Metadata.Name)
	}
	return l, strings.Join(all, " ")
}

// Lists cover one namespace or all, whole or in pages, and what selectors select.
func TestLists(t *testing.T) {
	s := apiservertest.New(t)
	for i := range 3 {
		s.Put(fmt.Sprint(pods, "/p", i), fmt.Sprint("u", i), object{"type": fmt.Sprint("t", i%2), "metadata": object{"labels": object{"a/b": fmt.Sprint(i)}}})
	}
	s.Put("/api/v1/namespaces/other/pods/q", "v", object{"type": "t0"})
	s.Put(pods+"/p0/status", "w", object{"metadata": object{"name": "below"}})
	s.Put("/api/v1/namespaces/ns/secrets/s", "x", object{"type": "t0"})
	s.Put("/api/v1/namespaces/ns", "z", object{})
	s.Put("/api/v1/nodes/n", "y", object{})
	for path, want := range map[string]string{
		pods: "p0 p1 p2", "/api/v1/pods": "p0 p1 p2 q", "/api/v1/nodes": "n", "/api/v1/namespaces": "ns", "/api/v1/namespaces/ns/secrets": "s", "/apis/apps/v1/replicasets": "",
		pods + "?limit=3": "p0 p1 p2", pods + "?fieldSelector=metadata.name%3Dp1": "p1", pods + "?fieldSelector=metadata.name%3Dp9": "",
		pods + "?fieldSelector=type%3Dt0": "p0 p2", pods + "?fieldSelector=metadata.name%3Dp1,type%3Dt1": "p1", pods + "?fieldSelector=metadata.name%3Dp1,type%3Dt0": "",
		pods + "?labelSelector=a/b%3D2": "p2", pods + "?labelSelector=a/b%3D%3D1": "p1",
	} {
		l, names := list(t, s, path)
		if names != want || l.Metadata.ResourceVersion != "8" || l.Metadata.Continue != "" {
			t.Errorf("%s: %q in version %s, to be continued at %q; want %q in 8", path, names, l.Metadata.ResourceVersion, l.Metadata.Continue, want)
		}
	}
	if code, answer, _ := ask(t, s, "GET", "/odd", ""); code != 404 || answer != "404 page not found" {
		t.Errorf("a path that is none of an API: %d %s", code, answer)
	}
}

// The pages of a list are of one version, which a change between them is not in, until that version is
// compacted.
func TestPages(t *testing.T) {
	s := apiservertest.New(t)
	for i := range 3 {
		s.Put(fmt.Sprint(pods, "/p", i), "", object{})
	}
	first, names := list(t, s, pods+"?limit=2")
	if names != "p0 p1" || first.Metadata.Continue == "" {
		t.Fatalf("the first page has %q, and the token %q", names, first.Metadata.Continue)
	}
	s.Remove(pods + "/p0")
	s.Put(pods+"/p9", "", object{})
	next := pods + "?limit=2&continue=" + first.Metadata.Continue
	if second, names := list(t, s, next); names != "p2" || second.Metadata.Continue != "" || second.Metadata.ResourceVersion != "3" {
		t.Errorf("the second page has %q of version %s, and the token %q", names, second.Metadata.ResourceVersion, second.Metadata.Continue)
	}
	if _, names := list(t, s, pods+"?resourceVersionMatch=Exact&resourceVersion=3"); names != "p0 p1 p2" {
		t.Errorf("at version 3 there were %q", names)
	}
	if _, names := list(t, s, pods); names != "p1 p2 p9" {
		t.Errorf("now there are %q", names)
	}
	s.Compact()
	for _, path := range []string{next, pods + "?resourceVersionMatch=Exact&resourceVersion=3"} {
		if code, answer, _ := ask(t, s, "GET", path, ""); code != 410 || !strings.Contains(answer, `"reason":"Expired"`) {
			t.Errorf("after a compaction %s: %d %s, want 410", path, code, answer)
		}
	}
	if _, names := list(t, s, pods+"?continue=1"); names != "p2 p9" {
		t.Errorf("a token without a version goes on with %q, want those that are there now", names)
	}
	if code, answer, _ := ask(t, s, "GET", pods+"?resourceVersionMatch=Exact&resourceVersion=99", ""); code != 504 || !strings.Contains(answer, "ResourceVersionTooLarge") {
		t.Errorf("a version that there has not been: %d %s", code, answer)
	}
}

// A client that accepts metadata alone gets no more, one that prefers something else gets that.
func TestForms(t *testing.T) {
	s := apiservertest.New(t, apiservertest.Serving(apiservertest.Resource{Version: "v1", Name: "pods", Kind: "Pod", Namespaced: true}))
	s.Put(pods+"/a", "u", object{"spec": "x"})
	const one, many = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for _, c := range []struct{ path, accept, want string }{
		{pods + "/a", one + ",application/json", `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"a","namespace":"ns","resourceVersion":"1","uid":"u"}}`},
		{pods + "/a", "application/json," + one, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"ns","resourceVersion":"1","uid":"u"},"spec":"x"}`},
		{pods, many, `"kind":"PartialObjectMetadata",`}, {pods, many, `"kind":"PartialObjectMetadataList",`},
		{pods, "", `"kind":"PodList",`}, {pods, "", `"kind":"Pod",`}, {pods + "?watch=true&timeoutSeconds=1", one, `"kind":"PartialObjectMetadata",`},
	} {
		if code, answer, _ := ask(t, s, "GET", c.path, "", "Accept", c.accept); code != 200 || !strings.Contains(answer, c.want) {
			t.Errorf("%s as %q: %d %s, want %s", c.path, c.accept, code, answer, c.want)
		}
	}
}

// A fault that a test sets takes effect, and the request is recorded all the same.
func TestFaults(t *testing.T) {
	for _, options := range [][]apiservertest.Option{nil, {apiservertest.Offline}} {
		s := apiservertest.New(t, options...)
		for _, c := range []struct {
			fault  apiservertest.Fault
			path   string
			code   int
			want   string
			stored bool
			after  string
		}{
			{apiservertest.Fault{Lost: true}, pods, 0, "", true, ""},
			{apiservertest.Fault{Closed: true}, pods, 0, "", false, ""},
			{apiservertest.Fault{Lost: true}, pods + "?watch=true", 0, "", false, ""},
			{apiservertest.Fault{Code: 429, RetryAfter: 7}, pods, 429, "as the test asked", false, "7"},
			{apiservertest.Fault{Code: 429, Message: "no"}, pods, 429, `"message":"no"`, false, ""},
			{apiservertest.Fault{Code: 410, Continue: "2"}, pods, 410, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"2"},"status":"Failure","message":"as the test asked","reason":"Expired","code":410}`, false, ""},
			{apiservertest.Fault{Instead: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "odd", 299) }}, pods, 299, "odd", false, ""},
			{apiservertest.Fault{Header: http.Header{"Retry-After": {"5"}}}, pods, 201, `"name":"a"`, true, "5"},
			{apiservertest.Fault{Unserved: true}, pods, 404, "404 page not found", false, ""},
		} {
			s.Break(func(apiservertest.Request) apiservertest.Fault { return c.fault })
			before := len(s.Requests())
			code, answer, header := ask(t, s, "POST", c.path, `{"metadata":{"name":"a"}}`)
			if code != c.code || !strings.Contains(answer, c.want) || (s.Get(pods+"/a") != nil) != c.stored || header.Get("Retry-After") != c.after || len(s.Requests()) == before {
				t.Errorf("%+v: %d %s, stored: %v", c.fault, code, answer, s.Get(pods+"/a"))
			}
			if newest := s.Requests()[len(s.Requests())-1]; c.code != 0 && c.fault.Instead == nil && newest.Code != c.code {
				t.Errorf("%+v is recorded with the answer %d", c.fault, newest.Code)
			}
			s.Remove(pods + "/a")
		}
		s.Break(nil)
		var mu sync.Mutex
		var held []string
		s.Hold(func(r apiservertest.Request) {
			mu.Lock()
			defer mu.Unlock()
			held = append(held, r.Method+" "+r.Path+" "+string(r.Body))
		})
		ask(t, s, "POST", pods, `{}`)
		if !slices.Equal(held, []string{"POST " + pods + " {}"}) {
			t.Errorf("held is %v", held)
		}
		if s.Open() != 0 {
			t.Errorf("%d requests have not ended", s.Open())
		}
	}
}

// Discovery names what is served, as one document of all groups or by group and version, and a
// resource that is served no longer is not found.
func TestDiscovery(t *testing.T) {
	sets := apiservertest.Resource{Group: "apps", Version: "v1", Name: "replicasets", Kind: "ReplicaSet", Namespaced: true, Scale: true}
	s := apiservertest.New(t, apiservertest.Serving(apiservertest.Resource{Version: "v1", Name: "nodes", Kind: "Node"}, sets))
	const all = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	says := func(path, accept string, wants ...string) (tag string) {
		t.Helper()
		code, answer, header := ask(t, s, "GET", path, "", "Accept", accept)
		for _, want := range wants {
			if code != 200 || !strings.Contains(answer, want) {
				t.Errorf("%s as %q: %d %s, want %s", path, accept, code, answer, want)
			}
		}
		if accept == all && header.Get("Content-Type") != all {
			t.Errorf("%s is %s", path, header.Get("Content-Type"))
		}
		return header.Get("ETag")
	}
	says("/readyz", "", "Success")
	says("/api", "", `"versions":["v1"]`)
	says("/apis", "", `"name":"apps"`, `"groupVersion":"apps/v1"`)
	says("/api/v1", "", `"name":"nodes"`, `"namespaced":false`)
	says("/apis/apps/v1", "", `"replicasets/scale"`, `"namespaced":true`)
	says("/api", all, `"resource":"nodes"`, `"scope":"Cluster"`)
	tag := says("/apis", all, `"resource":"replicasets"`, `"subresource":"scale"`, `"freshness":"Current"`, `"scope":"Namespaced"`)
	if code, answer, _ := ask(t, s, "GET", "/apis", "", "Accept", all, "If-None-Match", tag); code != 304 || answer != "" {
		t.Errorf("a document that has not changed: %d %s, want 304", code, answer)
	}
	sets.Stale = true
	s.Serve(sets)
	if says("/apis", all, `"freshness":"Stale"`) == tag {
		t.Error("a document that has changed has the old tag")
	}
	s.Put("/apis/apps/v1/namespaces/ns/replicasets/web", "", object{})
	s.Unserve(sets)
	for _, path := range []string{"/apis/apps/v1/replicasets", "/apis/apps/v1/namespaces/ns/replicasets/web", "/apis/apps/v1/replicasets?watch=true", "/apis/apps/v1"} {
		if code, answer, _ := ask(t, s, "GET", path, ""); code != 404 || answer != "404 page not found" {
			t.Errorf("%s is served no longer: %d %s", path, code, answer)
		}
	}
	s.Serve(sets)
	if _, names := list(t, s, "/apis/apps/v1/replicasets"); names != "web" {
		t.Errorf("when it is served again there are %q", names)
	}
	plain := apiservertest.New(t, apiservertest.Plain)
	if code, answer, _ := ask(t, plain, "GET", "/apis", "", "Accept", all); code != 200 || !strings.Contains(answer, `"kind":"APIGroupList"`) {
		t.Errorf("a server that does not aggregate: %d %s", code, answer)
	}
}

// A path that a test handles is answered by its function alone.
func TestHandledPaths(t *testing.T) {
	s := apiservertest.New(t, apiservertest.TLS)
	s.Handle("/version", func(r apiservertest.Request) (int, any) { return 201, object{"of": r.Method} })
	if code, answer, _ := ask(t, s, "POST", "/version", `{}`); code != 201 || answer != `{"of":"POST"}` || len(s.Paths()) > 0 {
		t.Errorf("%d %s, and there are %v", code, answer, s.Paths())
	}
}
