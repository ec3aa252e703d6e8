package events

import "testing"

// What no single request can tell is found out, and never read as if it were a part of
// the object that the API server has.
func TestWhatIsSearched(t *testing.T) {
	for sub, want := range map[string]bool{SubContents: true, SubUsers: true, SubTypes: true, SubReadings: true, "scale": false, "": false} {
		if got := (Command{Verb: VerbAsk, Subresource: sub}).Searches(); got != want {
			t.Errorf("an ask for %q is searched: %v", sub, got)
		}
		if (Command{Verb: VerbUpdate, Subresource: sub}).Searches() {
			t.Errorf("an update of %q is searched", sub)
		}
	}
}
