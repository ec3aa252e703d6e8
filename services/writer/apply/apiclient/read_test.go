package apiclient_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// The built-in roles let some controllers list objects that they may not get.
func TestWhoMayNotGetLists(t *testing.T) {
	s := applytest.Serve(t)
	d := applytest.Open(t, s)
	applytest.Carry(t, d, plan.Options{}, applytest.Creates(2)...)
	s.Break(func(r apiservertest.Request) apiservertest.Fault {
		if r.Method == http.MethodGet && !r.Query.Has("fieldSelector") {
			return apiservertest.Fault{Code: http.StatusForbidden}
		}
		return apiservertest.Fault{}
	})
	for i, r := range applytest.Carry(t, d, plan.Options{Again: true}, append(applytest.Creates(2), applytest.Deletion("gone", "g"))...) {
		if r.Status != events.Unchanged || r.UID == "" {
			t.Errorf("command %d: %+v", i, r)
		}
	}
	gets := 0
	for _, r := range s.Requests() {
		if r.Method == http.MethodGet && !r.Query.Has("fieldSelector") {
			gets++
		}
	}
	if gets > 2 { // the first create's and, beside it, the delete's
		t.Errorf("asked %d times for what is forbidden", gets)
	}
}

// The door learns that a role allows list and not get from a list that succeeds, also with no
// item, and not from one that fails. If both are forbidden the answer is that of the get.
func TestWhenAListIsTakenForAGet(t *testing.T) {
	for what, c := range map[string]struct {
		name string
		list int // the code of lists; 0: success
		code int
		says string
		gets int // of two looks
	}{
		"it is there":         {"there", 0, 200, "", 1},
		"it is not":           {"gone", 0, 404, "not found", 1},
		"lists fail":          {"there", 500, 500, "may not list", 2},
		"lists are forbidden": {"there", 403, 403, "may not get", 2},
	} {
		s := applytest.Serve(t)
		s.Put(applytest.PodPath+"there", "u", map[string]any{})
		s.Break(func(r apiservertest.Request) apiservertest.Fault {
			if r.Query.Has("fieldSelector") {
				return apiservertest.Fault{Code: c.list, Message: "may not list"}
			}
			return apiservertest.Fault{Code: http.StatusForbidden, Message: "may not get"}
		})
		d := applytest.Open(t, s)
		for range 2 {
			r := plan.Request{Verb: plan.Look, Kind: "pods", Version: "v1", Namespace: "ns", Name: c.name}
			if got := d.Do(t.Context(), applytest.Actor, r, ""); got.Code != c.code || !strings.Contains(got.Message, c.says) {
				t.Errorf("%s: the answer is %+v, want code %d with %q", what, got, c.code, c.says)
			}
		}
		if gets := s.Answered("GET " + applytest.PodPath + c.name); gets != c.gets {
			t.Errorf("%s: the API server is asked %d times for what is forbidden, want %d", what, gets, c.gets)
		}
	}
}
