package reader

import (
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
)

func TestDeedOf(t *testing.T) {
	for id, want := range map[string]deed{
		"TURN_job-controller.17.2":   {"TURN_job-controller", 17, 2},
		"TURN_job-controller.17.0.3": {"TURN_job-controller", 17, 0},
	} {
		if got, ok := deedOf(id); !ok || got != want {
			t.Errorf("%s is %+v, %v", id, got, ok)
		}
	}
	for _, id := range []string{"", "6e1d6a0c-91a9", "TURN_x.y.0", "TURN_x.1", "OUTCOME_x.1.0"} {
		if got, ok := deedOf(id); ok {
			t.Errorf("%q is %+v", id, got)
		}
	}
}

// TestTheAuditLogIsHeldAgainstTheRecord, both ways, and no further than both reach.
func TestTheAuditLogIsHeldAgainstTheRecord(t *testing.T) {
	begin := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(minute int) time.Time { return begin.Add(time.Duration(minute) * time.Minute) }
	const turns = "TURN_c"
	record := func() *told {
		return &told{
			results: map[deed]said{
				{turns, 1, 0}: {events.Result{Status: events.Applied, AuditID: "TURN_c.1.0"}, at(10)},
				{turns, 2, 0}: {events.Result{Status: events.Applied, AuditID: "TURN_c.2.0"}, at(20)},
				{turns, 3, 0}: {events.Result{Status: events.Conflict}, at(25)},
				{turns, 5, 0}: {events.Result{Status: events.Applied, AuditID: "TURN_c.5.0", Unsure: true}, at(26)},
				{turns, 6, 0}: {events.Result{Status: events.Applied, AuditID: "TURN_c.6.0"}, at(55)}, // the audit log ends before
			},
			first:  map[deed]uint64{{turns, 4, 0}: 2},
			begins: map[string]time.Time{turns: at(5)}, ends: map[string]time.Time{turns: at(60)},
		}
	}
	write := func(id string, minute int) check.Write {
		return check.Write{ID: id, Verb: "patch", At: at(minute), Ended: true, Code: 200}
	}
	foreign := check.Write{ID: "somebody", Foreign: true, At: at(2), Ended: true, Code: 200}
	failed := write("TURN_c.3.0", 25)
	failed.Code = 409
	honest := []check.Write{foreign, write("TURN_c.9.0", 3), write("TURN_c.1.0", 10), write("TURN_c.4.0", 20), failed, write("TURN_c.1.0.2", 50)}
	if found := record().compare(honest); len(found) > 0 {
		t.Errorf("found: %v", found)
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
		if found := record().compare(c.writes); len(found) != 1 || found[0].Stream != c.want {
			t.Errorf("%s: %v", name, found)
		}
	}
}
