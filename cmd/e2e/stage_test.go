package main

import (
	"slices"
	"testing"
)

// TestTheNegativeControlLacksWhatIsTested: the negative control lacks all controllers that Millrace has,
// except those that every namespace needs.
func TestTheNegativeControlLacksWhatIsTested(t *testing.T) {
	all, control := underTest(options{by: "millrace"}), underTest(options{by: "none"})
	if len(control) != len(all)-len(furniture) {
		t.Errorf("%d of %d controllers are missing", len(control), len(all))
	}
	for _, name := range all {
		if slices.Contains(control, name) == slices.Contains(furniture, name) {
			t.Errorf("%s is missing: %t", name, slices.Contains(control, name))
		}
	}
	if some := underTest(options{by: "none", which: "job-controller,cronjob-controller"}); !slices.Equal(some, []string{"job-controller", "cronjob-controller"}) {
		t.Errorf("those that are named are %q", some)
	}
}
