package plan

import (
	"encoding/json"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

func scaled() events.Command {
	return events.Command{
		Verb: events.VerbUpdate, Kind: "deployments.apps", Version: "v1", Namespace: "ns", Name: "web", Subresource: "scale",
		Body: json.RawMessage(`{"metadata":{"name":"web","uid":"u","resourceVersion":"7"},"spec":{"replicas":5},"status":{"replicas":0}}`),
		If:   &events.If{UID: "u", ResourceVersion: "7"},
	}
}

// After a conflict the plan reads the scale and not its parent object: a controller that may write
// the scale may not be allowed to read the parent. The result has the version that caused the
// conflict.
func TestAScaleIsComparedWithAScale(t *testing.T) {
	p := New(turn(scaled()), Options{})
	p.Next()
	p.Answer(0, Response{Code: 409, Reason: "Conflict"})
	next := p.Next()
	if len(next) != 1 || next[0].Verb != Look || next[0].Subresource != "scale" {
		t.Fatalf("after a conflict the next requests are %+v, want a look at the scale", next)
	}
	p.Answer(0, live("u", "9", ""))
	if results, done := p.Results(); !done || results[0].Status != events.Conflict || results[0].Version != "9" {
		t.Errorf("done %t, results %+v", done, results)
	}
}

// The plan finds a scale that an earlier delivery wrote before its outcome was lost.
func TestAScaleThatIsThereIsFound(t *testing.T) {
	p := New(turn(scaled()), Options{Again: true})
	p.Next()
	p.Answer(0, Response{Code: 409, Reason: "Conflict"})
	next := p.Next()
	if len(next) != 1 || next[0].Verb != Read || next[0].Subresource != "scale" {
		t.Fatalf("after a conflict the next requests are %+v, want a read of the scale", next)
	}
	p.Answer(0, live("u", "9", `{"kind":"Scale","metadata":{"name":"web","uid":"u","resourceVersion":"9"},"spec":{"replicas":5},"status":{"replicas":2}}`))
	if results, done := p.Results(); !done || !results[0].OK() {
		t.Errorf("done %t, results %+v", done, results)
	}
}
