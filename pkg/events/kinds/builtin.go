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

// BuiltIn are the kinds of Kubernetes itself that can be deleted, listed and watched, of every
// version and stage of its API, sorted by name. It does not include custom resources and kinds
// of aggregated API servers, and may lack kinds of newer Kubernetes versions.
func BuiltIn() []Name { return slices.Clone(builtInNames) }

// IsBuiltIn reports whether a kind is in [BuiltIn].
func IsBuiltIn(name Name) bool {
	_, found := slices.BinarySearch(builtInNames, name)
	return found
}
