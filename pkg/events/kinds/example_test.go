package kinds_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// A kind is named by its resource and group.
func ExampleLookup() {
	kind, known := kinds.Lookup("deployments.apps")
	fmt.Println(kind, kind.GVK(), known)
	_, known = kinds.Lookup("widgets.example.com")
	fmt.Println(known)
	// Output:
	// deployments.apps/v1 apps/v1, Kind=Deployment true
	// false
}

// Versions are compared by their numbers.
func ExampleCompareVersions() {
	fmt.Println(kinds.CompareVersions("9", "10"))
	// Output: -1
}
