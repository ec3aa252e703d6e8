package auditlog

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

func TestOperationOf(t *testing.T) {
	for id, want := range map[string]operation{
		"TURN_job-controller.17.2":   {"TURN_job-controller", 17, 2},
		"TURN_job-controller.17.0.3": {"TURN_job-controller", 17, 0},
	} {
		if got, ok := operationOf(id); !ok || got != want {
			t.Errorf("%s is %+v, %v", id, got, ok)
		}
	}
	for _, id := range []string{"", "6e1d6a0c-91a9", "TURN_x.y.0", "TURN_x.1", "OUTCOME_x.1.0"} {
		if got, ok := operationOf(id); ok {
			t.Errorf("%q is %+v", id, got)
		}
	}
}

// TestTheAuditLogIsHeldAgainstTheRecord: the comparison goes both ways, within the time that both
// cover.
func TestTheAuditLogIsHeldAgainstTheRecord(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	const turns = "TURN_c"
	result := func(status events.Status, id string, minute int) said {
		return said{events.Result{Status: status, AuditID: id}, at(minute)}
	}
	record := func() *told {
		r := newTold()
		r.results = map[operation]said{
			{turns, 1, 0}: result(events.Applied, "TURN_c.1.0", 10),
			{turns, 2, 0}: result(events.Applied, "TURN_c.2.0", 20),
			{turns, 3, 0}: result(events.Conflict, "", 25),
			{turns, 5, 0}: result(events.Applied, "TURN_c.5.0", 26),
			{turns, 6, 0}: result(events.Applied, "TURN_c.6.0", 55), // the audit log ends before
			{turns, 8, 0}: result(events.Applied, "TURN_c.8.0", 5),  // it begins within the turn
		}
		unsure := r.results[operation{turns, 5, 0}]
		unsure.Unsure = true
		r.results[operation{turns, 5, 0}] = unsure
		for d, s := range r.results {
			r.stored[d], r.answered[d] = s.at.Add(-time.Second), true
		}
		r.stored[operation{turns, 8, 0}] = at(1)
		r.stored[operation{turns, 10, 0}] = at(51) // is under way
		r.first[operation{turns, 4, 0}] = 2
		r.begins[turns], r.ends[turns], r.since = at(5), at(60), at(5)
		return r
	}
	write := func(id string, minute int) check.Write {
		return check.Write{ID: id, User: "mill", Foreign: true, Verb: "patch", At: at(minute), Ended: true, Code: 200}
	}
	foreign := check.Write{ID: "foreign", User: "foreign", Foreign: true, At: at(2), Ended: true, Code: 200}
	failed := write("TURN_c.3.0", 25)
	failed.Code = 409
	event := write("an Event", 30)
	event.Ref.Kind = kinds.Events.Name
	honest := []check.Write{
		foreign, write("TURN_c.9.0", 3), write("TURN_c.1.0", 10), write("TURN_c.4.0", 20), failed, event, write("TURN_c.1.0.2", 50), write("TURN_c.10.0", 51),
	}
	about, found := record().compare(honest)
	if len(found) > 0 {
		t.Errorf("found: %v", found)
	}
	if want := (Audited{From: at(2), To: at(51), Writes: 3, Outcomes: 2, Open: 3}); *about != want {
		t.Errorf("held against each other: %+v, want %+v", *about, want)
	}
	for name, c := range map[string]struct {
		writes []check.Write
		want   string
	}{
		"a write without an outcome":        {append(honest, write("TURN_c.7.0", 30)), "TURN_c"},
		"a write whose outcome is another":  {append(honest, write("TURN_c.3.0", 25)), "TURN_c"},
		"a write of ours for no turn":       {append(honest, write("stranger", 30)), "audit log"},
		"an outcome that was never a write": {append([]check.Write{foreign, write("TURN_c.1.0", 10)}, write("TURN_c.1.0.2", 50)), "TURN_c"},
	} {
		if _, found := record().compare(c.writes); len(found) != 1 || found[0].Stream != c.want {
			t.Errorf("%s: %v", name, found)
		}
	}
}

// TestAnOlderRecordVouchesForNothing: the bus was replaced, while the API server's audit log
// continues. The log has operations of the earlier record with the same ids.
func TestAnOlderRecordVouchesForNothing(t *testing.T) {
	const turns = "TURN_x"
	begin := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	record := newTold()
	record.begins[turns], record.ends[turns] = begin, begin.Add(time.Hour)
	record.stored[operation{turns, 7, 0}], record.answered[operation{turns, 7, 0}] = begin.Add(time.Minute), true
	record.results[operation{turns, 7, 1}] = said{
		events.Result{Command: 1, Status: events.Applied, AuditID: "TURN_x.7.1", Ref: events.Ref{Kind: "pods", Namespace: "a", Name: "p"}}, begin.Add(time.Minute),
	}
	at := func(id string, after time.Duration) check.Write {
		return check.Write{ID: id, Verb: "create", At: begin.Add(after), Ended: true, Code: 201, User: "millrace-writer"}
	}
	for what, c := range map[string]struct {
		write check.Write
		says  string
	}{
		"it was made":        {at("TURN_x.7.1", time.Minute), ""},
		"another one was":    {at("TURN_x.7.1", -time.Hour), "the audit log lacks it"},
		"the clock was slow": {at("TURN_x.7.1", time.Minute-time.Second), ""},
	} {
		about, found := record.compare([]check.Write{at("others", -2*time.Hour), c.write, at("later", 2*time.Hour)})
		var all []string
		for _, f := range found {
			if f.Stream == turns {
				all = append(all, f.What)
			}
		}
		if got := strings.Join(all, "\n"); got == "" != (c.says == "") || !strings.Contains(got, c.says) || about.Outcomes != 1 {
			t.Errorf("when %s it says %q of %+v", what, got, about)
		}
	}
}
