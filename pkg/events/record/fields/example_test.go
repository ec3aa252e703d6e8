package fields_test

import (
	"fmt"

	"github.com/millrace/millrace/pkg/events/record/fields"
)

// Diff names the fields that two versions of an object have apart.
func ExampleDiff() {
	was := fields.Tree{"spec": map[string]any{"replicas": int64(2)}}
	is := fields.Tree{"spec": map[string]any{"replicas": int64(3)}}
	for _, change := range fields.Diff(was, is) {
		fmt.Println(change.Path, fields.Text(change.Was), fields.Text(change.Is))
	}
	// Output: spec.replicas 2 3
}
