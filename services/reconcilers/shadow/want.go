package shadow

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/record/fields"
)

// Want is one write that a decision requests, by its effect.
type Want struct {
	Verb   events.Verb // create, delete, or update, which stands for every change
	Ref    events.Ref
	UID    types.UID
	Status bool            // of an update: to the status
	Fields []fields.Change // of an update: the leaves that would change
	Body   fields.Tree     // of a create
}

// Wants returns the effects of commands on the seen objects; seen returns nil for
// an object that does not exist. A command that would change nothing, or that only
// records Events, has none.
func Wants(commands []events.Command, seen func(events.Ref) metav1.Object) []Want {
	var wants []Want
	for _, c := range commands {
		w := Want{Verb: c.Verb, Ref: c.Ref()}
		if c.If != nil {
			w.UID = c.If.UID
		}
		switch c.Verb {
		case events.VerbCreate:
			w.Body = asCreated(named(treeOf(c.Body), c.Name))
		case events.VerbDelete:
		case events.VerbUpdate, events.VerbPatch:
			object := seen(w.Ref)
			if object == nil {
				continue
			}
			w.Verb, w.Status = events.VerbUpdate, c.Subresource == "status"
			if w.Fields = changed(c, object); len(w.Fields) == 0 {
				continue
			}
		default:
			continue
		}
		wants = append(wants, w)
	}
	return wants
}

// named gives a body the name of its command.
func named(body fields.Tree, name string) fields.Tree {
	if meta, ok := body["metadata"].(map[string]any); ok {
		meta["name"] = name
	}
	return body
}

// changed are the leaves that a command would change.
func changed(c events.Command, object metav1.Object) []fields.Change {
	was, is := treeOf(object), treeOf(c.Body)
	if c.Verb == events.VerbPatch {
		is = patched(c, was)
	}
	status := c.Subresource == "status"
	return fields.Apart(part(was, status), part(is, status))
}

// patched is an object after a patch. It is the object itself if the patch cannot
// be applied to it, which the API server would refuse as well.
func patched(c events.Command, was fields.Tree) fields.Tree {
	if c.PatchType != types.StrategicMergePatchType {
		is, _ := merge(map[string]any(was), map[string]any(treeOf(c.Body))).(map[string]any)
		return is
	}
	original, _ := json.Marshal(was) // it came from JSON
	text, err := strategicpatch.StrategicMergePatch(original, c.Body, goType(c.Kind, c.Version))
	if err != nil {
		return was
	}
	return treeOf(json.RawMessage(text))
}

// merge is RFC 7386.
func merge(target, patch any) any {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	merged := map[string]any{}
	if has, ok := target.(map[string]any); ok {
		maps.Copy(merged, has)
	}
	for name, value := range fields {
		if value == nil {
			delete(merged, name)
		} else {
			merged[name] = merge(merged[name], value)
		}
	}
	return merged
}

// goType is an empty object of a kind, or a type that tells how metadata is merged
// if the kind is not known.
func goType(kind kinds.Name, version string) any {
	gv := schema.GroupVersion{Group: kind.Group(), Version: version}
	for name := range kinds.Scheme().KnownTypes(gv) {
		if strings.EqualFold(name+"s", kind.Resource()) {
			if object, err := kinds.Scheme().New(gv.WithKind(name)); err == nil {
				return object
			}
		}
	}
	return &metav1.PartialObjectMetadata{}
}

// id identifies a want: the same effect, wanted again, has the same id.
func (w Want) id() string {
	if w.Verb == events.VerbCreate {
		body, _ := json.Marshal(unnamed(w.Body)) // it came from JSON
		return fmt.Sprint(w.Verb, w.Ref.Kind, string(body))
	}
	var b strings.Builder
	fmt.Fprint(&b, w.Verb, w.Ref, w.UID, w.Status)
	for _, f := range w.Fields {
		fmt.Fprintf(&b, "\x00%s=%s", f.Path, fields.Text(f.Is))
	}
	return b.String()
}

// unnamed is a body without its name, because the choice among several names is
// chance.
func unnamed(body fields.Tree) fields.Tree {
	meta, ok := body["metadata"].(map[string]any)
	if !ok {
		return body
	}
	kept, rest := fields.Tree{}, map[string]any{}
	for name, value := range body {
		kept[name] = value
	}
	for name, value := range meta {
		if name != "name" {
			rest[name] = value
		}
	}
	kept["metadata"] = rest
	return kept
}

// about reports whether a want and an operation concern the same thing: they change
// the same part of an object, or are both creates, or both deletes, of one kind.
func (w Want) about(d Operation) bool {
	if w.Verb != d.Verb || w.Ref.Kind != d.Ref.Kind {
		return false
	}
	return w.Verb != events.VerbUpdate || w.Ref == d.Ref && w.Status == d.Status
}

func (w Want) String() string { return what(w.Verb, w.Status, w.Ref) }

func what(verb events.Verb, status bool, ref events.Ref) string {
	if status {
		return fmt.Sprintf("%s the status of %v", verb, ref)
	}
	return fmt.Sprintf("%s %v", verb, ref)
}
