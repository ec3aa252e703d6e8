package network_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	upstream "k8s.io/kubernetes/pkg/api/v1/endpoints"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
)

// A controller that takes over finds Endpoints in the order in which it would have written them.
func TestSubsetsAreInUpstreamsOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var subsets []corev1.EndpointSubset
		for range rapid.IntRange(0, 4).Draw(r, "subsets") {
			subsets = append(subsets, mirrorSubset(r))
		}
		theirs, ours := upstream.RepackSubsets(subsets), endpoint.Repacked(subsets)
		if !equality.Semantic.DeepEqual(theirs, ours) {
			r.Fatalf("upstream has\n%+v\nwe have\n%+v", theirs, ours)
		}
	})
}
