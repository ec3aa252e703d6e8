package report

import (
	"maps"
	"slices"
	"testing"
)

// A key has other reasons to wait than a controller, and each has a description.
func TestWhyAKeyWaits(t *testing.T) {
	words := map[string]bool{}
	for _, c := range []Condition{NoLease, OtherReplica, Parked, BackingOff} {
		if !c.OfKey() || c.Reason() == string(c) || c.Advice() != "" {
			t.Errorf("%s is of keys: %t; %q", c, c.OfKey(), c.Reason())
		}
		words[c.Reason()] = true
	}
	for _, c := range append(Conditions(), "Later", "") {
		if c.OfKey() {
			t.Errorf("%s is of keys", c)
		}
	}
	if len(words) != 4 {
		t.Errorf("the reasons are %v", slices.Collect(maps.Keys(words)))
	}
}

// A shadow's finding is unexplained only if one side did something that the other never did.
func TestWhichAgreementsAreExplained(t *testing.T) {
	open := slices.DeleteFunc(slices.Clone(Agreements), Agreement.Explained)
	if !slices.Equal(open, []Agreement{WeOnly, KCMOnly, Differs}) || len(Agreements) != 8 {
		t.Errorf("of %v these are unexplained: %v, want WeOnly, KCMOnly, Differs", Agreements, open)
	}
}
