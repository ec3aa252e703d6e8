package fakeserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/services/writer/internal/fakeserver"
)

const pods = "/api/v1/namespaces/ns/pods"

// ask makes a request, and returns the code and the body of the answer; 0 if there is none.
func ask(t *testing.T, s *fakeserver.Server, method, path, body string) (code int, answer string, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", nil
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return 0, "", nil
	}
	return got.StatusCode, strings.TrimSpace(string(text)), got.Header
}

// A write is stored if its preconditions hold; an invalid one is refused.
func TestWrites(t *testing.T) {
	s := fakeserver.New(t)
	version := s.Put(pods+"/a", "u", map[string]any{"spec": "x", "metadata": map[string]any{"name": "a", "labels": "l"}})
	if version != "1" {
		t.Errorf("the first version is %s", version)
	}
	for i, c := range []struct {
		method, path, body string
		code               int
		want               string // in the answer
	}{
		{"POST", pods, `{"metadata":{"name":"b"}}`, 201, `"uid":"uid-2"`},
		{"POST", pods, `{"metadata":{"name":"b"}}`, 409, `"reason":"AlreadyExists"`},
		{"POST", pods, `{"metadata":{}}`, 422, `"reason":"Invalid"`},
		{"POST", pods, `{}`, 422, `"reason":"Invalid"`},
		{"POST", pods, `[`, 400, `"reason":"BadRequest"`},
		{"POST", pods + "?dryRun=All", `{"metadata":{"name":"c"}}`, 201, `"name":"c"`},
		{"GET", pods + "/b", ``, 200, `"resourceVersion":"2"`},
		{"GET", pods + "/c", ``, 404, `"reason":"NotFound"`},
		{"PATCH", pods + "/a", `{"status":"s","metadata":{"labels":"m"}}`, 200, `{"metadata":{"labels":"m","name":"a","resourceVersion":"3","uid":"u"},"spec":"x","status":"s"}`},
		{"PATCH", pods + "/a/status", `{"metadata":{"resourceVersion":"1"}}`, 409, `"reason":"Conflict"`},
		{"PATCH", pods + "/a", `{"metadata":{"uid":"v"}}`, 409, `"reason":"Conflict"`},
		{"PUT", pods + "/a/status", `{"metadata":{"uid":"u","resourceVersion":"3"}}`, 200, `{"metadata":{"resourceVersion":"4","uid":"u"}}`},
		{"PUT", pods + "/a", `[`, 400, `"reason":"BadRequest"`},
		{"PUT", pods + "/c", `{}`, 404, `"reason":"NotFound"`},
		{"DELETE", pods + "/a", `[`, 400, `"reason":"BadRequest"`},
		{"DELETE", pods + "/c", `{}`, 404, `"reason":"NotFound"`},
		{"DELETE", pods + "/a", `{"preconditions":{"uid":"v"}}`, 409, `"reason":"Conflict"`},
		{"DELETE", pods + "/a", `{"preconditions":{"resourceVersion":"1"}}`, 409, `"reason":"Conflict"`},
		{"DELETE", pods + "/a", `{"preconditions":{"uid":"u","resourceVersion":"4"}}`, 200, `"status":"Success"`},
		{"DELETE", pods + "/b", `{}`, 200, `"code":200`},
		{"OPTIONS", pods, ``, 405, `"reason":"MethodNotAllowed"`},
	} {
		code, answer, _ := ask(t, s, c.method, c.path, c.body)
		if code != c.code || !strings.Contains(answer, c.want) || code >= 400 && !strings.Contains(answer, `"status":"Failure"`) {
			t.Errorf("number %d, %s %s: %d %s, want %d %s", i, c.method, c.path, code, answer, c.code, c.want)
		}
	}
	if s.Created(pods+"/b") != 1 || s.Created(pods+"/c") != 0 || len(s.Paths()) != 0 || len(s.Requests()) != 21 || s.Answered("GET "+pods+"/b") != 1 {
		t.Errorf("b was made %d times; there are %v after %d requests", s.Created(pods+"/b"), s.Paths(), len(s.Requests()))
	}
}

