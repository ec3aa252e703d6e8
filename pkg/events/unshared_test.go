package events

import (
	"strings"
	"testing"
)

// If encoding lost a condition, a forbidden command would be carried out.
func TestTheConditionThatNothingIsSharedTravels(t *testing.T) {
	of := func(when If) Turn {
		return Turn{Controller: "c", Lane: LaneWrite, Key: Key{Name: "a"}, Commands: []Command{{
			Verb: VerbPatch, Kind: "nodes", Version: "v1", Name: "a", If: &when, Body: []byte(`{}`),
		}}}
	}
	turn, other := of(If{UID: "u", Unshared: true}), of(If{UID: "u"})
	if text := string(turn.AppendDecision(nil)); !strings.Contains(text, `"if":{"uid":"u","unshared":true}`) {
		t.Errorf("the decision is written as %s", text)
	}
	if turn.SameDecision(other) {
		t.Error("a command under the condition is the same as one without")
	}
}
