package kinds

import (
	_ "embed"
	"slices"
	"strings"
)

//go:embed builtin.txt
var builtIn string

var builtInNames = func() (names []Name) {
	for name := range strings.FieldsSeq(builtIn) {
		names = append(names, Name(name))
	}
	return names
}()

// BuiltIn are the kinds of Kubernetes itself that can be deleted, listed and watched, of
// every version and stage of its API, sorted by name: all but those of custom resources
// and of aggregated API servers. A kind that a newer Kubernetes has may be missing.
func BuiltIn() []Name { return slices.Clone(builtInNames) }

// IsBuiltIn tells whether a kind is one of [BuiltIn].
func IsBuiltIn(name Name) bool {
	_, found := slices.BinarySearch(builtInNames, name)
	return found
}
