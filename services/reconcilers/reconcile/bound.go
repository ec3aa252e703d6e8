package reconcile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/redact"
)

// reports is true for a command in the status lane. The writer does not read the key's object
// for such a command.
func reports(c events.Command) bool { return c.Lane() == events.LaneStatus }

// against checks what a promise requires of the key's object. It checks nothing for a command
// that reports, because the key's object is not known then.
func (p *promise) against(c events.Command, own *known) error {
	if reports(c) {
		return nil
	}
	if p.where != nil && len(own.at(p.where)) == 0 {
		return own.differs("the key's object has no %s", p.Where)
	}
	if p.namedBy != nil && !own.says(p.namedBy, c.Name) {
		return own.differs("the key's object does not name %.80q in %s", c.Name, p.NamedBy)
	}
	if p.absentBy == nil {
		return nil
	}
	for _, r := range c.If.Absent {
		if r.Kind == p.Absent.Kind && own.says(p.absentBy, r.Name) && (r.UID == "" || own.says(p.absentUID, string(r.UID))) {
			return nil
		}
	}
	return own.differs("the key's object does not name the %s whose absence is to be proven in %s", p.Absent.Kind, p.Absent.NamedBy)
}

// says reports whether the key's object has a given string at a path.
func (k *known) says(path redact.Path, text string) bool {
	return slices.ContainsFunc(k.at(path), func(v json.RawMessage) bool { return textOf(v) == text })
}

// textOf decodes a JSON string. It is empty if v is no string.
func textOf(v json.RawMessage) (text string) {
	_ = json.Unmarshal(v, &text)
	return text
}

