package plan

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/millrace/millrace/pkg/events"
)

// template is a body, split where an object's own metadata goes, so that many creates cost one
// parse of the body that they share.
type template struct {
	before, after []byte // around the first fields of metadata
}

// newTemplate splits a JSON object, and removes the metadata fields that a command sets.
//
// Errors: the body is no JSON object, or its metadata is none.
func newTemplate(body json.RawMessage) (template, error) {
	var object, metadata map[string]json.RawMessage
	if err := json.Unmarshal(body, &object); err != nil {
		return template{}, fmt.Errorf("read the body: %w", err)
	}
	if text, ok := object["metadata"]; ok {
		if err := json.Unmarshal(text, &metadata); err != nil {
			return template{}, fmt.Errorf("read the body's metadata: %w", err)
		}
	}
	delete(object, "metadata")
	for _, field := range []string{"name", "namespace"} {
		delete(metadata, field)
	}
	var m template
	m.before = append(fields(object, []byte{'{'}), `"metadata":{`...)
	m.after = bytes.TrimSuffix(fields(metadata, nil), []byte{','})
	m.after = append(m.after, '}', '}')
	return m, nil
}

// fields writes the fields of an object, sorted, each followed by a comma.
func fields(object map[string]json.RawMessage, to []byte) []byte {
	names := make([]string, 0, len(object))
	for name := range object {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		to = append(quote(to, name), ':')
		to = append(append(to, object[name]...), ',')
	}
	return to
}

// cast returns the body with an object's own metadata.
func (m template) cast(namespace, name string) []byte {
	body := make([]byte, 0, len(m.before)+len(m.after)+len(namespace)+len(name)+32)
	body = append(body, m.before...)
	body = quote(append(body, `"name":`...), name)
	if namespace != "" {
		body = quote(append(body, `,"namespace":`...), namespace)
	}
	if m.after[0] != '}' {
		body = append(body, ',')
	}
	return append(body, m.after...)
}

// quote appends a JSON string.
func quote(to []byte, text string) []byte {
	quoted, _ := json.Marshal(text) // a string always has a JSON form
	return append(to, quoted...)
}

// conditional returns the body of an update or a merge patch with the preconditions in its
// metadata, where the API server checks them and answers 409. For a JSON patch it prepends steps
// that set them, too: a failed "test" would be a 422, which means "never".
func conditional(c events.Command, body json.RawMessage) ([]byte, error) {
	if c.If == nil || (c.If.UID == "" && c.If.ResourceVersion == "") {
		return body, nil
	}
	if c.Verb == events.VerbPatch && bytes.HasPrefix(bytes.TrimSpace(body), []byte{'['}) {
		return preceded(c.If, body)
	}
	object, err := events.MembersOf(body)
	if err != nil {
		return nil, fmt.Errorf("read the body: %w", err)
	}
	metadata, err := events.MembersOf(object.Of("metadata", 0))
	if err != nil {
		return nil, fmt.Errorf("read the body's metadata: %w", err)
	}
	to := make([]byte, 0, len(body)+len(c.If.UID)+len(c.If.ResourceVersion)+64)
	to = append(to, `{"metadata":{`...)
	if c.If.ResourceVersion != "" {
		to = append(quote(append(to, `"resourceVersion":`...), c.If.ResourceVersion), ',')
	}
	if c.If.UID != "" {
		to = append(quote(append(to, `"uid":`...), string(c.If.UID)), ',')
	}
	to = membersExcept(to, metadata, func(name string) bool {
		return name == "uid" && c.If.UID != "" || name == "resourceVersion" && c.If.ResourceVersion != ""
	})
	to = append(bytes.TrimSuffix(to, []byte{','}), '}', ',')
	to = membersExcept(to, object, func(name string) bool { return name == "metadata" })
	return append(bytes.TrimSuffix(to, []byte{','}), '}'), nil
}

// membersExcept writes fields of an object, each followed by a comma, but for some.
func membersExcept(to []byte, object events.Members, but func(name string) bool) []byte {
	for _, field := range object {
		if !but(field.Name) {
			to = append(append(append(quote(to, field.Name), ':'), field.Value...), ',')
		}
	}
	return to
}

// preceded prepends the preconditions to a JSON patch.
func preceded(cond *events.If, body json.RawMessage) ([]byte, error) {
	var steps []json.RawMessage
	if err := json.Unmarshal(body, &steps); err != nil {
		return nil, fmt.Errorf("read the patch: %w", err)
	}
	set := func(path, value string) json.RawMessage {
		return append(quote(append([]byte(`{"op":"add","path":"`), path+`","value":`...), value), '}')
	}
	var first []json.RawMessage
	if cond.UID != "" {
		first = append(first, set("/metadata/uid", string(cond.UID)))
	}
	if cond.ResourceVersion != "" {
		first = append(first, set("/metadata/resourceVersion", cond.ResourceVersion))
	}
	return json.Marshal(append(first, steps...))
}
