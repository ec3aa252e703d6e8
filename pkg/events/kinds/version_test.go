package kinds_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Versions are ordered as numbers of any length; a version that is no number is older than all
// numbers.
func TestVersionsHaveAnOrder(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"1", "2", -1}, {"2", "1", 1}, {"7", "7", 0}, {"9", "10", -1}, {"100000000000000000000", "99999999999999999999", 1},
		{"abc", "abc", 0}, {"abc", "1", -1}, {"1", "abc", 1}, {"", "1", -1}, {"1", "", 1}, {"", "", 0}, {"abc", "abd", -1}, {"abd", "abc", -1},
	} {
		if got := kinds.CompareVersions(c.a, c.b); got != c.want {
			t.Errorf("%q and %q compare as %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
