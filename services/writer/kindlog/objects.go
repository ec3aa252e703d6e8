package kindlog

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// ObjectOf returns the object in a delta. It returns nil if the object is gone or cannot be read;
// nil proves nothing.
func ObjectOf(d events.Delta) metav1.Object {
	kind, known := kinds.Lookup(d.Kind)
	if !known || d.Op != events.Is {
		return nil
	}
	kind.Form = d.Form
	decoded, err := kinds.Decode(kind, d.ContentType, d.Body)
	if err != nil {
		return nil
	}
	return decoded
}

// ObjectsOf returns a function that reads an object that a turn changes or names, from the log
// of its kind. The first read of a kind looks up all objects of it that the turn changes. If the bus
// cannot be asked the function returns nil, and the command is stale.
func ObjectsOf(ctx context.Context, b bus.Bus, turn events.Turn) func(events.Ref) metav1.Object {
	found := map[events.Ref]metav1.Object{}
	return func(ref events.Ref) metav1.Object {
		if _, asked := found[ref]; !asked {
			for one, object := range readObjects(ctx, b, changedWith(turn, ref)) {
				found[one] = object
			}
		}
		return found[ref]
	}
}

// changedWith returns an object and those of its kind that a turn changes.
func changedWith(turn events.Turn, ref events.Ref) []events.Ref {
	refs := []events.Ref{ref}
	for _, c := range turn.Commands {
		if other := c.Ref(); (c.Verb == events.VerbUpdate || c.Verb == events.VerbPatch) && other.Kind == ref.Kind && !slices.Contains(refs, other) {
			refs = append(refs, other)
		}
	}
	return refs
}

// readObjects reads objects of one kind from its log. An object that cannot be read is nil.
func readObjects(ctx context.Context, b bus.Bus, refs []events.Ref) map[events.Ref]metav1.Object {
	subjects := make([]string, len(refs))
	for i, ref := range refs {
		subjects[i] = subject.Delta(ref)
	}
	messages, err := b.LastOf(ctx, subject.LogStream(refs[0].Kind), subjects)
	objects := make(map[events.Ref]metav1.Object, len(refs))
	for i, ref := range refs {
		m, there := messages[subjects[i]]
		objects[ref] = nil
		if err != nil || !there {
			continue
		}
		if d, unread := events.DecodeDelta(ref, m); unread == nil {
			objects[ref] = ObjectOf(d)
		}
	}
	return objects
}
