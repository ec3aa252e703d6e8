package endpoint_test

import (
	"testing"

	"github.com/millrace/millrace/services/reconcilers/kube/endpoint"
)

// Upstream: pkg/controller/endpointslice/metrics, exponential buckets from 2 on.
func TestChangesAreCountedInUpstreamsBuckets(t *testing.T) {
	bounds := endpoint.PerSync()
	if len(bounds) != 15 || bounds[0] != 2 {
		t.Fatalf("the bounds are %v", bounds)
	}
	for i, bound := range bounds[1:] {
		if bound != 2*bounds[i] {
			t.Errorf("the bound behind %v is %v", bounds[i], bound)
		}
	}
}
