package events

import (
	"encoding/json"
	"strconv"
)

// AppendDecision appends the turn's decision exactly as it stands in the turn's JSON
// ([EncodeJSON]): the members from because to wakeAt, without braces, byte for byte. So a stored
// turn can be compared with a decision without decoding it. Bodies and notes are copied
// unchanged, so one that encoding/json would write differently gives different bytes.
func (t *Turn) AppendDecision(text []byte) []byte {
	text = appendText(append(text, `"because":`...), t.Because)
	if len(t.Commands) > 0 {
		text = append(text, `,"commands":`...)
		text = appendList(text, t.Commands, func(text []byte, c *Command) []byte { return c.append(text) })
	}
	if len(t.Shapes) > 0 {
		text = append(text, `,"shapes":`...)
		text = appendList(text, t.Shapes, func(text []byte, body *json.RawMessage) []byte { return append(text, *body...) })
	}
	if len(t.Notices) > 0 {
		text = appendValue(append(text, `,"notices":`...), t.Notices)
	}
	if t.WakeAt != nil {
		text = appendValue(append(text, `,"wakeAt":`...), t.WakeAt)
	}
	return text
}

func (c *Command) append(text []byte) []byte {
	text = appendText(append(text, `{"verb":`...), string(c.Verb))
	text = appendMember(text, "kind", string(c.Kind))
	text = appendMember(text, "version", c.Version)
	text = appendMember(text, "namespace", c.Namespace)
	text = appendMember(text, "name", c.Name)
	text = appendMember(text, "subresource", c.Subresource)
	if c.Of != nil {
		text = appendValue(append(text, `,"of":`...), c.Of)
	}
	if c.If != nil {
		text = c.If.append(append(text, `,"if":`...))
	}
	if len(c.Body) > 0 {
		text = append(append(text, `,"body":`...), c.Body...)
	}
	text = appendNumber(text, "shape", c.Shape)
	text = appendMember(text, "patchType", string(c.PatchType))
	text = appendMember(text, "propagation", string(c.Propagation))
	if c.GraceSeconds != nil {
		text = strconv.AppendInt(append(text, `,"graceSeconds":`...), *c.GraceSeconds, 10)
	}
	if len(c.Note) > 0 {
		text = append(append(text, `,"note":`...), c.Note...)
	}
	text = appendNumber(text, "applied", c.Applied)
	text = appendNumber(text, "failed", c.Failed)
	return append(text, '}')
}

// append writes the most common condition by hand, because it is faster, and any other through
// encoding/json.
func (i *If) append(text []byte) []byte {
	if i.UID == "" || i.Alive != nil || i.Unused || i.Unshared || len(i.Absent)+len(i.Leaving)+len(i.SameOwners) > 0 {
		return appendValue(text, i)
	}
	text = appendText(append(text, `{"uid":`...), string(i.UID))
	return append(appendMember(text, "resourceVersion", i.ResourceVersion), '}')
}

func appendList[T any](text []byte, items []T, one func([]byte, *T) []byte) []byte {
	text = append(text, '[')
	for i := range items {
		if i > 0 {
			text = append(text, ',')
		}
		text = one(text, &items[i])
	}
	return append(text, ']')
}

// appendMember writes a member, or nothing if the value is empty.
func appendMember(text []byte, name, value string) []byte {
	if value == "" {
		return text
	}
	return appendText(append(append(append(text, `,"`...), name...), `":`...), value)
}

func appendNumber(text []byte, name string, value int) []byte {
	if value == 0 {
		return text
	}
	return strconv.AppendInt(append(append(append(text, `,"`...), name...), `":`...), int64(value), 10)
}

// appendText writes a JSON string; encoding/json writes those that need escapes.
func appendText(text []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return appendValue(text, s)
		}
	}
	return append(append(append(text, '"'), s...), '"')
}

// appendValue writes any value through encoding/json. Only a time beyond the year 9999 has no
// JSON form; it is written as "!", which is valid nowhere, so that it equals no stored decision.
func appendValue(text []byte, value any) []byte {
	written, err := json.Marshal(value)
	if err != nil {
		return append(text, '!')
	}
	return append(text, written...)
}
