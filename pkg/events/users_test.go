package events

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pkg/events/query"
)

// The writer searches for answers that no single request gives, and never requests them as a
// subresource of the object.
func TestWhatIsSearched(t *testing.T) {
	for sub, want := range map[string]bool{query.SubContents: true, query.SubUsers: true, query.SubTypes: true, query.SubReadings: true, query.SubReview: true, query.SubExpiry: true, query.SubObjects: true, "scale": false, "": false} {
		if got := (Command{Verb: VerbAsk, Subresource: sub}).Searches(); got != want {
			t.Errorf("an ask for %q is searched: %v", sub, got)
		}
		if (Command{Verb: VerbUpdate, Subresource: sub}).Searches() {
			t.Errorf("an update of %q is searched", sub)
		}
	}
}

// If encoding lost a condition, a forbidden command would be carried out.
func TestTheConditionThatNothingNeedsTravels(t *testing.T) {
	of := func(when If) Turn {
		return Turn{Controller: "c", Lane: LaneWrite, Key: Key{Name: "a"}, Commands: []Command{{
			Verb: VerbPatch, Kind: "servicecidrs.networking.k8s.io", Version: "v1", Name: "a", If: &when, Body: []byte(`{}`),
		}}}
	}
	turn, other := of(If{UID: "u", Unused: true}), of(If{UID: "u"})
	if text := string(turn.AppendDecision(nil)); !strings.Contains(text, `"if":{"uid":"u","unused":true}`) {
		t.Errorf("the decision is written as %s", text)
	}
	if turn.SameDecision(other) {
		t.Error("a command under the condition is the same as one without")
	}
}
