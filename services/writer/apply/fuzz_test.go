package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/plan"
)

// script is an API server whose answers come from bytes. After them it loses the connection until
// it is back with an empty storage. It records its requests.
type script struct {
	mu      sync.Mutex
	answers []byte
	back    time.Time
	asked   []*http.Request
}

var (
	codes  = []int{0, 200, 201, 404, 409, 403, 422, 500, 503, 429, 401, 202, 301, 410}
	bodies = []string{
		`{}`, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"7"}}`,
		`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"uid":"u","resourceVersion":"-1","deletionTimestamp":"2026-01-01T00:00:00Z","deletionGracePeriodSeconds":-1,"finalizers":[""],"ownerReferences":[{"apiVersion":"/","kind":"","name":"../..","uid":""}]}}`,
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409,"details":{"retryAfterSeconds":-1,"causes":[{"reason":"FieldManagerConflict","field":".spec"}]}}`,
		`{"items":[null,{"metadata":null}]}`, `[`, ``, `null`, `{"spec":{"replicas":-1},"status":{"replicas":2147483647,"selector":"a in ("}}`,
	}
	served = map[string]string{
		"/api":          `{"kind":"APIVersions","versions":["v1"]}`,
		"/apis":         `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"groupVersion":"apps/v1","version":"v1"}}]}`,
		"/api/v1":       `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","namespaced":true,"kind":"Pod","verbs":["get"]},{"name":"nodes","kind":"Node","verbs":["get"]}]}`,
		"/apis/apps/v1": `{"kind":"APIResourceList","groupVersion":"apps/v1","resources":[{"name":"deployments","namespaced":true,"kind":"Deployment","verbs":["get"]}]}`,
	}
)

// RoundTrip is part of [http.RoundTripper].
func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Body != nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	code, body := http.StatusOK, served[r.URL.Path]
	if body == "" {
		s.asked = append(s.asked, r)
		code, body = s.next()
	}
	if code == 0 {
		return nil, errors.New("the connection was lost")
	}
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}, "Retry-After": {"-1"}, "Location": {"/api/v1/secrets"}},
		Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}, nil
}

// next returns the next answer: a code, 0 for a lost connection, and a body.
func (s *script) next() (code int, body string) {
	switch {
	case !time.Now().Before(s.back):
		return http.StatusNotFound, `{}`
	case len(s.answers) == 0:
		return 0, ""
	}
	code, s.answers = codes[int(s.answers[0])%len(codes)], s.answers[1:]
	if len(s.answers) > 0 {
		body, s.answers = bodies[int(s.answers[0])%len(bodies)], s.answers[1:]
	}
	return code, body
}

// FuzzDoor: whatever the turn and the API server's answers, each command has one result, each
// request goes to a path of valid segments, and only requests of commands write.
func FuzzDoor(f *testing.F) {
	for _, turn := range []string{
		`{"lane":"act","commands":[{"verb":"create","kind":"pods","version":"v1","namespace":"ns","name":"a","body":{}},{"verb":"delete","kind":"pods","version":"v1","namespace":"ns","name":"b","if":{"uid":"u","absent":[{"apiVersion":"v1","kind":"Pod","name":"../../kube-system/services/http:admin:80/proxy/reset","uid":"y"},{"apiVersion":"v1","kind":"Node","name":"n","uid":"z"}]}}]}`,
		`{"lane":"act","commands":[{"verb":"ask","subresource":"readings","namespace":"ns","of":{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"w"},"body":{"metrics":[{"type":"Pods","pods":{"metric":{"name":"../x"}}},{"type":"Object","object":{"describedObject":{"kind":"..","name":"/","apiVersion":"a/b/c"},"metric":{"name":"m"}}}]}},{"verb":"ask","subresource":"scale","namespace":"ns","of":{"apiVersion":"apps/v1","kind":"Deployment","name":"%2e%2e","uid":"w"}}]}`,
		`{"lane":"act","commands":[{"verb":"ask","kind":"namespaces","version":"v1","name":"ns","subresource":"contents"},{"verb":"ask","kind":"persistentvolumeclaims","version":"v1","namespace":"ns","name":"c","subresource":"users"},{"verb":"ask","kind":"leases.coordination.k8s.io","version":"v1","namespace":"ns","name":"l"}]}`,
		`{"lane":"tell","commands":[{"verb":"patch","kind":"pods","version":"v1","namespace":"ns","name":"a","subresource":"status","patchType":"application/apply-patch+yaml","body":{"metadata":{"name":"b"}},"if":{"uid":"u","alive":{"kind":"nodes","version":"v1","name":"n","uid":"v"}}},{"verb":"update","kind":"pods","version":"v1","namespace":"ns","name":"a","subresource":"status","body":{},"if":{"uid":"u","resourceVersion":"7"}}]}`,
	} {
		f.Add([]byte(turn), []byte{1, 1, 1, 1, 1, 1})
		f.Add([]byte(turn), []byte{0, 0, 4, 3, 3, 0, 1, 2, 5, 0, 1, 4})
	}
	f.Fuzz(func(t *testing.T, body, answers []byte) {
		var turn events.Turn
		if events.DecodeJSON(events.Message{Data: body}, &turn) != nil || plan.Check(turn, "") != nil || len(turn.Commands) > 50 {
			return
		}
		synctest.Test(t, func(t *testing.T) { carriesOut(t, turn, answers) }) // pauses between tries take no time
	})
}

