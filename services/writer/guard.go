package writer

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/plan"
)

// guarded carries a turn out. If the turn makes this writer panic, the panic becomes its outcome:
// otherwise the process would end, and the bus would deliver the turn to the next writer.
func (x *executor) guarded(ctx context.Context, d bus.Delivery, fresh bool) (answer func(bus.Delivery)) {
	defer func() {
		if cause := recover(); cause != nil {
			answer = x.panicked(ctx, d.Message(), cause, debug.Stack())
		}
	}()
	return x.execute(ctx, d, fresh)
}

// panicked settles a turn that made this writer panic. Which of its effects are there is unknown.
func (x *executor) panicked(ctx context.Context, m events.Message, cause any, stack []byte) func(bus.Delivery) {
	err := fmt.Errorf("the writer has a fault: %v", cause)
	x.metrics.alarms.WithLabelValues(x.profile.Name, plan.ReasonPanicked).Inc()
	x.log(m).Error("a turn made the writer panic", "err", err, "stack", string(stack))
	controller, lane, key, unread := subject.ParseTurn(m.Subject)
	if unread != nil {
		return func(d bus.Delivery) { d.Term(err.Error()) }
	}
	turn := events.Turn{Controller: controller, Lane: lane, Key: key}
	failed := []events.Result{{Status: events.Failed, Reason: plan.ReasonPanicked, Message: err.Error(), Unsure: true}}
	if unsettled := x.storeOutcome(ctx, m, turn, failed); unsettled != nil {
		return x.handBack(m, unsettled)
	}
	return func(d bus.Delivery) { d.Term(err.Error()) }
}

// panicked returns a function that counts and logs a panic of the door.
func (m *metrics) panicked(log *slog.Logger) func(controller string, cause any, stack []byte) {
	return func(controller string, cause any, stack []byte) {
		m.alarms.WithLabelValues(controller, plan.ReasonPanicked).Inc()
		log.Error("a request made the writer panic", "controller", controller, "err", cause, "stack", string(stack))
	}
}

// verbAt returns the verb of a turn's command, and "" if there is no such command.
func verbAt(t events.Turn, command int) events.Verb {
	if command < 0 || command >= len(t.Commands) {
		return ""
	}
	return t.Commands[command].Verb
}

// updatesStatus reports whether a turn updates a status. The body of such an update also has the object's
// metadata, which must match the live object's.
func updatesStatus(t events.Turn) bool {
	return slices.ContainsFunc(t.Commands, func(c events.Command) bool {
		return c.Verb == events.VerbUpdate && c.Subresource == "status"
	})
}

// objectOf returns the object in a delta. It returns nil if the object is gone or cannot be read;
// nil proves nothing.
func objectOf(d events.Delta) metav1.Object {
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

// recordedObjects returns a function that reads an object that a turn changes or names, from the log
// of its kind. The first read of a kind looks up all objects of it that the turn changes. If the bus
// cannot be asked the function returns nil, and the command is stale.
func (x *executor) recordedObjects(ctx context.Context, turn events.Turn) func(events.Ref) metav1.Object {
	found := map[events.Ref]metav1.Object{}
	return func(ref events.Ref) metav1.Object {
		if _, asked := found[ref]; !asked {
			for one, object := range x.lookUp(ctx, changedWith(turn, ref)) {
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

// lookUp reads objects of one kind from its log. An object that cannot be read is nil.
func (x *executor) lookUp(ctx context.Context, refs []events.Ref) map[events.Ref]metav1.Object {
	subjects := make([]string, len(refs))
	for i, ref := range refs {
		subjects[i] = subject.Delta(ref)
	}
	messages, err := x.config.Bus.LastOf(ctx, subject.LogStream(refs[0].Kind), subjects)
	objects := make(map[events.Ref]metav1.Object, len(refs))
	for i, ref := range refs {
		m, there := messages[subjects[i]]
		objects[ref] = nil
		if err != nil || !there {
			continue
		}
		if d, unread := events.DecodeDelta(ref, m); unread == nil {
			objects[ref] = objectOf(d)
		}
	}
	return objects
}

// fits returns the profile's check of a turn's commands. own is the newest delta of the key's
// object.
func (p *Profile) fits(turn events.Turn, own events.Delta, read func(events.Ref) metav1.Object) func(events.Command, []byte) error {
	if p.Fits == nil {
		return nil
	}
	object := sync.OnceValue(func() metav1.Object {
		return objectOf(own)
	})
	fits := p.Fits(turn, object, read)
	return func(c events.Command, body []byte) error {
		c.Body = body
		return fits(c)
	}
}
