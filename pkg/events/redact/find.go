package redact

import (
	"reflect"
	"slices"
	"strings"
)

// Find gives the values at a path in an object, with the JSON names of its fields: several
// values if a step is each of a list, none if the path does not exist.
func (p Path) Find(object any) []reflect.Value { return p.find(reflect.ValueOf(object)) }

func (p Path) find(v reflect.Value) []reflect.Value {
	if len(p) == 0 {
		return []reflect.Value{v} // a nil pointer counts as a value
	}
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	switch step := p[0]; v.Kind() {
	case reflect.Struct:
		if index := placeOf(v.Type(), step.Name); index != nil {
			return p[1:].find(v.FieldByIndex(index))
		}
	case reflect.Map:
		if f := v.MapIndex(reflect.ValueOf(step.Name).Convert(v.Type().Key())); f.IsValid() {
			return p[1:].find(f)
		}
	case reflect.Slice:
		var found []reflect.Value
		for i := 0; step.Each && i < v.Len(); i++ {
			found = append(found, p[1:].find(v.Index(i))...)
		}
		return found
	default:
	}
	return nil
}

// called are the Go names of the most requested fields of Kubernetes' types, for a fast lookup.
var called = map[string]string{
	"metadata": "ObjectMeta", "spec": "Spec", "status": "Status", "template": "Template",
	"labels": "Labels", "annotations": "Annotations", "finalizers": "Finalizers",
}

// placeOf is the index of the field with a JSON name; nil when there is none.
func placeOf(t reflect.Type, name string) []int {
	if name == "" {
		return nil
	}
	if known := called[name]; known != "" {
		if of, there := t.FieldByName(known); there && tagged(of) == name {
			return of.Index
		}
	}
	for i := range t.NumField() {
		of := t.Field(i)
		switch tag := tagged(of); {
		case !of.IsExported():
		case tag == name:
			return of.Index
		case of.Anonymous && tag == "" && of.Type.Kind() == reflect.Struct:
			if inner := placeOf(of.Type, name); inner != nil {
				return append(slices.Clone(of.Index), inner...)
			}
		}
	}
	return nil
}

// tagged is the JSON name of a field.
func tagged(of reflect.StructField) string {
	name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
	return name
}
