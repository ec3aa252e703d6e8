package reconcile

import (
	"encoding/json"
	"fmt"

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
