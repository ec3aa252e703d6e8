package plan_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
)

// A command that cannot be compared with what the turn saw is refused as stale, without a request,
// and is decided again. One that differs from that very version breaks the promise.
func TestWhatIsSupersededIsStale(t *testing.T) {
	for reason, why := range map[string]error{
		"Stale":          fmt.Errorf("%w: the body's .spec is not that of the key's object", events.ErrSuperseded),
		plan.NotPromised: errors.New("the body's .spec is not that of the key's object"),
	} {
		turn := events.Turn{Lane: events.LaneWrite, Commands: []events.Command{{
			Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "shop", Name: "web-1", Body: []byte(`{}`),
		}}}
		p := plan.New(turn, plan.Options{Fits: func(events.Command, []byte) error { return why }})
		results, done := p.Results()
		if !done || len(p.Next()) > 0 || results[0].Status != events.Refused || results[0].Reason != reason {
			t.Errorf("%v: %+v, done %t", why, results, done)
		}
	}
}

// The plan also looks for the effects of a turn that another writer may have begun if the commands
// can no longer be compared, as when the object is gone: the turn itself may have deleted it.
func TestWhatIsSupersededMayHaveBeenDone(t *testing.T) {
	turn := events.Turn{Lane: events.LaneStatus, Commands: []events.Command{{
		Verb: events.VerbUpdate, Kind: "jobs.batch", Version: "v1", Namespace: "shop", Name: "once", Subresource: "status",
		If: &events.If{UID: "uid", ResourceVersion: "7"}, Body: []byte(`{"status":{"succeeded":1}}`),
	}}}
	stale := func(events.Command, []byte) error {
		return fmt.Errorf("%w: the key's object is not known", events.ErrSuperseded)
	}
	p := plan.New(turn, plan.Options{Again: true, Fits: stale})
	next := p.Next()
	if len(next) != 1 || next[0].Verb.Writes() {
		t.Fatalf("the requests are %+v, want a look at the object", next)
	}
	p.Answer(next[0].Command, plan.Response{Code: 404, Reason: "NotFound"})
	results, done := p.Results()
	if !done || results[0].Status != events.Refused || results[0].Reason != "Stale" || !results[0].Unsure {
		t.Errorf("%+v, done %t; want a refusal that says that it is unsure", results, done)
	}
}
