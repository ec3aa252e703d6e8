package process

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
)

// TestAProcessTellsHowAKeyStands: the page asks each service of the process about the key in the
// path, and answers 404 for a controller that none of them runs.
func TestAProcessTellsHowAKeyStands(t *testing.T) {
	var asked []events.Key
	decides := func(_ context.Context, r *report.KeyReport) bool {
		asked = append(asked, r.Key)
		if r.Controller != "toy" {
			return false
		}
		r.Reconcilers = &report.KeyState{Waits: report.NoOutcome, Reason: "its turns have no outcome"}
		return true
	}
	writes := func(_ context.Context, r *report.KeyReport) bool {
		r.Writer = []report.TurnState{{Turn: 7, Lane: events.LaneWrite.String()}}
		return r.Controller == "toy"
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+keysPage, keysHandler([]KeyTeller{decides, writes}))
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	answer := get("/debug/keys/toy/default/web")
	var r report.KeyReport
	if err := json.Unmarshal(answer.Body.Bytes(), &r); err != nil || answer.Code != http.StatusOK {
		t.Fatalf("it answers %d %s (%v)", answer.Code, answer.Body, err)
	}
	if r.Reconcilers == nil || r.Reconcilers.Waits != report.NoOutcome || len(r.Writer) != 1 || r.Writer[0].Turn != 7 {
		t.Errorf("it answers %s", answer.Body)
	}
	if answer := get("/debug/keys/toy/-/system:node?kind=clusterroles.rbac.authorization.k8s.io"); answer.Code != http.StatusOK {
		t.Errorf("of a key without a namespace it answers %d", answer.Code)
	}
	if answer := get("/debug/keys/other/default/web"); answer.Code != http.StatusNotFound {
		t.Errorf("of a controller that does not run here it answers %d %s", answer.Code, answer.Body)
	}
	want := []events.Key{
		{Namespace: "default", Name: "web"}, {Kind: kinds.Name("clusterroles.rbac.authorization.k8s.io"), Name: "system:node"}, {Namespace: "default", Name: "web"},
	}
	if !cmp.Equal(asked, want) {
		t.Errorf("the services are asked about %v, want %v", asked, want)
	}
}
