package subject_test

import (
	"testing"

	"github.com/millrace/millrace/pkg/events/subject"
)

// A notary signs the streams of events and decisions, and no streams derived from them.
func TestWhatANotaryVouchesFor(t *testing.T) {
	for stream, want := range map[string]bool{
		subject.LogStream("pods"): true, subject.TurnStream("c"): true, subject.OutcomeStream("c"): true, subject.ShadowStream("c"): true,
		"STATE_pods": false, subject.WakeStream: false, subject.StatusStream: false, subject.NotaryStream: false, "": false,
	} {
		if got := subject.Notarized(stream); got != want {
			t.Errorf("Notarized of %q is %v, want %v", stream, got, want)
		}
	}
}
