package events

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// The writer searches for answers that no single request gives, and never requests them as a
// subresource of the object.
func TestWhatIsSearched(t *testing.T) {
	for sub, want := range map[string]bool{SubContents: true, SubUsers: true, SubTypes: true, SubReadings: true, SubReview: true, SubExpiry: true, SubObjects: true, "scale": false, "": false} {
		if got := (Command{Verb: VerbAsk, Subresource: sub}).Searches(); got != want {
			t.Errorf("an ask for %q is searched: %v", sub, got)
		}
		if (Command{Verb: VerbUpdate, Subresource: sub}).Searches() {
			t.Errorf("an update of %q is searched", sub)
		}
	}
}

// If there are too many pods to name, the answer does not say that they need nothing.
func TestUsersThatAreNotNamed(t *testing.T) {
	claim, down := &corev1.PersistentVolumeClaim{}, []User{{Name: "p", UID: "up", Own: true, Down: true}}
	if (Users{Pods: down, Count: 1}).Need(claim) {
		t.Error("a claim is needed by a pod that is shut down and does not own it")
	}
	if !(Users{Pods: down, Count: 2}).Need(claim) {
		t.Error("a claim is not needed, although one of its users is not named")
	}
}

// The users of an object, as an outcome describes them.
func TestUsersAreNamed(t *testing.T) {
	var many Users
	for range MaxUsers + 5 {
		many.Name("10.0.0.1")
	}
	if many.Count != MaxUsers+5 || len(many.Names) != MaxUsers {
		t.Errorf("%d are counted, and %d named", many.Count, len(many.Names))
	}
	for want, u := range map[string]Users{
		"nothing needs it":                 {},
		"2 need it":                        {Count: 2},
		"needed by 10.0.0.1":               {Names: []string{"10.0.0.1"}, Count: 1},
		"needed by 10.0.0.1 and 104 more":  many,
		"needed by the pod web":            {Pods: []User{{Name: "web"}}, Count: 1},
		"needed by the pod web and 1 more": {Pods: []User{{Name: "web"}}, Count: 2},
	} {
		if got := u.String(); got != want {
			t.Errorf("it says %q, want %q", got, want)
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
