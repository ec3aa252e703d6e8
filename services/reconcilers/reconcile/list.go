package reconcile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/redact"
)

// listed is an [Elements] with its path parsed.
type listed struct {
	Elements
	path redact.Path
}

// holds checks that the list in a body equals that of the object, except for some elements. A
// body without the list leaves the list as it is.
func (l listed) holds(c events.Command, body map[string]any, f *facts) error {
	last := len(l.path) - 1
	for _, parent := range find(body, l.path[:last]) {
		fields, _ := parent.(map[string]any)
		for name := range fields {
			if strings.HasPrefix(name, "$") {
				return fmt.Errorf("the body holds %.80s beside %s, which is not promised", name, l.path)
			}
		}
	}
	found := find(body, l.path)
	if len(found) == 0 {
		return nil
	}
	of := f.of(c)
	if of.get() == nil {
		return fmt.Errorf("%w: %v is not known", events.ErrSuperseded, c.Ref())
	}
	has, err := jsonOf(found[0])
	if err != nil {
		return err
	}
	var wants json.RawMessage
	if parts := of.at(l.path); len(parts) > 0 {
		wants = parts[0]
	}
	bounded := func(e map[string]any) bool {
		by, _ := e[l.By].(string)
		return slices.Contains(l.One, by)
	}
	if !sameRest(has, wants, bounded) {
		return of.differs("the body changes other elements of %s than are promised", l.path)
	}
	return nil
}

// claimed reports whether a pod's volumes are those of its template, except for the pod's own
// claims, which replace the volumes of the same names.
func claimed(pod string, claims []string, volumes, template json.RawMessage) bool {
	own, foreign := map[string]bool{}, false
	var all []map[string]any
	_ = json.Unmarshal(volumes, &all) // a value that is no list differs from the template's list
	for _, v := range all {
		name, _ := v["name"].(string)
		if !slices.Contains(claims, name) {
			continue
		}
		claim := map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": name + "-" + pod}}
		foreign = foreign || !reflect.DeepEqual(pruned(v), any(claim))
		own[name] = true
	}
	return !foreign && sameRest(volumes, template, func(v map[string]any) bool {
		name, _ := v["name"].(string)
		return own[name]
	})
}

// sameRest reports whether two JSON lists have the same elements in the same order, apart from
// elements that leftOut selects.
func sameRest(a, b json.RawMessage, leftOut func(map[string]any) bool) bool {
	var x, y []map[string]any
	if len(a) > 0 && json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return slices.EqualFunc(slices.DeleteFunc(x, leftOut), slices.DeleteFunc(y, leftOut), func(v, w map[string]any) bool {
		return reflect.DeepEqual(pruned(v), pruned(w))
	})
}
