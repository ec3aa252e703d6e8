package fields

import (
	"maps"
	"reflect"
	"slices"
)

// Leaves are the values of a tree without parts, by path in the form of [Diff]. Empty values are
// left out.
func Leaves(t Tree) map[string]any {
	found := map[string]any{}
	leaves("", map[string]any(t), found)
	return found
}

func leaves(path string, value any, found map[string]any) {
	parts := branches(value)
	for name, part := range parts {
		leaves(join(path, name), part, found)
	}
	if parts == nil && value != nil && value != "" {
		if list, ok := value.([]any); !ok || len(list) > 0 {
			found[path] = value
		}
	}
}

// Apart gives the leaves in which two trees differ, sorted by path.
func Apart(was, is Tree) []Change {
	before, after := Leaves(was), Leaves(is)
	both := maps.Clone(before)
	maps.Copy(both, after)
	var found []Change
	for _, path := range slices.Sorted(maps.Keys(both)) {
		if !reflect.DeepEqual(before[path], after[path]) {
			found = append(found, Change{Path: path, Was: before[path], Is: after[path]})
		}
	}
	return found
}
