package plan

import (
	"bytes"
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/query"
)

// created reports whether a live object, found under the name of a create, is what that create
// makes. It must have the same controller reference and, where the body has them, the same
// template and data. The last two distinguish the intended child from one whose name collides
// because it derives from a short hash. If the create names no controller, any object of the name
// matches: there is no owner by which to mistake it for another's.
func created(body, live json.RawMessage) bool {
	want, have := read(body), read(live)
	if want == nil || have == nil {
		return false
	}
	owner := controllerOf(want)
	if owner == "" {
		return true
	}
	if owner != controllerOf(have) {
		return false
	}
	return within(at(want, "spec", "template"), at(have, "spec", "template")) &&
		within(want["data"], have["data"])
}

// updated reports whether a live object already is what an update makes of it. Fields that the API
// server manages do not count, nor does the half of the object that the subresource does not
// write.
func updated(body, live json.RawMessage, subresource string) bool {
	want, have := read(body), read(live)
	if want == nil || have == nil {
		return false
	}
	for _, object := range []map[string]any{want, have} {
		delete(object, "kind")
		delete(object, "apiVersion")
		switch subresource {
		case "status":
			delete(object, "spec")
		case query.SubApproval: // the approval is in the status; the rest does not change
		default:
			delete(object, "status")
		}
		if metadata, ok := object["metadata"].(map[string]any); ok {
			for _, field := range []string{
				"resourceVersion", "generation", "managedFields", "creationTimestamp", "selfLink",
				"name", "namespace", "deletionTimestamp", "deletionGracePeriodSeconds",
			} {
				delete(metadata, field)
			}
		}
	}
	return within(want, have) && within(have, want)
}

// merged reports whether a live object already is what a merge patch makes of it. The preconditions
// in the patch do not count.
func merged(patch, live json.RawMessage) bool {
	want, have := read(patch), read(live)
	if want == nil || have == nil {
		return false
	}
	if metadata, ok := want["metadata"].(map[string]any); ok {
		delete(metadata, "uid")
		delete(metadata, "resourceVersion")
	}
	return carries(want, have)
}

// carries reports whether an object has every field of a merge patch: objects are merged, null
// removes a field, and all else is replaced.
func carries(want, have any) bool {
	fields, ok := want.(map[string]any)
	if !ok {
		return within(want, have) && within(have, want)
	}
	there, _ := have.(map[string]any)
	for field, value := range fields {
		if !carries(value, there[field]) {
			return false
		}
	}
	return true
}

// sameOwners reports whether two lists have the same owners, in any order.
func sameOwners(a, b []metav1.OwnerReference) bool {
	return len(a) == len(b) && ownersIn(a, b) && ownersIn(b, a)
}

// ownersIn reports whether every owner of one list is in the other.
func ownersIn(list, other []metav1.OwnerReference) bool {
	for _, owner := range list {
		if !slices.ContainsFunc(other, func(o metav1.OwnerReference) bool {
			return o.APIVersion == owner.APIVersion && o.Kind == owner.Kind && o.Name == owner.Name &&
				o.UID == owner.UID && isTrue(o.Controller) == isTrue(owner.Controller) &&
				isTrue(o.BlockOwnerDeletion) == isTrue(owner.BlockOwnerDeletion)
		}) {
			return false
		}
	}
	return true
}

func isTrue(b *bool) bool { return b != nil && *b }

// within reports whether have has everything in want. A zero value equals a missing one, since some
// clients write it and some omit it.
func within(want, have any) bool {
	if zero(want) && zero(have) {
		return true
	}
	switch w := want.(type) {
	case map[string]any:
		h, _ := have.(map[string]any)
		for field, value := range w {
			if !within(value, h[field]) {
				return false
			}
		}
		return true
	case []any:
		h, _ := have.([]any)
		if len(w) != len(h) {
			return false
		}
		for i := range w {
			if !within(w[i], h[i]) {
				return false
			}
		}
		return true
	case nil:
		return true
	default:
		return want == have || zero(want) && have == nil
	}
}

func zero(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case bool:
		return !v
	case json.Number:
		return v == "0"
	case []any:
		return len(v) == 0
	case map[string]any:
		for _, field := range v {
			if !zero(field) {
				return false
			}
		}
		return true
	default:
		return false
	}
}

// read parses a JSON object and keeps its numbers as written; nil if the text is no object.
func read(text json.RawMessage) map[string]any {
	var object map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		return nil
	}
	return object
}

func at(object map[string]any, path ...string) any {
	var value any = object
	for _, field := range path {
		inner, _ := value.(map[string]any)
		value = inner[field]
	}
	return value
}

// controllerOf returns the uid of an object's controller reference, or "".
func controllerOf(object map[string]any) string {
	owners, _ := at(object, "metadata", "ownerReferences").([]any)
	for _, owner := range owners {
		reference, _ := owner.(map[string]any)
		if reference["controller"] == true {
			uid, _ := reference["uid"].(string)
			return uid
		}
	}
	return ""
}
