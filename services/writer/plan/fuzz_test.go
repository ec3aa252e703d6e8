package plan

import (
	"path"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// FuzzTurn: no turn panics, runs forever, or leads to a path that is not clean.
func FuzzTurn(f *testing.F) {
	for _, seed := range []string{
		`{"lane":"act","commands":[{"verb":"ask","kind":"pods","version":"v1","name":"a","subresource":"readings"}]}`,
		`{"lane":"act","commands":[{"verb":"delete","kind":"pods","version":"v1","namespace":"ns","name":"a","if":{"uid":"u","absent":[{"apiVersion":"v1","kind":"Pod","name":"../x","uid":"y"}]}}]}`,
		`{"lane":"act","shapes":[{"metadata":null}],"commands":[{"verb":"create","kind":"pods","version":"v1","name":"a","shape":1},{"verb":"create","kind":"pods","version":"v1","name":"b","shape":1}]}`,
		`{"lane":"act","commands":[{"verb":"patch","kind":"pods","version":"v1","name":"..","patchType":"application/merge-patch+json","body":{},"if":{"uid":"u","alive":{"kind":"nodes","version":"v1","name":"n","uid":"v"}}}]}`,
		`{"lane":"tell","notices":[{"about":{"name":"a"},"type":"Normal"}],"commands":[{"verb":"record","applied":1},{"verb":"update","kind":"pods","version":"v1","name":"a","subresource":"status","body":{"status":{}},"if":{"uid":"u"}}]}`,
		`{"lane":"act","commands":[{"verb":"ask","subresource":"scale","namespace":"ns","of":{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"w"}}]}`,
	} {
		f.Add([]byte(seed), uint16(200), false)
		f.Add([]byte(seed), uint16(404), true)
		f.Add([]byte(seed), uint16(409), true)
	}
	f.Fuzz(func(t *testing.T, body []byte, code uint16, again bool) {
		var turn events.Turn
		if events.DecodeJSON(events.Message{Data: body}, &turn) != nil || Check(turn, "") != nil || len(turn.Commands) > 100 {
			return
		}
		p := New(turn, Options{Again: again})
		for range 10_000 {
			for _, r := range p.Next() {
				clean(t, r)
				p.Answer(r.Command, Response{Code: int(code), Spent: true, Object: Object{UID: "u"}, Body: []byte(`{}`)})
			}
			if results, done := p.Results(); done {
				Events(turn, results)
				return
			}
			if code == 0 || code == 401 || code == 408 || code == 429 || code >= 500 {
				return // it is repeated while no answer comes
			}
		}
		t.Fatal("the turn has no end")
	})
}

// clean fails if a request's path differs from its parts.
func clean(t *testing.T, r Request) {
	t.Helper()
	if r.Fault() != "" {
		t.Fatalf("%+v has no path: %s", r, r.Fault())
	}
	parts := []string{r.Kind.Group(), r.Version, r.Namespace, r.Kind.Resource(), r.Name, r.Subresource}
	if r.Owner != nil {
		parts = []string{r.Namespace, r.Owner.Name, r.Subresource}
	}
	for _, part := range parts {
		if part != "" && (path.Clean("/"+part) != "/"+part || strings.Contains(part, "/") || part == ".." || part == ".") {
			t.Fatalf("%+v has the part %q", r, part)
		}
	}
}
