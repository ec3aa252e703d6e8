package events

import (
	"encoding/json"
	"errors"
	"reflect"
	"strconv"

	quick "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
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

// Member is a field of a JSON object, with its value as raw text.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members are the fields of a JSON object, in the order of the text.
type Members []Member

// Of is the value of a field; nil when there is none. place is the index at which the field is
// expected, so that texts written in a fixed order need no search.
func (m Members) Of(name string, place int) json.RawMessage {
	if place < len(m) && m[place].Name == name {
		return m[place].Value
	}
	for _, one := range m {
		if one.Name == name {
			return one.Value
		}
	}
	return nil
}

// MembersOf reads the fields of a JSON object without decoding their values. It gives none for
// an empty text or null. The values share the memory of text.
//
// Errors: text is no JSON object; a name occurs twice.
func MembersOf(text json.RawMessage) (Members, error) {
	if len(text) == 0 {
		return nil, nil
	}
	o := opening{text: text}
	err := quick.Unmarshal(text, &o)
	return o.found, err
}

// ValueOf decodes a JSON text into strings, 64-bit numbers, maps and slices.
//
// Errors: text is no JSON; a name occurs twice in an object.
func ValueOf(text json.RawMessage) (value any, err error) {
	err = quick.Unmarshal(text, &value)
	return value, err
}

// opening reads the members of an object without copying their values.
type opening struct {
	text  json.RawMessage
	found Members
}

// UnmarshalJSONFrom implements [quick.UnmarshalerFrom].
func (o *opening) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch d.PeekKind() {
	case 'n':
		return d.SkipValue()
	case '{':
	default:
		return errors.New("it is no JSON object")
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	o.found = make(Members, 0, 8)
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		one := Member{Name: name.String()} // copy the name before the decoder reuses its buffer
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		end := int(d.InputOffset())
		one.Value = o.text[end-len(value) : end : end]
		o.found = append(o.found, one)
	}
	_, err := d.ReadToken()
	return err
}

// Bodies are decoded by the designated successor of encoding/json, which takes half the time.
// They are not encoded by it, because its output differs in some bytes. Values are decoded as
// encoding/json does, but not keys, and not times outside RFC 3339: a time in a zone of 24 hours
// could not be written again.
var (
	unique  = quick.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.AllowDuplicateNames(false), jsonv1.ParseTimeWithLooseRFC3339(false))
	lenient = quick.JoinOptions(unique, quick.MatchCaseInsensitiveNames(false))
	strict  = quick.JoinOptions(lenient, quick.RejectUnknownMembers(true))
)

// unmarshal decodes a body only if every reader understands it in the same way. Most bodies have
// no unknown key and are decoded once.
func unmarshal(body []byte, value any) error {
	into := reflect.ValueOf(value).Elem()
	before := reflect.New(into.Type()).Elem()
	before.Set(into)
	if quick.Unmarshal(body, value, strict) == nil {
		return nil
	}
	into.Set(before)
	if err := quick.Unmarshal(body, value, lenient); err != nil {
		return err
	}
	// A reader that ignores the case of keys must understand the same.
	if err := quick.Unmarshal(body, before.Addr().Interface(), unique); err != nil {
		return err
	}
	if !reflect.DeepEqual(before.Interface(), into.Interface()) {
		return errors.New("a key is written in another case than it should be")
	}
	return nil
}
