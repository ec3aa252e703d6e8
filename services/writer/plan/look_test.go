package plan

import (
	"encoding/json"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
)

// gives returns a command that gives a node a range.
func gives(name, r string) events.Command {
	return events.Command{
		Verb: events.VerbPatch, Kind: kinds.Nodes.Name, Version: "v1", Name: name, PatchType: types.StrategicMergePatchType,
		If: &events.If{UID: types.UID("uid-" + name), Unshared: true}, Body: json.RawMessage(fmt.Sprintf(`{"spec":{"podCIDRs":[%q]}}`, r)),
	}
}

// A turn reads the ranges of other objects once, and judges every command by that.
func TestRangesAreLookedForOnce(t *testing.T) {
	p := New(turn(gives("a", "10.0.1.0/24"), gives("b", "10.0.2.0/24"), gives("c", "10.0.3.0/24")), Options{})
	first := p.Next()
	if len(first) != 1 || first[0].Verb != Search || first[0].Subresource != query.SubRanges || len(p.Next()) != 0 {
		t.Fatalf("the first requests are %+v, want one search for ranges", first)
	}
	p.Answer(first[0].Command, Response{Code: 503})
	if first = p.Next(); len(first) != 1 || first[0].Verb != Search || !first[0].Wait {
		t.Fatalf("after a 503 the requests are %+v, want the search again, with a wait", first)
	}
	p.Answer(first[0].Command, Response{Code: 200, Body: json.RawMessage(`[{"name":"x","ranges":["10.0.2.0/25"]},{"name":"a","ranges":["10.0.1.0/24"]}]`)})
	writes := p.Next()
	for _, r := range writes {
		if r.Verb != Patch || r.Name == "b" {
			t.Errorf("the request %+v is made, want patches of the nodes whose range is free", r)
		}
		p.Answer(r.Command, Response{Code: 200, Object: Object{UID: "u", ResourceVersion: "9"}})
	}
	results, done := p.Results()
	if !done || len(writes) != 2 || results[1].Reason != ReasonShared || !results[0].OK() || !results[2].OK() {
		t.Errorf("the results are %+v (done: %t), want the overlapping range refused alone", results, done)
	}
}

// If two commands of a turn give one range to two nodes, the plan makes no request for the second.
func TestNoTurnGivesOneRangeTwice(t *testing.T) {
	p := New(turn(gives("a", "10.0.1.0/24"), gives("b", "10.0.0.0/16"), gives("c", "x")), Options{})
	requests := p.Next()
	p.Answer(requests[0].Command, Response{Code: 200, Body: json.RawMessage(`[]`)})
	requests = p.Next()
	if len(requests) != 1 || requests[0].Name != "a" {
		t.Fatalf("the requests are %+v, want one of node a", requests)
	}
	p.Answer(requests[0].Command, Response{Code: 200, Object: Object{UID: "u"}})
	results, done := p.Results()
	if !done || !results[0].OK() || results[1].Reason != ReasonShared || results[2].Reason != "Malformed" {
		t.Errorf("the results are %+v (done: %t), want the second refused as shared, the third as malformed", results, done)
	}
}

// The plan reads no ranges of a kind that has none.
func TestRangesOfWhatHasNone(t *testing.T) {
	c := gives("a", "10.0.1.0/24")
	c.Kind, c.Namespace = "pods", "ns"
	p := New(turn(c), Options{})
	if results, done := p.Results(); !done || results[0].Reason != "Malformed" || len(p.Next()) > 0 {
		t.Errorf("the results are %+v (done: %t), want the command refused as malformed", results, done)
	}
}
