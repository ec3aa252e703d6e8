package redact

import (
	"reflect"
	"slices"
	"strings"
)

// Find gives what a path leads to in an object, by the names that JSON has for its fields:
// several values where a step is each of a list, none where it leads nowhere.
func (p Path) Find(object any) []reflect.Value { return p.find(reflect.ValueOf(object)) }

func (p Path) find(v reflect.Value) []reflect.Value {
	if len(p) == 0 {
		return []reflect.Value{v} // a pointer to nothing is something
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

// called are what Kubernetes' types call some fields, which are asked for most.
var called = map[string]string{
	"metadata": "ObjectMeta", "spec": "Spec", "status": "Status", "template": "Template",
	"labels": "Labels", "annotations": "Annotations", "finalizers": "Finalizers",
}

// placeOf is the index of the field that JSON has under a name; nil where there is none.
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

// tagged is the name that JSON has for a field.
func tagged(of reflect.StructField) string {
	name, _, _ := strings.Cut(of.Tag.Get("json"), ",")
	return name
}
