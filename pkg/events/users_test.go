package events

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

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

// Of pods that are too many to be named nobody says that they need nothing.
func TestUsersThatAreNotNamed(t *testing.T) {
	claim, down := &corev1.PersistentVolumeClaim{}, []User{{Name: "p", UID: "up", Own: true, Down: true}}
	if (Users{Pods: down, Count: 1}).Need(claim) {
		t.Error("a claim is needed by a pod that is shut down and does not own it")
	}
	if !(Users{Pods: down, Count: 2}).Need(claim) {
		t.Error("a claim is not needed, although one of its users is not named")
	}
}
