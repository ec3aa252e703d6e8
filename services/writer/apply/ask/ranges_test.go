package ask_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

const nodePath = "/api/v1/nodes/"

// putNode stores a node with ranges in the API server's form.
func putNode(s *apiservertest.Server, name string, ranges ...any) {
	obj := object(name, map[string]any{})
	if len(ranges) > 0 {
		obj["spec"] = map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}
	}
	s.Put(nodePath+name, "uid-"+name, obj)
}

var gives = events.Command{
	Verb: events.VerbPatch, PatchType: types.StrategicMergePatchType, Kind: "nodes", Version: "v1", Name: "a",
	Body: []byte(`{"spec":{"podCIDR":"10.0.1.0/24","podCIDRs":["10.0.1.0/24"]}}`), If: &events.If{UID: "uid-a", Unshared: true},
}

// A range is given if no other node, of all that exist, overlaps it.
func TestARangeIsGivenWhenNoOtherNodeHasIt(t *testing.T) {
	s := applytest.Serve(t)
	putNode(s, "a")
	for i := range 1100 { // more than one page
		putNode(s, fmt.Sprintf("n%04d", i), fmt.Sprintf("10.1.%d.%d/32", i/200, i%200), "fd00::/64")
	}
	give := func() events.Result { return carry(t, open(t, s), plan.Options{}, gives)[0] }
	if r := give(); r.Status != events.Applied {
		t.Fatalf("no other node has it: %+v", r)
	}
	putNode(s, "z", "10.0.1.0/25")
	if r := give(); r.Status != events.Refused || r.Reason != plan.ReasonShared || r.Message != "z has 10.0.1.0/25" {
		t.Errorf("the last node has a part of it: %+v", r)
	}
	s.Remove(nodePath + "z")
	if r := give(); !r.OK() {
		t.Errorf("when the other node is gone the result is %+v, want the range given", r)
	}
}

// No range is given if the nodes could not be listed.
func TestNoRangeIsGivenWhileNodesCannotBeListed(t *testing.T) {
	for _, code := range []int{403, 404, 410} {
		s := applytest.Serve(t)
		putNode(s, "a")
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Path == strings.TrimSuffix(nodePath, "/") {
				return apiservertest.Fault{Code: code}
			}
			return apiservertest.Fault{}
		})
		if r := carry(t, open(t, s), plan.Options{}, gives)[0]; r.Status != events.Refused {
			t.Errorf("when nodes cannot be listed (%d) the result is %+v, want Refused", code, r)
		}
		for _, r := range s.Requests() {
			if r.Method == "PATCH" {
				t.Errorf("when nodes cannot be listed (%d) the range is given", code)
			}
		}
	}
}

// The answer omits nodes without a range: there may be thousands.
func TestRangesThatAreTold(t *testing.T) {
	s := applytest.Serve(t)
	putNode(s, "a")
	putNode(s, "b", "10.0.1.0/24")
	r := open(t, s).Do(t.Context(), actor, plan.Request{Verb: plan.Search, Kind: "nodes", Version: "v1", Name: "a", Subresource: query.SubRanges}, "")
	if want := `[{"name":"b","uid":"uid-b","ranges":["10.0.1.0/24"]}]`; string(r.Body) != want {
		t.Errorf("the answer is %s, want %s", r.Body, want)
	}
}
