package manifests

import "testing"

// TestManifestsAreSafe: every installation for Kubernetes that we ship has users, TLS, a Secret of its own
// for each service, and network policies between pods.
func TestManifestsAreSafe(t *testing.T) {
	for name := range installations {
		for _, wrong := range unsafe(decoded(t, rendered(t, name))) {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}
