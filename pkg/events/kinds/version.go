package kinds

import "k8s.io/apimachinery/pkg/util/resourceversion"

// CompareVersions orders two resourceVersions of one kind: -1, 0 or 1. The API
// promises this order since Kubernetes 1.35. A version that is not a number
// (only an aggregated API server could send one) is older than every number;
// two such versions are equal if they are the same text and otherwise the first
// is older, so that no reader waits for them for ever.
func CompareVersions(a, b string) int {
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil {
		return order
	}
	switch {
	case a == b:
		return 0
	case numeric(a):
		return 1
	default:
		return -1
	}
}

func numeric(version string) bool {
	_, err := resourceversion.CompareResourceVersion(version, "1")
	return err == nil
}
