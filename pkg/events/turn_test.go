package events_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Each command gets its own body and notices back, however many share them.
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

// Decisions are equal exactly if their encoded bytes are equal.
func TestTheSameDecisionIsTheSameToTheByte(t *testing.T) {
	at := time.Date(2030, 1, 1, 12, 0, 0, 1, time.UTC)
	turn := func(change func(*events.Turn)) events.Turn {
		wake := at
		t := events.Turn{
			Controller: "c", Key: events.Key{Name: "k"}, Lane: events.LaneWrite, Because: "why", WakeAt: &wake,
			Shapes: []json.RawMessage{[]byte(`{"a":1}`)}, Notices: []events.Notice{{Message: "done"}},
			Commands: []events.Command{{Verb: events.VerbCreate, Name: "p", Shape: 1, If: &events.If{UID: "u"}, Body: []byte(`{"b":1}`)}},
		}
		change(&t)
		return t
	}
	same := map[string]func(*events.Turn){
		"nothing":        func(*events.Turn) {},
		"another zone":   func(t *events.Turn) { w := at.In(time.FixedZone("far", 3600)); t.WakeAt = &w },
		"another moment": func(t *events.Turn) { t.Now, t.Seen, t.Digest = at, events.Position{"pods": 7}, 9 },
		"no list":        func(t *events.Turn) { t.Triggers = []events.Trigger{} },
		"spaces":         func(t *events.Turn) { t.Commands[0].Body = []byte(`{ "b": 1 }`) },
	}
	other := map[string]func(*events.Turn){
		"controller": func(t *events.Turn) { t.Controller = "d" },
		"key":        func(t *events.Turn) { t.Key.Name = "l" },
		"lane":       func(t *events.Turn) { t.Lane = events.LaneStatus },
		"reason":     func(t *events.Turn) { t.Because = "why not" },
		"no wake":    func(t *events.Turn) { t.WakeAt = nil },
		"wake":       func(t *events.Turn) { w := at.Add(1); t.WakeAt = &w },
		"shape":      func(t *events.Turn) { t.Shapes[0] = []byte(`{"a":2}`) },
		"notice":     func(t *events.Turn) { t.Notices[0].Message = "not done" },
		"body":       func(t *events.Turn) { t.Commands[0].Body = []byte(`{"b":2}`) },
		"condition":  func(t *events.Turn) { t.Commands[0].If = nil },
		"commands":   func(t *events.Turn) { t.Commands = nil },
	}
	for what, change := range same {
		if first, second := turn(same["nothing"]), turn(change); !first.SameDecision(second) || !second.SameDecision(first) {
			t.Errorf("%s makes another decision of it", what)
		}
	}
	for what, change := range other {
		if first, second := turn(same["nothing"]), turn(change); first.SameDecision(second) || second.SameDecision(first) {
			t.Errorf("another %s makes no other decision of it", what)
		}
	}
}
