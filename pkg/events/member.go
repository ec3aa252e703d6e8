package events

import (
	"encoding/json"
	"errors"

	quick "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Member is a field of a JSON object, with its value as it is written.
type Member struct {
	Name  string
	Value json.RawMessage
}

// Members are the fields of a JSON object in the order in which they are written.
type Members []Member

// Of is the value of a field; nil where there is none. Where it is at a place, which it is
// in what has been written in the same order, it is found at once.
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

// MembersOf reads the fields of a JSON object, and not what is in them; there are none where
// there is no text, or null. The values are parts of the text.
//
// Errors: it is no object; a name is there twice.
func MembersOf(text json.RawMessage) (Members, error) {
	if len(text) == 0 {
		return nil, nil
	}
	o := opening{text: text}
	err := quick.Unmarshal(text, &o)
	return o.found, err
}

// ValueOf is what a JSON text means: strings, numbers of 64 bits, maps and lists.
//
// Errors: it is no JSON; a name is twice in an object.
func ValueOf(text json.RawMessage) (value any, err error) {
	err = quick.Unmarshal(text, &value)
	return value, err
}

// opening reads the members of an object without copying their values.
type opening struct {
	text  json.RawMessage
	found Members
}

// UnmarshalJSONFrom is part of [quick.UnmarshalerFrom].
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
		one := Member{Name: name.String()} // before what it is a part of is read on
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
