package events_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// TestWhatIsSaidIsBounded: what is larger than a report can be is none, and no part of it is
// kept.
func TestWhatIsSaidIsBounded(t *testing.T) {
	long := strings.Repeat("long ", 100_000)
	for what, data := range map[string]string{
		"a report":                        `{"replica":"r","stalled":[{"controller":"c","detail":"` + long + `"}]}`,
		"a replica with a boundless name": `{"replica":"` + long[:1000] + `"}`,
	} {
		if r, err := events.DecodeReport(events.Message{Data: []byte(data)}); err == nil || len(err.Error()) > 200 {
			t.Errorf("%s is read: %.100v, %.100v", what, r, err)
		}
	}
	d := events.Damage{Kind: "pods", By: "r", Hole: events.Hole{Reason: strings.Repeat("ä", 2000), From: 3}, End: 7}
	got, ok := events.DecodeDamage(d.Encode())
	if !ok || len(got.Hole.Reason) > 500 || !strings.HasPrefix(got.Hole.Reason, "ää") || strings.Contains(got.Hole.Reason, "\uFFFD") || got.End != 7 || got.Hole.From != 3 {
		t.Errorf("damage is read again as %+v, %t", got, ok)
	}
	for what, data := range map[string]string{
		"a megabyte": `{"kind":"pods","hole":{"reason":"` + long + `"}}`, "no kind": `{"end":3}`, "no JSON": `{`,
		"a boundless name": `{"kind":"pods","by":"` + long[:1000] + `"}`,
	} {
		if _, ok := events.DecodeDamage([]byte(data)); ok {
			t.Errorf("%s is damage", what)
		}
	}
}