// Lists cover one namespace or all, whole or in pages, one name or one type.
func TestLists(t *testing.T) {
	s := fakeserver.New(t)
	for i := range 3 {
		s.Put(fmt.Sprint(pods, "/p", i), fmt.Sprint("u", i), map[string]any{"type": fmt.Sprint("t", i%2), "metadata": map[string]any{"name": fmt.Sprint("p", i)}})
	}
	s.Put("/api/v1/namespaces/other/pods/q", "v", map[string]any{"type": "t0", "metadata": map[string]any{"name": "q"}})
	s.Put(pods+"/p0/status", "w", map[string]any{"metadata": map[string]any{"name": "below"}})
	s.Put("/api/v1/namespaces/ns/secrets/s", "x", map[string]any{"type": "t0", "metadata": map[string]any{"name": "s"}})
	s.Put("/api/v1/nodes/n", "y", map[string]any{"metadata": map[string]any{"name": "n"}})
	for path, want := range map[string]string{
		pods: "p0 p1 p2", "/api/v1/pods": "p0 p1 p2 q", "/api/v1/nodes": "n", "/api/v1/namespaces/ns/secrets": "s", "/apis/apps/v1/replicasets": "",
		pods + "?limit=2": "p0 p1 2", pods + "?limit=2&continue=2": "p2", pods + "?limit=3": "p0 p1 p2", pods + "?limit=1&continue=1": "p1 2",
		pods + "?fieldSelector=metadata.name%3Dp1": "p1", pods + "?fieldSelector=metadata.name%3Dp9": "", pods + "?fieldSelector=type%3Dt0": "p0 p2",
		pods + "?fieldSelector=metadata.name%3Dp1,type%3Dt1": "p1", pods + "?fieldSelector=metadata.name%3Dp1,type%3Dt0": "",
	} {
		var list struct {
			Metadata struct{ ResourceVersion, Continue string }
			Items    []struct{ Metadata struct{ Name string } }
		}
		code, answer, _ := ask(t, s, "GET", path, "")
		if err := json.Unmarshal([]byte(answer), &list); err != nil || code != 200 || list.Metadata.ResourceVersion != "7" {
			t.Errorf("%s: %d %s", path, code, answer)
		}
		var got []string
		for _, item := range list.Items {
			got = append(got, item.Metadata.Name)
		}
		if list.Metadata.Continue != "" {
			got = append(got, list.Metadata.Continue)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	if code, _, _ := ask(t, s, "GET", "/api/v1/namespaces/ns/widgets", ""); code != 404 {
		t.Errorf("a list of what it does not know is answered %d", code)
	}
}

// A watch gets the changes of one name since a version, and ends.
func TestWatches(t *testing.T) {
	s := fakeserver.New(t)
	s.Put(pods+"/a", "u", map[string]any{})
	s.Put(pods+"/b", "v", map[string]any{})
	s.Put(pods+"/a", "u", map[string]any{})
	s.Remove(pods + "/a")
	s.Remove(pods + "/a") // it does not exist any more
	for since, want := range map[string]string{"0": "MODIFIED MODIFIED DELETED", "1": "MODIFIED DELETED", "3": "DELETED", "4": ""} {
		_, answer, _ := ask(t, s, "GET", pods+"?watch=true&fieldSelector=metadata.name%3Da&resourceVersion="+since, "")
		var got []string
		for line := range strings.Lines(answer) {
			var event struct{ Type string }
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatal(err)
			}
			got = append(got, event.Type)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("since %s: %v, want %s", since, got, want)
		}
	}
}

// A fault that a test sets takes effect, and the request is recorded all the same.
func TestFaults(t *testing.T) {
	s := fakeserver.New(t)
	for _, c := range []struct {
		fault  fakeserver.Fault
		path   string
		code   int
		want   string
		stored bool
		after  string
	}{
		{fakeserver.Fault{Lost: true}, pods, 0, "", true, ""},
		{fakeserver.Fault{Lost: true}, pods + "?watch=true", 0, "", false, ""},
		{fakeserver.Fault{Code: 429, RetryAfter: 7}, pods, 429, "as the test asked", false, "7"},
		{fakeserver.Fault{Code: 429, Message: "no"}, pods, 429, `"message":"no"`, false, ""},
		{fakeserver.Fault{Code: 410, Continue: "2"}, pods, 410, `{"kind":"Status","apiVersion":"v1","metadata":{"continue":"2"},"status":"Failure","message":"as the test asked","reason":"Expired","code":410}`, false, ""},
		{fakeserver.Fault{Unserved: true}, pods, 404, "404 page not found", false, ""},
	} {
		s.Break(func(fakeserver.Request) fakeserver.Fault { return c.fault })
		before := len(s.Requests())
		code, answer, header := ask(t, s, "POST", c.path, `{"metadata":{"name":"a"}}`)
		if code != c.code || !strings.Contains(answer, c.want) || (s.Get(pods+"/a") != nil) != c.stored || header.Get("Retry-After") != c.after || len(s.Requests()) == before {
			t.Errorf("%+v: %d %s, stored: %v", c.fault, code, answer, s.Get(pods+"/a"))
		}
		s.Remove(pods + "/a")
	}
	s.Break(nil)
	var mu sync.Mutex
	var held []string
	s.Hold(func(r fakeserver.Request) {
		mu.Lock()
		defer mu.Unlock()
		held = append(held, r.Method+" "+r.Path+" "+string(r.Body))
	})
	ask(t, s, "POST", pods, `{}`)
	if !slices.Equal(held, []string{"POST " + pods + " {}"}) {
		t.Errorf("held is %v", held)
	}
}

// Users of one group may do everything, others nothing; discovery lists what is served.
func TestReviewsAndDiscovery(t *testing.T) {
	s := fakeserver.New(t)
	const reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	for body, want := range map[string]string{
		`{"spec":{"groups":["a","` + fakeserver.Allowed + `"]}}`: `"allowed":true`, `{"spec":{"groups":["a"]}}`: `"allowed":false`, `{}`: `"allowed":false`, `[`: `"reason":"BadRequest"`,
	} {
		if code, answer, _ := ask(t, s, "POST", reviews, body); !strings.Contains(answer, want) || (code == 201) != strings.Contains(want, "allowed") {
			t.Errorf("%s: %d %s, want %s", body, code, answer, want)
		}
	}
	for path, want := range map[string]string{"/readyz": "Success", "/api": `"versions":["v1"]`, "/apis": `"apps"`, "/api/v1": `"nodes"`, "/apis/apps/v1": `"replicasets/scale"`} {
		if code, answer, _ := ask(t, s, "GET", path, ""); code != 200 || !strings.Contains(answer, want) {
			t.Errorf("%s: %d %s", path, code, answer)
		}
	}
	if len(s.Paths()) > 0 {
		t.Errorf("the server has the objects %v, want none", s.Paths())
	}
}
