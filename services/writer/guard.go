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
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/writer/kindlog"
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

// fits returns the profile's check of a turn's commands. own is the newest delta of the key's
// object.
func (p *Profile) fits(turn events.Turn, own events.Delta, read func(events.Ref) metav1.Object) func(events.Command, []byte) error {
	if p.Fits == nil {
		return nil
	}
	object := sync.OnceValue(func() metav1.Object {
		return kindlog.ObjectOf(own)
	})
	fits := p.Fits(turn, object, read)
	return func(c events.Command, body []byte) error {
		c.Body = body
		return fits(c)
	}
}
