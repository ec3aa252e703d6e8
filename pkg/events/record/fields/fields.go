// Package fields decodes the bodies of deltas into trees of fields, and compares them. It is
// pure.
package fields

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// Tree is an object as decoded JSON.
type Tree map[string]any

// Of gives the fields of a delta's object, exactly those on record, with apiVersion and kind.
//
// Errors: the body cannot be read.
func Of(kind kinds.Kind, d events.Delta) (Tree, error) {
	tree := Tree{}
	if d.ContentType == kinds.JSON {
		if err := json.Unmarshal(d.Body, &tree); err != nil {
			return nil, fmt.Errorf("read %v at version %s: %w", d.Ref, d.ResourceVersion, err)
		}
		return tree, nil
	}
	if d.Form != "" {
		kind.Form = d.Form // an object that was too large has another form than its kind
	}
	object, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil {
		return nil, fmt.Errorf("read %v at version %s: %w", d.Ref, d.ResourceVersion, err)
	}
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &tree)
	}
	if err != nil {
		return nil, fmt.Errorf("read %v at version %s: %w", d.Ref, d.ResourceVersion, err)
	}
	tree["apiVersion"], tree["kind"] = kind.APIVersion(), kind.Kind
	return tree, nil
}

// Get is the value at a path of names; nil when there is none.
func (t Tree) Get(names ...string) any {
	var value any = map[string]any(t)
	for _, name := range names {
		part, _ := value.(map[string]any)
		value = part[name]
	}
	return value
}

// Change is one field that differs. Was is nil when the field was added, and Is when it was
// removed.
type Change struct {
	Path string `json:"path"`
	Was  any    `json:"was,omitempty"`
	Is   any    `json:"is,omitempty"`
}

// quiet are fields that change with every write and mean nothing by themselves.
var quiet = []string{"metadata.resourceVersion", "metadata.generation", "metadata.managedFields"}

// Diff lists the fields in which two objects differ, by path. List entries are matched by the
// field that names them, not by index.
func Diff(was, is Tree) []Change {
	var found []Change
	compare("", any(map[string]any(was)), any(map[string]any(is)), &found)
	return slices.DeleteFunc(found, func(c Change) bool { return slices.Contains(quiet, c.Path) })
}

func compare(path string, was, is any, found *[]Change) {
	if reflect.DeepEqual(was, is) {
		return
	}
	before, after := branches(was), branches(is)
	if before == nil || after == nil {
		*found = append(*found, Change{Path: path, Was: was, Is: is})
		return
	}
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		compare(join(path, name), before[name], after[name], found)
	}
}

// branches are the parts of a value, by name; nil when its parts cannot be compared one by one.
func branches(value any) map[string]any {
	switch v := value.(type) {
	case map[string]any:
		return v
	case []any:
		return entries(v)
	default:
		return nil
	}
}

// naming are the fields that name the entries of lists.
var naming = []string{"name", "type", "uid", "containerPort", "port", "ip", "key", "mountPath", "topologyKey"}

// entries gives the entries of a list by name; nil when no field names all of them.
func entries(list []any) map[string]any {
	for _, field := range naming {
		named := make(map[string]any, len(list))
		for _, entry := range list {
			fields, _ := entry.(map[string]any)
			name, there := fields[field]
			if !there {
				break
			}
			named[fmt.Sprintf("[%v]", name)] = entry
		}
		if len(list) > 0 && len(named) == len(list) {
			return named
		}
	}
	return nil
}

func join(path, name string) string {
	switch {
	case path == "" || strings.HasPrefix(name, "["):
		return path + name
	case strings.ContainsAny(name, "./"):
		return path + "[" + name + "]"
	default:
		return path + "." + name
	}
}

// Within reports whether a change affects a field, a part of it, or a field that contains it:
// ".spec.replicas" and "spec.replicas" are the same.
func (c Change) Within(path string) bool {
	path = strings.TrimPrefix(path, ".")
	return c.Path == path || below(c.Path, path) || below(path, c.Path)
}

func below(path, above string) bool {
	rest, found := strings.CutPrefix(path, above)
	return found && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

// Text writes a value for people: a string as it is, any other as JSON, and nil as "".
func Text(value any) string {
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	text, _ := json.Marshal(value) // cannot fail: the value was decoded from JSON
	return string(text)
}
