package events

import (
	"encoding/json"
	"errors"

	quick "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

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
