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

// guarded carries a turn out. A fault of this writer that the turn shows is its outcome:
// otherwise the process would end, and the turn would be given to the next one.
func (t *taker) guarded(ctx context.Context, d bus.Delivery, fresh bool) (answer func(bus.Delivery)) {
	defer func() {
		if cause := recover(); cause != nil {
			answer = t.panicked(ctx, d.Message(), cause, debug.Stack())
		}
	}()
	return t.carry(ctx, d, fresh)
}

// panicked settles a turn that shows a fault of this writer. What was done of it is not
// known.
func (t *taker) panicked(ctx context.Context, m events.Message, cause any, stack []byte) func(bus.Delivery) {
	err := fmt.Errorf("the writer has a fault: %v", cause)
	t.metrics.alarms.WithLabelValues(t.profile.Name, plan.ReasonPanicked).Inc()
	t.log(m).Error("a turn made the writer panic", "err", err, "stack", string(stack))
	controller, lane, key, unread := subject.ParseTurn(m.Subject)
	if unread != nil {
		return func(d bus.Delivery) { d.Hopeless(err.Error()) }
	}
	turn := events.Turn{Controller: controller, Lane: lane, Key: key}
	failed := []events.Result{{Status: events.Failed, Reason: plan.ReasonPanicked, Message: err.Error(), Unsure: true}}
	if unsettled := t.settle(ctx, m, turn, failed); unsettled != nil {
		return t.later(m, unsettled)
	}
	return func(d bus.Delivery) { d.Hopeless(err.Error()) }
}

// panicked counts and logs a fault of the door.
func (m *metrics) panicked(log *slog.Logger) func(controller string, cause any, stack []byte) {
	return func(controller string, cause any, stack []byte) {
		m.alarms.WithLabelValues(controller, plan.ReasonPanicked).Inc()
		log.Error("a request made the writer panic", "controller", controller, "err", cause, "stack", string(stack))
	}
}

// verbAt is the verb of a command of a turn; empty where there is no such command.
func verbAt(t events.Turn, command int) events.Verb {
	if command < 0 || command >= len(t.Commands) {
		return ""
	}
	return t.Commands[command].Verb
}

// restates tells whether a turn updates a status: its body has the metadata of the object,
// too, which must be as they are.
func restates(t events.Turn) bool {
	return slices.ContainsFunc(t.Commands, func(c events.Command) bool {
		return c.Verb == events.VerbUpdate && c.Subresource == "status"
	})
}

// fits is the profile's check of a turn's commands. own is the newest delta of the key's
// object.
func (p *Profile) fits(turn events.Turn, own events.Delta) func(events.Command, []byte) error {
	if p.Fits == nil {
		return nil
	}
	object := sync.OnceValue(func() metav1.Object {
		kind, known := kinds.Lookup(own.Kind)
		if !known || own.Op != events.Is {
			return nil
		}
		kind.Form = own.Form
		decoded, err := kinds.Decode(kind, own.ContentType, own.Body)
		if err != nil {
			return nil // what cannot be read proves nothing
		}
		return decoded
	})
	fits := p.Fits(turn, object)
	return func(c events.Command, body []byte) error {
		c.Body = body
		return fits(c)
	}
}
