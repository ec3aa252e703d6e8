package plan_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
)

// A command that cannot be compared with what the turn saw is refused as stale, without a
// request: it is decided again. Beyond the promise is what disagrees with that very version.
func TestWhatIsSupersededIsStale(t *testing.T) {
	for reason, why := range map[string]error{
		"Stale":          fmt.Errorf("%w: the body's .spec is not that of the key's object", events.ErrSuperseded),
		plan.NotPromised: errors.New("the body's .spec is not that of the key's object"),
	} {
		turn := events.Turn{Lane: events.Act, Commands: []events.Command{{
			Verb: events.VerbCreate, Kind: "pods", Version: "v1", Namespace: "shop", Name: "web-1", Body: []byte(`{}`),
		}}}
		p := plan.New(turn, plan.Options{Fits: func(events.Command, []byte) error { return why }})
		results, done := p.Results()
		if !done || len(p.Next()) > 0 || results[0].Status != events.Refused || results[0].Reason != reason {
			t.Errorf("%v: %+v, done %t", why, results, done)
		}
	}
}
