package main

import "testing"

// TestARehearsedRecordIsReplayed runs the scenario at a small size: the scenario fails if a turn is not
// decided as recorded.
func TestARehearsedRecordIsReplayed(t *testing.T) {
	p, err := replayRecord(t.Context(), rehearsal{sets: 5, turns: 200, changes: 3})
	if err != nil {
		t.Fatal(err)
	}
	if p.Same != 200 || p.Deltas < 600 {
		t.Errorf("replayed: %+v", p)
	}
}

// TestARehearsedRecordIsVerified runs that scenario at a small size: the scenario fails if a message is not
// proven, on the bus or in a file.
func TestARehearsedRecordIsVerified(t *testing.T) {
	p, err := verifyRecord(t.Context(), rehearsal{sets: 5, turns: 20, changes: 30})
	if err != nil {
		t.Fatal(err)
	}
	if p.messages < 620 || p.pages == 0 || p.stored == 0 || p.inFile == 0 {
		t.Errorf("verified: %+v", p)
	}
}
