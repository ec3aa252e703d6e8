package shadow

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/millrace/millrace/pkg/events/record/fields"
)

// treeOf returns an API object, or JSON, as a tree. It is empty for a value that is
// neither.
func treeOf(object any) fields.Tree {
	text, ok := object.(json.RawMessage)
	if !ok {
		text, _ = json.Marshal(object) // an API object has a JSON form
	}
	tree := fields.Tree{}
	_ = json.Unmarshal(text, &tree) // a body that is no object has no fields
	return tree
}

// given are the fields of metadata that the API server sets, and that say nothing
// about the request.
var given = []string{
	"resourceVersion", "generation", "uid", "creationTimestamp", "managedFields", "selfLink",
	"deletionTimestamp", "deletionGracePeriodSeconds",
}

// times are fields of a status that say when something was written.
var times = []string{"lastTransitionTime", "lastUpdateTime", "lastProbeTime", "lastHeartbeatTime"}

// part is the part of an object that one request can change: its status without times,
// or everything else without the fields that the API server sets.
func part(t fields.Tree, status bool) fields.Tree {
	if status {
		return fields.Tree{"status": timeless(t["status"])}
	}
	kept := maps.Clone(t)
	for _, name := range []string{"status", "apiVersion", "kind"} {
		delete(kept, name)
	}
	if meta, ok := t["metadata"].(map[string]any); ok {
		meta = maps.Clone(meta)
		for _, name := range given {
			delete(meta, name)
		}
		kept["metadata"] = meta
	}
	return kept
}

func timeless(value any) any {
	switch v := value.(type) {
	case map[string]any:
		kept := map[string]any{}
		for name, field := range v {
			if !slices.Contains(times, name) {
				kept[name] = timeless(field)
			}
		}
		return kept
	case []any:
		kept := make([]any, len(v))
		for i := range v {
			kept[i] = timeless(v[i])
		}
		return kept
	default:
		return value
	}
}

// asCreated is the part of an object that its create requested, without a generated
// name.
func asCreated(t fields.Tree) fields.Tree {
	kept := part(t, false)
	meta, ok := kept["metadata"].(map[string]any)
	if !ok {
		return kept
	}
	if meta["generateName"] != nil {
		delete(meta, "name")
	}
	delete(meta, "generateName")
	delete(meta, "namespace")
	return kept
}

// lacks lists the fields of one value that another does not have. The other may have
// more, because an admission plug-in adds fields and sets defaults but removes none.
func lacks(path string, ours, theirs any, found []fields.Change) []fields.Change {
	switch v := ours.(type) {
	case map[string]any:
		has, _ := theirs.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			found = lacks(path+"."+name, v[name], has[name], found)
		}
	case []any:
		has, _ := theirs.([]any)
		for _, entry := range v {
			if !slices.ContainsFunc(has, func(other any) bool { return len(lacks("", entry, other, nil)) == 0 }) {
				found = append(found, fields.Change{Path: path, Was: entry, Is: nearest(entry, has)})
			}
		}
	case nil:
	default:
		if !reflect.DeepEqual(ours, theirs) {
			found = append(found, fields.Change{Path: path, Was: ours, Is: theirs})
		}
	}
	return found
}

// nearest is the entry of a list with the name of another entry; the whole list if
// there is none.
func nearest(entry any, list []any) any {
	ours, _ := entry.(map[string]any)
	for _, other := range list {
		if theirs, ok := other.(map[string]any); ok && ours["name"] != nil && ours["name"] == theirs["name"] {
			return other
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list
}
