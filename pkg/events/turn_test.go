package events_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// Each command finds its own body and notices again, however many share them.
func TestPackMixesNothingUp(t *testing.T) {
	turn := events.Turn{Controller: "c"}
	body := func(i int) string { return fmt.Sprintf(`{"kind":"Pod","shape":%d}`, i%2) }
	told := func(i int) string { return fmt.Sprint("applied ", i%3) }
	failed := func(i int) string { return fmt.Sprint("failed ", i%2) }
	for i := range 12 {
		turn.Commands = append(turn.Commands, events.Command{
			Verb: events.VerbCreate, Kind: "pods", Name: fmt.Sprint("p", i), Body: json.RawMessage(body(i)),
			OnApplied: &events.Notice{Message: told(i)}, OnFailed: &events.Notice{Message: failed(i)},
		})
	}
	turn.Pack()
	if len(turn.Shapes) != 2 || len(turn.Notices) != 5 {
		t.Fatalf("packed into %d shapes and %d notices, want 2 and 5", len(turn.Shapes), len(turn.Notices))
	}
	for i, c := range turn.Commands {
		if got := string(turn.BodyOf(c)); got != body(i) {
			t.Errorf("the body of %s is %s", c.Name, got)
		}
		if got := turn.NoticeAt(c.Applied).Message + ", " + turn.NoticeAt(c.Failed).Message; got != told(i)+", "+failed(i) {
			t.Errorf("the notices of %s are %s", c.Name, got)
		}
	}
}

func TestWhatAnOutcomeComesTo(t *testing.T) {
	for _, c := range []struct {
		of      []events.Status
		ok      bool
		failure events.Status // "": none
	}{
		{[]events.Status{events.Applied, events.Unchanged, events.DryRun}, true, ""},
		{nil, true, ""},
		{[]events.Status{events.Applied, events.Conflict}, false, events.Conflict},
		{[]events.Status{events.Skipped, events.Failed, events.Refused}, false, events.Failed},
		{[]events.Status{events.Absent}, false, events.Absent},
		{[]events.Status{events.Skipped}, false, ""},
	} {
		var o events.Outcome
		for _, s := range c.of {
			o.Results = append(o.Results, events.Result{Status: s})
		}
		failure, failed := o.Failure()
		if o.OK() != c.ok || failed != (c.failure != "") || failure.Status != c.failure {
			t.Errorf("%v: ok %t, failure %q (%t)", c.of, o.OK(), failure.Status, failed)
		}
	}
}
