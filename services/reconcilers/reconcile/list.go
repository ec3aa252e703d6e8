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

// listed are [Elements] with its path read.
type listed struct {
	Elements
	path redact.Path
}

// holds tells whether the list in a body is that of the object, but for some elements. A body
// without the list leaves it as it is.
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

// claimed tells whether volumes are those of a pod's template, but for the claims of some
// names that are the pod's own: each takes the place of the volume of its name.
func claimed(pod string, claims []string, volumes, template json.RawMessage) bool {
	own, foreign := map[string]bool{}, false
	var all []map[string]any
	_ = json.Unmarshal(volumes, &all) // what is no list is not the same as one
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

// sameRest tells whether two JSON lists have the same elements, in the same order, without
// those that are left out.
func sameRest(a, b json.RawMessage, leftOut func(map[string]any) bool) bool {
	var x, y []map[string]any
	if len(a) > 0 && json.Unmarshal(a, &x) != nil || len(b) > 0 && json.Unmarshal(b, &y) != nil {
		return false
	}
	return slices.EqualFunc(slices.DeleteFunc(x, leftOut), slices.DeleteFunc(y, leftOut), func(v, w map[string]any) bool {
		return reflect.DeepEqual(pruned(v), pruned(w))
	})
}