// decode reads a body. A field that the promise bounds only as a whole, such as the spec of a
// pod, stays JSON: it is the largest part, and is compared as it is.
func (p *promise) decode(text json.RawMessage) (map[string]any, error) {
	parts, err := events.MembersOf(text)
	if err != nil {
		return nil, err
	}
	body := make(map[string]any, len(parts))
	for _, part := range parts {
		if slices.Contains(p.whole, part.Name) {
			body[part.Name] = part.Value
		} else if body[part.Name], err = events.ValueOf(part.Value); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// holds checks that a body holds what the promise allows and nothing else.
func (p *promise) holds(c events.Command, body map[string]any, f *facts) error {
	if p.fields != nil {
		if err := within(body, nil, p.fields, c.Verb != events.VerbPatch); err != nil {
			return err
		}
	}
	for _, v := range p.values {
		for _, at := range find(body, v.path) {
			if text, _ := at.(string); !slices.Contains(v.one, text) {
				return fmt.Errorf("the body has %.60v at %s, which is not promised", at, v.path)
			}
		}
	}
	if p.Removes {
		if err := removes(body); err != nil {
			return err
		}
	}
	if p.Adds {
		if err := adds(body); err != nil {
			return err
		}
	}
	if reports(c) {
		return nil
	}
	for _, part := range p.copies {
		if err := part.holds(c, body, f); err != nil {
			return err
		}
	}
	for _, l := range p.lists {
		if err := l.holds(c, body, f); err != nil {
			return err
		}
	}
	if p.changes == nil {
		return nil
	}
	of := f.of(c)
	whole := of.at(redact.Path{})
	if len(whole) == 0 {
		return fmt.Errorf("%w: %v is not known", events.ErrSuperseded, c.Ref())
	}
	if at, differs := differ(nil, c.Body, whole[0], p.changes, nil); differs {
		return of.differs("the update changes %.80s, which is not promised", at)
	}
	return nil
}

// keeps is true for a promise of a status update of the key's object. Such an update must
// leave everything else as it is, because for most kinds the API server takes labels,
// annotations, finalizers and owners from the body of a status update.
func (p *promise) keeps() bool {
	return p.Verb == events.VerbUpdate && p.Subresource == "status" && p.On == Itself
}

var metadata = path(".metadata")

// kept checks that the metadata in the body of a status update equal those of the key's
// object.
func (p *promise) kept(c events.Command, own *known) error {
	whole := own.at(metadata)
	if len(whole) == 0 {
		return fmt.Errorf("%w: the key's object is not known", events.ErrSuperseded)
	}
	body, err := events.MembersOf(c.Body)
	if err != nil {
		return fmt.Errorf("the body is no object: %w", err)
	}
	if at, differs := differ(metadata, body.Of("metadata", 0), whole[0], p.changes, nil); differs {
		return own.differs("the status changes %.80s, which is not promised", at)
	}
	return nil
}

// removes checks that every list in a body holds only elements that the patch deletes.
func removes(body map[string]any) error {
	for name, value := range body {
		if name == "metadata" {
			continue
		}
		elements, list := value.([]any)
		for _, e := range elements {
			of, _ := e.(map[string]any)
			list = list && of["$patch"] == "delete"
		}
		if !list {
			return fmt.Errorf("%.80s holds what is not taken away", name)
		}
	}
	return nil
}

// adds checks that a patch removes nothing: it holds no directive of a strategic merge and no
// null.
func adds(value any) error {
	switch value := value.(type) {
	case nil:
		return errors.New("the patch takes something away")
	case map[string]any:
		for name, inner := range value {
			if strings.HasPrefix(name, "$") {
				return fmt.Errorf("the patch holds the directive %.80s", name)
			}
			if err := adds(inner); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range value {
			if err := adds(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// holds checks that a part of a body equals that part of the key's object, or of a revision of
// it. An unknown revision does not prove a forgery, because it may have existed when the turn
// was decided.
func (c copied) holds(of events.Command, body map[string]any, f *facts) error {
	part, err := jsonOf(one(find(body, c.to)))
	if err != nil {
		return err
	}
	if c.of != "" {
		return c.holdsOf(of, part, f)
	}
	where, differs := c.differs(of.Name, part, f.own, f.own)
	if !differs {
		return nil
	}
	if !c.revision {
		return f.own.differs("the body's %s%.80s is not that of the key's object, %s", c.to, where, c.from)
	}
	revision := f.revision(of.Namespace, body)
	if revision.get() == nil {
		return fmt.Errorf("%w: no revision of the key's object is known of which the body's %s%.80s would be", events.ErrSuperseded, c.to, where)
	}
	if where, differs = c.differs(of.Name, part, revision, f.own); differs {
		return f.own.differs("the body's %s%.80s is not that of the key's object or of its revision, %s", c.to, where, c.from)
	}
	return nil
}

// holdsOf checks that a part of a body equals that part of one of the objects that the key's
// object names. A mismatch with all of them as they are now does not prove a forgery, because
// a turn does not record which versions of them it saw.
func (c copied) holdsOf(of events.Command, part json.RawMessage, f *facts) error {
	names := texts(f.own.at(c.namedBy))
	for _, name := range names {
		ref := events.Ref{Kind: c.of, Namespace: of.Namespace, Name: name}
		object := remembered(&f.others, ref, "", func() metav1.Object { return f.read(ref) })
		if object.get() == nil {
			continue
		}
		if _, differs := c.differs(of.Name, part, object, f.own); !differs {
			return nil
		}
	}
	if len(names) == 0 {
		return f.own.differs("the key's object names no %s in %s, of which the body's %s would be", c.of, c.namedBy, c.to)
	}
	return fmt.Errorf("%w: the body's %s is not that of any %s that the key's object names, %s", events.ErrSuperseded, c.to, c.of, c.from)
}

// differs returns the path at which a part of the body of the object called name differs from
// that part of another object. own is the key's object.
func (c copied) differs(name string, part json.RawMessage, object, own *known) (where redact.Path, differs bool) {
	from := object.at(c.from)
	if len(from) == 0 {
		from = []json.RawMessage{nil}
	}
	for _, text := range from {
		if c.claims != nil {
			differs = !claimed(name, texts(own.at(c.claims)), part, text)
		} else {
			where, differs = differ(nil, part, text, c.but, c.plus)
		}
		if !differs {
			break
		}
	}
	return where, differs
}

// texts decodes JSON strings.
func texts(values []json.RawMessage) (all []string) {
	for _, v := range values {
		all = append(all, textOf(v))
	}
	return all
}

func one(values []any) any {
	if len(values) == 0 {
		return nil
	}
	return values[0]
}

// jsonOf encodes a part of a decoded body as JSON.
func jsonOf(part any) (json.RawMessage, error) {
	switch part := part.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		return part, nil
	default:
		return json.Marshal(part)
	}
}

// find returns the values at a path of a decoded body. For a list element without the field it
// returns nil, so that callers see the element: one without its type may be a directive about
// the whole list.
func find(value any, path redact.Path) []any {
	if part, whole := value.(json.RawMessage); whole && len(path) > 0 {
		if fields, err := events.MembersOf(part); err == nil && !path[0].Each {
			if inner := fields.Of(path[0].Name, 0); inner != nil {
				return find(inner, path[1:])
			}
			return nil
		}
		var err error
		if value, err = events.ValueOf(part); err != nil {
			return []any{part}
		}
	}
	switch {
	case len(path) == 0:
		return []any{value}
	case path[0].Each:
		elements, list := value.([]any)
		if !list {
			return []any{value} // not a list, so not a value that is promised
		}
		var found []any
		for _, e := range elements {
			if in := find(e, path[1:]); len(in) > 0 {
				found = append(found, in...)
			} else {
				found = append(found, nil)
			}
		}
		return found
	}
	fields, object := value.(map[string]any)
	if !object {
		return []any{value}
	}
	inner, there := fields[path[0].Name]
	if !there {
		return nil
	}
	return find(inner, path[1:])
}

// within checks that a body holds only fields at the allowed paths. In a whole object an empty
// field counts as absent; in a patch it removes something.
func within(body map[string]any, at redact.Path, allowed []redact.Path, whole bool) error {
	here := append(slices.Clone(at), redact.Step{})
	for name, value := range body {
		if directive, of, ok := strings.Cut(name, "/"); ok && strings.HasPrefix(directive, "$") {
			name = of // a directive of a strategic merge about a list
		}
		here[len(at)].Name = name
		if slices.ContainsFunc(allowed, func(p redact.Path) bool { return p.Covers(here) }) || whole && nothing(value) {
			continue
		}
		inner, object := value.(map[string]any)
		if !object || !slices.ContainsFunc(allowed, func(p redact.Path) bool { return len(p) > len(here) && here.Covers(p) }) {
			return fmt.Errorf("the body holds %.80s, which is not promised", here)
		}
		if err := within(inner, here, allowed, whole); err != nil {
			return err
		}
	}
	return nil
}

// nothing is true for a value that means the same as an absent field.
func nothing(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case map[string]any:
		return len(value) == 0
	case []any:
		return len(value) == 0
	default:
		return value == ""
	}
}

// empty is [nothing] for JSON.
func empty(text json.RawMessage) bool {
	switch string(text) {
	case "", "null", "{}", "[]", `""`:
		return true
	default:
		return false
	}
}

// differ returns the first path at which two JSON texts differ, except for the paths of but.
// The strings of plus are ignored in lists.
func differ(at redact.Path, a, b json.RawMessage, but []redact.Path, plus []string) (redact.Path, bool) {
	if bytes.Equal(a, b) || empty(a) && empty(b) || slices.ContainsFunc(but, func(p redact.Path) bool { return p.Covers(at) }) {
		return nil, false
	}
	if plus != nil {
		a = without(a, plus)
		b = without(b, plus)
	}
	if leads(but, at, false) {
		x, errX := events.MembersOf(orNone(a))
		y, errY := events.MembersOf(orNone(b))
		if errX == nil && errY == nil {
			return differIn(at, x, y, but)
		}
	}
	if leads(but, at, true) {
		var x, y []json.RawMessage
		if json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && len(x) == len(y) {
			for i := range x {
				if where, differs := differ(append(slices.Clone(at), redact.Step{Each: true}), x[i], y[i], but, nil); differs {
					return where, true
				}
			}
			return nil, false
		}
	}
	return at, !same(a, b)
}

// orNone returns text, or an object without fields if text is empty.
func orNone(text json.RawMessage) json.RawMessage {
	if empty(text) {
		return json.RawMessage("{}")
	}
	return text
}

// differIn is [differ] for the fields of two objects.
func differIn(at redact.Path, x, y events.Members, but []redact.Path) (redact.Path, bool) {
	here := append(slices.Clone(at), redact.Step{})
	for i, one := range x {
		here[len(at)].Name = one.Name
		if where, differs := differ(here, one.Value, y.Of(one.Name, i), but, nil); differs {
			return slices.Clone(where), true
		}
	}
	for i, one := range y {
		if here[len(at)].Name = one.Name; x.Of(one.Name, i) != nil {
			continue // compared in the loop above
		}
		if where, differs := differ(here, nil, one.Value, but, nil); differs {
			return slices.Clone(where), true
		}
	}
	return nil, false
}

// leads reports whether one of paths continues beyond from: into each element of a list (each)
// or into a field.
func leads(paths []redact.Path, from redact.Path, each bool) bool {
	return slices.ContainsFunc(paths, func(p redact.Path) bool {
		return len(p) > len(from) && p[:len(from)].Covers(from) && p[len(from)].Each == each
	})
}

// without removes some strings from a JSON list.
func without(list json.RawMessage, texts []string) json.RawMessage {
	var elements []string
	if json.Unmarshal(list, &elements) != nil {
		return list
	}
	rest, err := json.Marshal(slices.DeleteFunc(elements, func(e string) bool { return slices.Contains(texts, e) }))
	if err != nil {
		return list
	}
	return rest
}

// same reports whether two JSON texts have the same meaning.
func same(a, b json.RawMessage) bool {
	x, errX := meant(a)
	y, errY := meant(b)
	return errX == nil && errY == nil && reflect.DeepEqual(pruned(x), pruned(y))
}

// meant decodes a JSON text. It is nil for an empty text.
func meant(text json.RawMessage) (any, error) {
	if len(text) == 0 {
		return nil, nil
	}
	return events.ValueOf(text)
}

// pruned removes the fields of a value that mean the same as absent ones.
func pruned(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			if v = pruned(v); v == nil {
				delete(value, name)
			} else {
				value[name] = v
			}
		}
		if len(value) == 0 {
			return nil
		}
	case []any:
		for i := range value {
			value[i] = pruned(value[i])
		}
		if len(value) == 0 {
			return nil
		}
	case string:
		if value == "" {
			return nil
		}
	}
	return value
}
