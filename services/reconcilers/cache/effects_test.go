package cache

import (
	"testing"

	"github.com/millrace/millrace/pkg/events"
)

// A stream that had lost a position has everything again when it has a mark behind its end, or
// one at the effects of the last turn or later.
func TestWhenAViewWasToldAgain(t *testing.T) {
	for what, c := range map[string]struct {
		mark    string
		markAt  uint64
		version string
		is      bool
	}{
		"a mark at the end":          {"5", 9, "", true},
		"behind it":                  {"5", 10, "", true},
		"before it":                  {"5", 8, "", false},
		"of what was done":           {"5", 8, "5", true},
		"of later":                   {"6", 8, "5", true},
		"of earlier":                 {"4", 8, "5", false},
		"none":                       {"", 0, "5", false},
		"none, and nothing was done": {"", 0, "", false},
	} {
		k := &kindCache{mark: c.mark, markAt: c.markAt}
		if k.reportedAgain(Effect{Goal: 9, Result: events.Result{Version: c.version}}) != c.is {
			t.Errorf("%s: the effect is reported again: %t, want %t", what, !c.is, c.is)
		}
	}
}
