package main

import "testing"

// TestQuestionsAreAnswered runs the scenario at a small size: the scenario fails if an answer is wrong.
func TestQuestionsAreAnswered(t *testing.T) {
	metrics, err := askRecord(t.Context(), &field{who: millrace{}}, 200, 6000)
	if err != nil {
		t.Fatal(err)
	}
	if len(metrics) != 12 {
		t.Errorf("%d metrics: %v", len(metrics), metrics)
	}
}
