package reader

import (
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/pkg/events"
)

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
