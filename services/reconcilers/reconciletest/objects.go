package reconciletest

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Objects finds objects anywhere in a view; nil if there is none. A view does not record the
// kinds of its objects, so the result is the first object of the name that has only fields of
// the kind.
func Objects(view json.RawMessage) func(events.Ref) metav1.Object {
	var all any
	_ = json.Unmarshal(view, &all) // a view that is no JSON has no objects
	return func(ref events.Ref) (found metav1.Object) {
		visit(all, func(fields map[string]any) {
			meta, _ := fields["metadata"].(map[string]any)
			if namespace, _ := meta["namespace"].(string); found == nil && meta["name"] == ref.Name && namespace == ref.Namespace && meta["uid"] != nil {
				found = as(ref.Kind, fields)
			}
		})
		return found
	}
}

// visit calls each for every JSON object in a value, sorted by field names.
func visit(value any, each func(fields map[string]any)) {
	switch value := value.(type) {
	case map[string]any:
		each(value)
		for _, name := range slices.Sorted(maps.Keys(value)) {
			visit(value[name], each)
		}
	case []any:
		for _, inner := range value {
			visit(inner, each)
		}
	}
}

// as decodes a JSON object as an object of a kind; nil if that is impossible.
func as(name kinds.Name, fields map[string]any) metav1.Object {
	kind, known := kinds.Lookup(name)
	if !known {
		return nil
	}
	made, err := kinds.Scheme().New(kind.GVK())
	if err != nil {
		return nil
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(made) != nil {
		return nil
	}
	obj, _ := made.(metav1.Object)
	return obj
}
