package plan

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
)

func contents() events.Command {
	return events.Command{
		Verb: events.VerbAsk, Kind: "namespaces", Version: "v1", Name: "shop", Subresource: query.SubContents,
		Body: json.RawMessage(`{"first":["pods"]}`), If: &events.If{UID: "ns"},
	}
}

// The ask for the contents of a namespace runs after all deletes of the turn, successful or not.
func TestContentsAreAskedLast(t *testing.T) {
	p := New(turn(deletion("a", "ua"), deletion("b", "ub"), contents()), Options{})
	for i, r := range p.Next() {
		if r.Verb != Delete {
			t.Fatalf("request %d is %+v, before the deletes are over", i, r)
		}
	}
	p.Answer(0, Response{Code: 403, Reason: "Forbidden"})
	if next := p.Next(); len(next) != 0 {
		t.Fatalf("one delete is not over, and next is %+v", next)
	}
	p.Answer(1, Response{Code: 200})
	next := p.Next()
	if len(next) != 1 || next[0].Verb != Search || next[0].Subresource != query.SubContents || string(next[0].Body) != `{"first":["pods"]}` {
		t.Fatalf("after the deletes the next requests are %+v, want the search for contents", next)
	}
	p.Answer(2, live("ns", "9", `{"partial":true}`))
	results, done := p.Results()
	if !done || results[2].Status != events.Answered || results[2].Answer == nil || string(results[2].Answer.Body) != `{"partial":true}` {
		t.Errorf("done %t, results %+v", done, results)
	}
}

// The answer is about the intended object, and there is none if another object has its name now.
func TestAnAnswerIsAboutWhatWasMeant(t *testing.T) {
	for what, c := range map[string]struct {
		answer Response
		want   events.Status
	}{
		"the same":           {live("ns", "9", `{}`), events.Answered},
		"another by now":     {live("other", "9", `{}`), events.Absent},
		"gone":               {nothing, events.Absent},
		"not allowed":        {Response{Code: 403, Reason: "Forbidden"}, events.Refused},
		"no answer for long": {Response{Spent: true}, events.Failed},
	} {
		p := New(turn(contents()), Options{Again: true})
		p.Next()
		p.Answer(0, c.answer)
		results, done := p.Results()
		if !done || results[0].Status != c.want || (results[0].Answer != nil && results[0].Answer.Body != nil) != (c.want == events.Answered) || results[0].Unsure {
			t.Errorf("%s: done %t, %+v, want %s", what, done, results, c.want)
		}
	}
}

// A namespace with no other finalizers is gone when its spec's finalizers are.
func TestALastFinalizerEndsANamespace(t *testing.T) {
	for what, c := range map[string]struct {
		body   string
		object Object
		gone   bool
	}{
		"none is left":           {`{"spec":{}}`, Object{UID: "ns", Deleting: true}, true},
		"another client has one": {`{"spec":{"finalizers":["example.com/ours"]}}`, Object{UID: "ns", Deleting: true}, false},
		"one of another sort":    {`{"spec":{}}`, Object{UID: "ns", Deleting: true, Finalizers: true}, false},
		"it lives":               {`{"spec":{}}`, Object{UID: "ns"}, false},
	} {
		p := New(turn(events.Command{
			Verb: events.VerbUpdate, Kind: "namespaces", Version: "v1", Name: "shop", Subresource: "finalize",
			Body: json.RawMessage(c.body), If: &events.If{UID: "ns", ResourceVersion: "1"},
		}), Options{})
		p.Next()
		p.Answer(0, Response{Code: 200, Object: c.object})
		if results, done := p.Results(); !done || results[0].Removed != c.gone {
			t.Errorf("%s: done %t, %+v", what, done, results)
		}
	}
}

// A controller that asks for a Secret gets no answer, whatever was promised: the answer would be
// on record.
func TestSecretsAreNotTold(t *testing.T) {
	for what, c := range map[string]events.Command{
		"by its kind":  {Verb: events.VerbAsk, Kind: "secrets", Version: "v1", Namespace: "shop", Name: "password"},
		"as an object": {Verb: events.VerbAsk, Namespace: "shop", Of: &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "password"}},
	} {
		p := New(turn(c), Options{})
		if next := p.Next(); len(next) > 0 {
			t.Errorf("%s: the next requests are %+v, want none", what, next)
		}
		if results, done := p.Results(); !done || results[0].Status != events.Refused || results[0].Reason != "Malformed" {
			t.Errorf("%s: done %t, %+v", what, done, results)
		}
	}
}

// A missing scale reveals no content of a Secret, and an autoscaler must get the same answer as
// for any other kind.
func TestTheScaleOfASecretIsAsked(t *testing.T) {
	p := New(turn(events.Command{
		Verb: events.VerbAsk, Namespace: "shop", Subresource: query.SubReadings,
		Of: &metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "password"},
	}), Options{})
	if next := p.Next(); len(next) != 1 || next[0].Verb != Search || next[0].Subresource != query.SubReadings {
		t.Errorf("the requests are %+v, want the search for readings", next)
	}
}
