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

// facts are what is known when the commands of a turn are checked.
type facts struct {
	turn   events.Turn
	owns   *kinds.Kind
	own    *known
	read   func(events.Ref) metav1.Object
	others map[events.Ref]*known
	sets   map[events.Ref]*known // of revisions, as those have them
	holds  *promise              // which the body holds that was looked at last
	body   json.RawMessage
}

// known is an object, read when it is first asked for.
type known struct {
	read   func() metav1.Object
	object metav1.Object
	asked  bool
	saw    string                             // the version that the turn was decided on
	parts  map[*redact.Step][]json.RawMessage // of the object, by the path that leads there
}

// of is the object that a command is about, of which the turn saw the version that the
// command names.
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

// remembered is what is known of an object, which is read at most once.
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

// held tells whether a body is the very one that was found to hold a promise: many creates of
// a turn share theirs.
func (f *facts) held(p *promise, body json.RawMessage) bool {
	return f.holds == p && len(body) > 0 && len(f.body) == len(body) && &f.body[0] == &body[0]
}

// revision is the key's object as the ControllerRevision has it that a pod's body names in its
// label; it is not known where that is none of the key's object.
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
		var set appsv1.StatefulSet // of whose template it is a patch
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

// differs is the error of a command that does not agree with the object. One that was decided
// on another version of it may have agreed with that.
func (k *known) differs(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	if obj := k.get(); obj != nil && obj.GetResourceVersion() != k.saw {
		return fmt.Errorf("%w: %w", events.ErrSuperseded, err)
	}
	return err
}

// at is what the object has at a path, as JSON: all values where it leads to several.
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

// firstOf tells a path of a promise from all others; nil is the one that leads to everything.
func firstOf(path redact.Path) *redact.Step {
	if len(path) == 0 {
		return nil
	}
	return &path[0]
}
