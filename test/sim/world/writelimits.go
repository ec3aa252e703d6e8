package world

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	writelimits "github.com/millrace/millrace/services/writer/limits"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/streams"
)

// writeWindow is what a writer has counted of one controller, with the product's window.
type writeWindow struct {
	window  *writelimits.Window
	counted int // outcomes
}

// held judges the commands of a turn by the write limits of the world, as the product's limiter does.
func (x *writer) held(c *carrying, refused plan.Refusal) map[int]plan.Refusal {
	if x.world.options.Limits == nil || refused != (plan.Refusal{}) {
		return nil
	}
	l, known := x.limits[c.Turn.Controller]
	if !known {
		l = &writeWindow{window: x.world.options.Limits.NewWindow(c.Turn.Controller)}
		x.limits[c.Turn.Controller] = l
	}
	if !l.window.Concerns(c.Turn.Commands) {
		return nil
	}
	if l.counted > len(c.book.Outcomes) { // the stream has lost its end
		l.window.Forget()
		l.counted = 0
	}
	for ; l.counted < len(c.book.Outcomes); l.counted++ {
		l.window.Count(c.book.SettledAt[l.counted], c.book.Outcomes[l.counted])
	}
	held := map[int]plan.Refusal{}
	undecided := func(string) (a events.Approval, approved, ok bool) { return a, false, false }
	for i, v := range l.window.Judge(x.world.Now, c.Sequence, c.Turn.Commands, undecided) {
		held[i] = plan.Refusal{Code: events.HeldCode, Reason: events.Held, Cause: v.Limit, Message: v.Message}
	}
	x.world.Counts.Held += len(held)
	x.world.grants(c)
	return held
}

// written are the writes of a turn that count against limits.
func (x *writer) written(c *carrying, results []events.Result) []events.WriteCount {
	if l := x.limits[c.Turn.Controller]; l != nil && l.window != nil {
		return l.window.Counts(c.Sequence, results)
	}
	return nil
}

// deletion is a delete that has taken effect.
type deletion struct {
	by   *carrying
	turn streams.Place
	at   time.Time
}

// LimitRule is the rule of a world with limits: a controller deletes at most Most pods within Within.
type LimitRule struct {
	Controller string
	Most       int
	Within     time.Duration
}

// grants notes how many pods a turn that begins may delete: as many as the rule leaves, after those that
// turns with an outcome have deleted, and those that turns in flight at the same writer have or may.
// What another writer has in flight is not known to this one, as the product says.
func (w *World) grants(c *carrying) {
	rule := w.options.Rule
	c.room = rule.Most
	for _, d := range w.deleted {
		if w.Now.Sub(d.at) >= rule.Within || d.turn == c.place {
			continue
		}
		if slices.Contains(c.writer.hands, d.by) || settledBy(c.book, d) {
			c.room--
		}
	}
}

// settledBy reports whether the turn of a deletion has an outcome.
func settledBy(b *streams.Book, d deletion) bool {
	return slices.ContainsFunc(b.Outcomes, func(o events.Outcome) bool { return o.IsOf(d.turn.Sequence, d.by.Turn.Now) })
}

// counts judges a delete that a writer has just carried out.
func (w *World) counts(c *carrying, r plan.Request, answer plan.Response) {
	rule := w.options.Rule
	if w.options.Limits == nil || r.Verb != plan.Delete || r.Kind != "pods" || answer.Code != 200 || c.Turn.Controller != rule.Controller {
		return
	}
	if c.room--; c.room < 0 {
		w.Guard.Breaks("L1", "%s deletes %s/%s in turn %d beyond %d within %v", c.Turn.Controller, r.Namespace, r.Name, c.Sequence, rule.Most, rule.Within)
	}
	w.deleted = append(w.deleted, deletion{c, c.place, w.Now})
}
