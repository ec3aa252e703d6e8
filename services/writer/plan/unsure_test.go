package plan

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// TestUnsureDelete: after a lost answer any client may have deleted the object.
func TestUnsureDelete(t *testing.T) {
	for name, c := range map[string]struct {
		answers []Response
		want    bool
	}{
		"gone after an answer was lost":      {[]Response{{Code: 504}, {Code: 404}}, true},
		"gone when it was asked for":         {[]Response{{Code: 404}}, false},
		"deleted after an answer was lost":   {[]Response{{Code: 504}, {Code: 200}}, false},
		"deleted after it was asked to wait": {[]Response{{Code: 429}, {Code: 404}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(turn(deletion("p", "uid")), Options{})
			for _, a := range c.answers {
				p.Next()
				p.Answer(0, a)
			}
			results, done := p.Results()
			if !done || !results[0].OK() || results[0].Unsure != c.want {
				t.Errorf("done: %t; the result is %+v", done, results)
			}
		})
	}
}

// TestUnsure: the result says whether an earlier request may have succeeded, if the command failed or
// the object is as the command makes it.
func TestUnsure(t *testing.T) {
	gone, refused := Response{Code: 404, Reason: "NotFound"}, Response{Code: 403, Reason: "Forbidden"}
	changed, as := Response{Code: 409, Reason: "Conflict"}, Response{Code: 200, Object: Object{UID: "uid", ResourceVersion: "9"}, Body: []byte(`{"metadata":{"uid":"uid"}}`)}
	for name, c := range map[string]struct {
		again   bool
		answers []Response
		want    bool
	}{
		"refused at once":                      {false, []Response{refused}, false},
		"refused, for a writer that took over": {true, []Response{refused}, true},
		"refused after an answer was lost":     {false, []Response{{Code: 504}, refused}, true},
		"gone after an answer was lost":        {false, []Response{{Code: 504}, gone}, true},
		"refused after it was asked to wait":   {false, []Response{{Code: 429}, refused}, false},
		"carried out after an answer was lost": {false, []Response{{Code: 504}, {Code: 200}}, false},
		"done by a client after a lost answer": {false, []Response{{Code: 504}, changed, as}, true},
		"done before, for one that took over":  {true, []Response{changed, as}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(turn(events.Command{
				Verb: events.VerbPatch, Kind: "pods", Version: "v1", Namespace: "default", Name: "p",
				If: &events.If{UID: "uid"}, PatchType: "application/merge-patch+json", Body: []byte("{}"),
			}), Options{Again: c.again})
			for _, a := range c.answers {
				if requests := p.Next(); len(requests) != 1 {
					t.Fatalf("%d requests", len(requests))
				}
				p.Answer(0, a)
			}
			results, done := p.Results()
			if !done || results[0].Unsure != c.want {
				t.Errorf("done: %t; the result is %+v", done, results)
			}
		})
	}
}
