package manifests

import "testing"

// TestManifestsAreSafe: whatever way of Kubernetes that we ship has users, TLS, a Secret for
// each service alone, and policies for who reaches what.
func TestManifestsAreSafe(t *testing.T) {
	for name := range installations {
		for _, wrong := range unsafe(decoded(t, rendered(t, name))) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}
