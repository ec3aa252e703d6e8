package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	writelimits "github.com/millrace/millrace/services/writer/limits"
	"github.com/millrace/millrace/services/writer/plan"
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
	l, known := x.limits[c.turn.Controller]
	if !known {
		l = &writeWindow{window: x.world.options.Limits.NewWindow(c.turn.Controller)}
		x.limits[c.turn.Controller] = l
	}
	if !l.window.Concerns(c.turn.Commands) {
		return nil
	}
	if l.counted > len(c.book.outcomes) { // the stream has lost its end
		l.window.Forget()
		l.counted = 0
	}
	for ; l.counted < len(c.book.outcomes); l.counted++ {
		l.window.Count(c.book.settledAt[l.counted], c.book.outcomes[l.counted])
	}
	held := map[int]plan.Refusal{}
	undecided := func(string) (a events.Approval, approved, ok bool) { return a, false, false }
	for i, v := range l.window.Judge(x.world.now, c.sequence, c.turn.Commands, undecided) {
		held[i] = plan.Refusal{Code: events.HeldCode, Reason: events.Held, Cause: v.Limit, Message: v.Message}
	}
	x.world.tally.Held += len(held)
	x.world.guard.grants(c)
	return held
}

// written are the writes of a turn that count against limits.
func (x *writer) written(c *carrying, results []events.Result) []events.WriteCount {
	if l := x.limits[c.turn.Controller]; l != nil && l.window != nil {
		return l.window.Counts(c.sequence, results)
	}
	return nil
}

// deletion is a delete that has taken effect.
type deletion struct {
	by   *carrying
	turn place
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
func (g *guard) grants(c *carrying) {
	rule := g.world.options.Rule
	c.room = rule.Most
	for _, d := range g.deleted {
		if g.world.now.Sub(d.at) >= rule.Within || d.turn == c.place {
			continue
		}
		if slices.Contains(c.writer.hands, d.by) || settledBy(c.book, d) {
			c.room--
		}
	}
}

// settledBy reports whether the turn of a deletion has an outcome.
func settledBy(b *book, d deletion) bool {
	return slices.ContainsFunc(b.outcomes, func(o events.Outcome) bool { return o.IsOf(d.turn.sequence, d.by.turn.Now) })
}

// counts judges a delete that a writer has just carried out.
func (g *guard) counts(c *carrying, r plan.Request, answer plan.Response) {
	rule := g.world.options.Rule
	if g.world.options.Limits == nil || r.Verb != plan.Delete || r.Kind != "pods" || answer.Code != 200 || c.turn.Controller != rule.Controller {
		return
	}
	if c.room--; c.room < 0 {
		g.breaks("L1", "%s deletes %s/%s in turn %d beyond %d within %v", c.turn.Controller, r.Namespace, r.Name, c.sequence, rule.Most, rule.Within)
	}
	g.deleted = append(g.deleted, deletion{c, c.place, g.world.now})
}
