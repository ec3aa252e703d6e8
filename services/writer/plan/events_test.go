package plan

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// Users get an Event for an applied command and for one that the API server rejected, but not for
// an effect that existed before, nor for a refusal without a request.
func TestWhoIsToldOfAResult(t *testing.T) {
	turn := events.Turn{
		Commands: []events.Command{{Name: "p", Applied: 1, Failed: 2}, {Name: "q"}},
		Notices:  []events.Notice{{Reason: "Created", Message: "made {name}"}, {Reason: "Failed", Message: "no {name}: {error}"}},
	}
	for what, c := range map[string]struct {
		result events.Result
		want   string
	}{
		"applied":                {events.Result{Status: events.Applied}, "0 Created made p"},
		"there before":           {events.Result{Status: events.Unchanged}, ""},
		"failed":                 {events.Result{Status: events.Failed, Message: "away"}, "0 Failed no p: away"},
		"refused":                {events.Result{Status: events.Refused, Code: 403, Message: "quota"}, "0 Failed no p: quota"},
		"refused, not asked":     {events.Result{Status: events.Refused, Message: "stale"}, ""},
		"in conflict":            {events.Result{Status: events.Conflict, Code: 409, Message: "taken"}, "0 Failed no p: taken"},
		"its namespace goes":     {events.Result{Status: events.Refused, Code: 403, Cause: "NamespaceTerminating"}, ""},
		"it fails and that goes": {events.Result{Status: events.Failed, Cause: "NamespaceTerminating"}, ""},
		"applied, as dry run":    {events.Result{Status: events.DryRun}, ""},
		"no notice":              {events.Result{Command: 1, Status: events.Applied}, ""},
		"no such command":        {events.Result{Command: 2, Status: events.Applied}, ""},
		"before all commands":    {events.Result{Command: -1, Status: events.Applied}, ""},
	} {
		got := ""
		for _, told := range Events(turn, []events.Result{c.result}) {
			got = fmt.Sprint(told.Command, " ", told.Reason, " ", told.Message)
		}
		if got != c.want {
			t.Errorf("%s: told is %q, want %q", what, got, c.want)
		}
	}
}
