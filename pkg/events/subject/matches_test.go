package subject_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/subject"
)

// A filter matches as in the server: * is one token, > is all that follow, and at least one.
func TestWhatAFilterCovers(t *testing.T) {
	for _, c := range []struct {
		filter, subject string
		want            bool
	}{
		{"", "ev.pods.shop.a", true}, {"ev.pods.shop.a", "ev.pods.shop.a", true}, {">", "ev", true},
		{"ev.>", "ev.pods.shop.a", true}, {"ev.pods.*.a", "ev.pods.shop.a", true}, {"*", "ev", true},
		{"ev.pods.shop.b", "ev.pods.shop.a", false}, {"turn.>", "ev.pods.shop.a", false}, {"ev.*", "ev.pods.shop.a", false},
		{"ev.pods", "ev.pods.shop", false}, {"ev.pods.shop", "ev.pods", false}, {"ev.>", "ev", false}, {"*.*", "ev", false},
	} {
		if got := subject.Matches(c.filter, c.subject); got != c.want {
			t.Errorf("%q covers %q: %v", c.filter, c.subject, got)
		}
	}
}
