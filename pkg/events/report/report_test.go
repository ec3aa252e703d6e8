package report_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
)

// padded is a JSON text of exactly the given number of bytes.
func padded(text string, to int) []byte { return []byte(text + strings.Repeat(" ", to-len(text))) }

// A report is cut when it is encoded, and one that is too large is not decoded. The original
// report does not change.
func TestReportsAreBounded(t *testing.T) {
	long := strings.Repeat("x", 600)
	sent := report.Report{Replica: "r", Stalled: []report.Stall{{Controller: "c", Condition: report.Deciding, Detail: long}}}
	for range 101 {
		sent.Unwatched = append(sent.Unwatched, report.Unwatched{Kind: "pods", Reason: long})
	}
	m, err := sent.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := report.DecodeReport(m)
	if err != nil || got.Replica != "r" || len(got.Stalled[0].Detail) != 500 || len(got.Unwatched) != 100 || len(got.Unwatched[99].Reason) != 500 {
		t.Errorf("the report is read as %.100v, %v; want its texts and lists cut to their bounds", got, err)
	}
	if len(sent.Stalled[0].Detail) != 600 || len(sent.Unwatched) != 101 || len(sent.Unwatched[0].Reason) != 600 {
		t.Error("the report that was sent has changed")
	}
	named := func(n int) []byte { return []byte(`{"replica":"` + strings.Repeat("r", n) + `"}`) }
	for name, c := range map[string]struct {
		data []byte
		read bool
	}{
		"as long as may be": {padded(`{"replica":"r"}`, 256<<10), true}, "longer": {padded(`{"replica":"r"}`, 256<<10+1), false},
		"a name as long as may be": {named(256), true}, "a longer name": {named(257), false}, "no JSON": {[]byte("{"), false},
	} {
		if got, err := report.DecodeReport(events.Message{Data: c.data}); (err == nil) != c.read || c.read == (got.Replica == "") {
			t.Errorf("%s: %.60v, %v", name, got, err)
		}
	}
}

// Every condition has a reason and an advice; the reason of a later version's condition is its
// name.
func TestConditionsAreExplained(t *testing.T) {
	all := report.Conditions()
	if len(all) != 9 || !slices.IsSorted(all) {
		t.Errorf("the conditions are %v", all)
	}
	for _, c := range all {
		if c.Reason() == string(c) || c.Advice() == "" || c.Advice() == c.Reason() {
			t.Errorf("%s has the reason %q and the advice %q, want texts of their own", c, c.Reason(), c.Advice())
		}
	}
	if later := report.Condition("Later"); later.Reason() != "Later" || later.Advice() != "" {
		t.Errorf("a later condition: %q, %q", later.Reason(), later.Advice())
	}
	stall := report.Stall{Condition: report.KeysWait}
	if stall.String() != report.KeysWait.Reason() {
		t.Errorf("a stall without a detail is written %s", stall)
	}
	if stall.Detail = "three"; stall.String() != report.KeysWait.Reason()+": three" {
		t.Errorf("a stall with a detail is written %s", stall)
	}
}

// A writer's heartbeat is decoded up to its limits; its turns in flight are all that it was
// given.
func TestWhatWritersSay(t *testing.T) {
	named := func(n int) []byte { return []byte(`{"writer":"` + strings.Repeat("w", n) + `"}`) }
	for name, c := range map[string]struct {
		data []byte
		read bool
	}{
		"as long as may be": {padded(`{"writer":"w"}`, 256<<10), true}, "longer": {padded(`{"writer":"w"}`, 256<<10+1), false},
		"a name as long as may be": {named(256), true}, "a longer name": {named(257), false}, "no name": {named(0), false},
		"half of it": {[]byte(`{"writer":"w","number":"x"}`), false},
	} {
		if got, ok := report.DecodeHeartbeat(c.data); ok != c.read || name == "half of it" && got.Writer != "" {
			t.Errorf("%s: %.60v, %t", name, got, ok)
		}
	}
	said := report.Heartbeat{Writer: "w", Number: 7, Turns: map[string][]uint64{"c": {1, 2}}, Waiting: map[string][]uint64{"c": {3}}}
	if got, ok := report.DecodeHeartbeat(said.Encode()); !ok || !reflect.DeepEqual(got, said) {
		t.Errorf("the heartbeat is read as %+v, want as it was sent", got)
	}
	if got := said.InFlight("c"); !slices.Equal(got, []uint64{1, 2, 3}) || !slices.Equal(said.Turns["c"], []uint64{1, 2}) {
		t.Errorf("in flight are %v", got)
	}
}
