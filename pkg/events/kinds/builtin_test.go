package kinds

import (
	"slices"
	"testing"
)

func TestBuiltInKinds(t *testing.T) {
	all := BuiltIn()
	if !slices.IsSorted(all) || len(slices.Compact(all)) < 60 {
		t.Errorf("the list is not sorted, or lacks kinds: %v", all)
	}
	for name, want := range map[Name]bool{
		Pods.Name: true, Secrets.Name: true, Leases.Name: true, Deployments.Name: true,
		"widgets.example.com": false, "pods.metrics.k8s.io": false, "tokenreviews.authentication.k8s.io": false, "": false,
	} {
		if IsBuiltIn(name) != want {
			t.Errorf("%q is built in: %t", name, !want)
		}
	}
}
