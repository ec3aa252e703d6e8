package main

import "testing"

// TestARehearsedRecordIsReplayed plays the scenario in small: it fails where a turn is
// not decided as it was.
func TestARehearsedRecordIsReplayed(t *testing.T) {
	p, err := replayRecord(t.Context(), rehearsal{sets: 5, turns: 200, changes: 3})
	if err != nil {
		t.Fatal(err)
	}
	if p.Same != 200 || p.Deltas < 600 {
		t.Errorf("replayed: %+v", p)
	}
}
