package report_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/report"
)

// A message that is larger than a report or a damage report can be is refused as a whole.
func TestWhatIsSaidIsBounded(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for what, data := range map[string]string{
		"a report":                        `{"replica":"r","stalled":[{"controller":"c","detail":"` + long + `"}]}`,
		"a replica with a boundless name": `{"replica":"` + long[:1000] + `"}`,
	} {
		if r, err := report.DecodeReport(events.Message{Data: []byte(data)}); err == nil || len(err.Error()) > 200 {
			t.Errorf("%s is read: %.100v, %.100v", what, r, err)
		}
	}
	d := report.Damage{Kind: "pods", By: "r", Hole: events.Hole{Reason: strings.Repeat("ä", 2000), From: 3}, End: 7}
	got, ok := report.DecodeDamage(d.Encode())
	if !ok || len(got.Hole.Reason) > 500 || !strings.HasPrefix(got.Hole.Reason, "ää") || strings.Contains(got.Hole.Reason, "\uFFFD") || got.End != 7 || got.Hole.From != 3 {
		t.Errorf("damage is read again as %+v, %t", got, ok)
	}
	for what, data := range map[string]string{
		"a megabyte": `{"kind":"pods","hole":{"reason":"` + long + `"}}`, "no kind": `{"end":3}`, "no JSON": `{`,
		"a boundless name": `{"kind":"pods","by":"` + long[:1000] + `"}`,
	} {
		if _, ok := report.DecodeDamage([]byte(data)); ok {
			t.Errorf("%s is damage", what)
		}
	}
}

// A delta settles a suspicion if it agrees with the API server's answer, or is behind it in the log.
func TestWhatSettlesASuspicion(t *testing.T) {
	there := report.Damage{Suspected: true, UID: "a", Version: "9"}
	gone := report.Damage{Suspected: true, UID: "a", Removed: true}
	for name, c := range map[string]struct {
		damage  report.Damage
		newest  events.Delta
		settled bool
	}{
		"it exists":                               {there, events.Delta{Op: events.Is, UID: "a", ResourceVersion: "8"}, true},
		"it was deleted later":                    {there, events.Delta{Op: events.Gone, UID: "a", ResourceVersion: "10"}, true},
		"another has its name since":              {there, events.Delta{Op: events.Is, UID: "b", ResourceVersion: "11"}, true},
		"it was deleted before":                   {there, events.Delta{Op: events.Gone, UID: "a", ResourceVersion: "8"}, false},
		"at the very version":                     {there, events.Delta{Op: events.Gone, UID: "a", ResourceVersion: "9"}, false},
		"a relist has not found it":               {there, events.Delta{Op: events.Gone, UID: "a", ResourceVersion: "10", Sync: true}, false},
		"of an earlier version of ours":           {report.Damage{Suspected: true, UID: "a"}, events.Delta{Op: events.Gone, UID: "a", ResourceVersion: "10"}, false},
		"it is gone, and the log says so":         {gone, events.Delta{Op: events.Gone, UID: "a", ResourceVersion: "10"}, true},
		"it is gone, and the log does not say so": {gone, events.Delta{Op: events.Is, UID: "a", ResourceVersion: "10"}, false},
		"it is gone, and another has its name":    {gone, events.Delta{Op: events.Is, UID: "b", ResourceVersion: "10"}, true},
		"no suspicion":                            {report.Damage{UID: "a", Version: "9"}, events.Delta{Op: events.Is, UID: "a", ResourceVersion: "9"}, false},
		"without a uid":                           {report.Damage{Suspected: true, Version: "9"}, events.Delta{Op: events.Is, ResourceVersion: "9"}, false},
	} {
		if got := c.damage.Settled(c.newest); got != c.settled {
			t.Errorf("%s: settled %t, want %t", name, got, c.settled)
		}
	}
}