// carriesOut carries out a turn while the API server answers from bytes, is away for longer than a
// command is retried, and answers again.
func carriesOut(t *testing.T, turn events.Turn, answers []byte) {
	const away = time.Minute
	s := &script{answers: answers, back: time.Now().Add(away)}
	door, err := apply.New(apply.Config{
		REST: &rest.Config{Host: "http://api.invalid", Transport: s}, Impersonate: true, Patience: away / 2,
		Panicked: func(_ string, cause any, stack []byte) { t.Errorf("a request panicked: %v\n%s", cause, stack) },
	}, []apply.Actor{actor})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*away)
	defer cancel()
	results, done := door.Execute(ctx, actor, plan.New(turn, plan.Options{}), always, func(command, try int) string { return fmt.Sprint(command, try) })
	if !done || len(results) != len(turn.Commands) {
		t.Fatalf("%d commands have %d results, done %v, after %v", len(turn.Commands), len(results), done, time.Since(s.back.Add(-away)))
	}
	for _, r := range s.asked {
		proper(t, r)
		if r.Method != http.MethodGet && !ordered(turn, r) {
			t.Errorf("no command says %s %s", r.Method, r.URL.Path)
		}
	}
}

// proper fails if a request's path is not made of valid segments.
func proper(t *testing.T, r *http.Request) {
	t.Helper()
	at, sent := r.URL.Path, r.URL.EscapedPath() // a role may be called "a b", which is sent as a%20b
	if at != path.Clean(at) || strings.Count(at, "/") != strings.Count(sent, "/") || !strings.HasPrefix(sent, "/api/") && !strings.HasPrefix(sent, "/apis/") {
		t.Errorf("%s %q", r.Method, sent)
	}
	for _, segment := range strings.Split(r.URL.Path, "/")[1:] {
		if !plan.Nameable(segment) {
			t.Errorf("%s %q has the part %q", r.Method, r.URL.Path, segment)
		}
	}
}

// ordered reports whether a command of the turn asks for a request's write to its object.
func ordered(turn events.Turn, r *http.Request) bool {
	methods := map[events.Verb]string{events.VerbCreate: http.MethodPost, events.VerbUpdate: http.MethodPut, events.VerbPatch: http.MethodPatch, events.VerbDelete: http.MethodDelete}
	for _, c := range turn.Commands {
		parts := []string{"", "apis", c.Kind.Group(), c.Version}
		if c.Kind.Group() == "" {
			parts = []string{"", "api", c.Version}
		}
		if c.Namespace != "" {
			parts = append(parts, "namespaces", c.Namespace)
		}
		parts = append(parts, c.Kind.Resource())
		if c.Verb != events.VerbCreate || c.Subresource != "" {
			parts = append(parts, c.Name)
		}
		if c.Subresource != "" {
			parts = append(parts, c.Subresource)
		}
		if at := strings.Join(parts, "/"); methods[c.Verb] == r.Method && (at == r.URL.Path || (c.FillsToken() || c.Certifies()) && strings.HasPrefix(at, r.URL.Path)) {
			return true
		}
	}
	return false
}
