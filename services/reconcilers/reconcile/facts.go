package reconcile

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/redact"
)

// facts are the known objects against which the commands of a turn are checked.
type facts struct {
	turn   events.Turn
	owns   *kinds.Kind
	own    *known
	read   func(events.Ref) metav1.Object
	others map[events.Ref]*known
	sets   map[events.Ref]*known // StatefulSets as their ControllerRevisions describe them
	holds  *promise              // the promise that the body checked last has kept
	body   json.RawMessage
}

// known is an object that is read at first use.
type known struct {
	read   func() metav1.Object
	object metav1.Object
	asked  bool
	saw    string                             // the version that the turn was decided on
	parts  map[*redact.Step][]json.RawMessage // of the object, by the path that leads there
}

// of returns the object that a command is about. The version that the turn saw is the one that
// the command names.
func (f *facts) of(c events.Command) *known {
	ref := c.Ref()
	if Itself.holds(kindOf(f.owns, f.turn), f.turn.Key, ref) {
		return f.own
	}
	saw := ""
	if c.If != nil {
		saw = c.If.ResourceVersion
	}
	return remembered(&f.others, ref, saw, func() metav1.Object { return f.read(ref) })
}

// remembered returns the entry of an object in all, or adds one. The object is read at most
// once.
func remembered(all *map[events.Ref]*known, ref events.Ref, saw string, read func() metav1.Object) *known {
	k, had := (*all)[ref]
	if !had {
		k = &known{read: read, saw: saw}
		if *all == nil {
			*all = map[events.Ref]*known{}
		}
		(*all)[ref] = k
	}
	return k
}

// held reports whether body is the same slice that kept promise p last: many creates of a turn
// share one body.
func (f *facts) held(p *promise, body json.RawMessage) bool {
	return f.holds == p && len(body) > 0 && len(f.body) == len(body) && &f.body[0] == &body[0]
}

// revision returns the key's object as the ControllerRevision describes it that the label of a
// pod's body names. It is unknown if that revision does not belong to the key's object.
func (f *facts) revision(namespace string, body map[string]any) *known {
	name, _ := one(find(body, revisionLabel)).(string)
	ref := events.Ref{Kind: kinds.ControllerRevisions.Name, Namespace: namespace, Name: name}
	return remembered(&f.sets, ref, "", func() metav1.Object {
		if name == "" {
			return nil
		}
		r, ok := f.read(ref).(*appsv1.ControllerRevision)
		if !ok || !metav1.IsControlledBy(r, &metav1.ObjectMeta{UID: f.turn.UID}) {
			return nil
		}
		var set appsv1.StatefulSet // the data are a patch of the StatefulSet's template
		if json.Unmarshal(r.Data.Raw, &set) != nil {
			return nil
		}
		return &set
	})
}

var revisionLabel = path(".metadata.labels['" + appsv1.ControllerRevisionHashLabelKey + "']")

func (k *known) get() metav1.Object {
	if !k.asked && k.read != nil {
		k.object, k.asked = k.read(), true
	}
	return k.object
}

// differs returns the error for a command that disagrees with the object. If the turn was
// decided on another version of the object, the error is [events.ErrSuperseded], because the
// command may have agreed with that version.
func (k *known) differs(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if obj := k.get(); obj != nil && obj.GetResourceVersion() != k.saw {
		return fmt.Errorf("%w: %w", events.ErrSuperseded, err)
	}
	return err
}

// at returns the values at a path of the object, as JSON.
func (k *known) at(path redact.Path) []json.RawMessage {
	obj := k.get()
	if obj == nil {
		return nil
	}
	first := firstOf(path)
	values, had := k.parts[first]
	if had {
		return values
	}
	for _, v := range path.Find(obj) {
		if v.IsZero() {
			continue
		}
		if text, err := json.Marshal(v.Interface()); err == nil {
			values = append(values, text)
		}
	}
	if k.parts == nil {
		k.parts = map[*redact.Step][]json.RawMessage{}
	}
	k.parts[first] = values
	return values
}

// firstOf identifies a path of a promise by its first step; nil is the path to the whole
// object.
func firstOf(path redact.Path) *redact.Step {
	if len(path) == 0 {
		return nil
	}
	return &path[0]
}

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
