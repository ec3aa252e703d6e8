package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"reflect"
)

// Marker replaces hidden text. A writer refuses to write an object that contains it.
const Marker = "[redacted by millrace]"

// packed is the marker in JSON's form of bytes (base64).
var packed = []byte(base64.StdEncoding.EncodeToString([]byte(Marker)))

// Marked reports whether an object in JSON contains hidden values.
func Marked(object []byte) bool {
	return bytes.Contains(object, []byte(Marker)) || bytes.Contains(object, packed)
}

// Hide replaces the values at a path in an object, which must be a pointer to a struct or a map
// decoded from JSON. If the path does not exist, nothing changes.
func (p Path) Hide(object any) { p.hide(reflect.ValueOf(object)) }

func (p Path) hide(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			p.hide(v.Elem())
		}
	case reflect.Interface:
		if !v.IsNil() {
			within := settable(v.Elem())
			p.hide(within)
			v.Set(within)
		}
	case reflect.Struct:
		p.hideStruct(v)
	case reflect.Map:
		p.hideMap(v)
	case reflect.Slice:
		p.hideSlice(v)
	case reflect.String:
		if len(p) == 0 && v.Len() > 0 {
			v.SetString(Marker)
		}
	default:
		if len(p) == 0 && v.CanSet() {
			v.SetZero()
		}
	}
}

var marshaler = reflect.TypeFor[json.Marshaler]()

func (p Path) hideStruct(v reflect.Value) {
	if len(p) > 0 {
		if f, ok := fieldOf(v.Type(), p[0]); ok {
			if at, err := v.FieldByIndexErr(f.Index); err == nil {
				p[1:].hide(at)
			}
		}
		return
	}
	if reflect.PointerTo(v.Type()).Implements(marshaler) { // a time or a quantity, which marshals as its own text
		v.SetZero()
		return
	}
	for i := range v.NumField() {
		if v.Type().Field(i).IsExported() {
			p.hide(v.Field(i))
		}
	}
}

func (p Path) hideMap(v reflect.Value) {
	within := p
	if len(p) > 0 {
		within = p[1:]
	}
	for _, key := range v.MapKeys() {
		if len(p) > 0 && !p[0].Each && key.String() != p[0].Name {
			continue
		}
		value := settable(v.MapIndex(key))
		if within.hide(value); len(within) == 0 {
			mark(value)
		}
		v.SetMapIndex(key, value)
	}
}

func (p Path) hideSlice(v reflect.Value) {
	switch {
	case len(p) == 0 && v.Type().Elem().Kind() == reflect.Uint8:
		if v.Len() > 0 {
			v.SetBytes([]byte(Marker))
		}
		return
	case len(p) > 0 && !p[0].Each:
		return
	case len(p) > 0:
		p = p[1:]
	}
	for i := range v.Len() {
		if p.hide(v.Index(i)); len(p) == 0 {
			mark(v.Index(i))
		}
	}
}

// mark replaces empty text, too, because in a map or a list its entry exists.
func mark(v reflect.Value) {
	switch {
	case v.Kind() == reflect.String:
		v.SetString(Marker)
	case v.Kind() == reflect.Interface && v.Elem().Kind() == reflect.String:
		v.Set(reflect.ValueOf(Marker))
	}
}

// settable is a settable copy of a value.
func settable(v reflect.Value) reflect.Value {
	c := reflect.New(v.Type()).Elem()
	c.Set(v)
	return c
}
