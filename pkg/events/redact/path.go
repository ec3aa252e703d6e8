package redact

import (
	"fmt"
	"reflect"
	"strings"
)

// Path selects values in an object: ".spec.containers[*].env[*].value",
// ".metadata.annotations['example.com/token']". It is a subset of JSONPath: fields, keys and
// [*], which selects each entry of a list or a map.
type Path []Step

// Step is one step of a path.
type Step struct {
	Name string
	Each bool // [*]
}

// ParsePath parses a path.
//
// Errors: the text is no path; the message shows valid forms.
func ParsePath(text string) (Path, error) {
	var path Path
	for rest := text; rest != ""; {
		var step Step
		var ok bool
		forbidden := "*'\"$@"
		switch {
		case strings.HasPrefix(rest, "[*]"):
			step.Each, rest, ok = true, rest[len("[*]"):], true
		case strings.HasPrefix(rest, "['"):
			step.Name, rest, ok = strings.Cut(rest[len("['"):], "']")
			forbidden = "*'\"@"
		case strings.HasPrefix(rest, "."):
			rest = rest[1:]
			end := strings.IndexAny(rest+".", ".[")
			step.Name, rest, ok = rest[:end], rest[end:], true
		}
		if !ok || !step.Each && step.Name == "" || strings.ContainsAny(step.Name, forbidden) {
			return nil, fmt.Errorf("%q is no path: write it as .data, .spec.containers[*].env[*].value or .metadata.annotations['example.com/token']", text)
		}
		path = append(path, step)
	}
	if len(path) == 0 {
		return nil, fmt.Errorf("the path is empty: write it as .data or .spec.containers[*].env[*].value")
	}
	return path, nil
}

// MustParsePath parses a path that is known to be valid, and panics otherwise.
func MustParsePath(text string) Path {
	path, err := ParsePath(text)
	if err != nil {
		panic(err)
	}
	return path
}

func (p Path) String() string {
	var b strings.Builder
	for _, s := range p {
		switch {
		case s.Each:
			b.WriteString("[*]")
		case strings.ContainsAny(s.Name, "./[]$"):
			b.WriteString("['" + s.Name + "']")
		default:
			b.WriteString("." + s.Name)
		}
	}
	return b.String()
}

// Covers reports whether a path selects everything that another one selects.
func (p Path) Covers(other Path) bool {
	if len(p) > len(other) {
		return false
	}
	for i, s := range p {
		if s != other[i] && !s.Each {
			return false
		}
	}
	return true
}

// fits is an error if a type has nothing at the path. taken is the number of steps taken so far.
func (p Path) fits(t reflect.Type, taken int) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if taken == len(p) || t.Kind() == reflect.Interface {
		return nil
	}
	step := p[taken]
	switch t.Kind() {
	case reflect.Struct:
		if f, ok := fieldOf(t, step); ok {
			return p.fits(f.Type, taken+1)
		}
	case reflect.Map:
		return p.fits(t.Elem(), taken+1)
	case reflect.Slice:
		if step.Each {
			return p.fits(t.Elem(), taken+1)
		}
		return fmt.Errorf("%s is a list: write %s[*]", p[:taken], p[:taken])
	default:
	}
	return fmt.Errorf("there is no %s", p[:taken+1])
}

// fieldOf is the field of a struct with this JSON name, including fields of embedded structs.
func fieldOf(t reflect.Type, step Step) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !step.Each && name != "" && name == step.Name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}
