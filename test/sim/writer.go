package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
)

// writer is one process of the writers: the turns that it has in hand, each in
// the middle of its plan.
type writer struct {
	world *World
	hands []*carrying
}

// carrying is a turn that is being carried out.
type carrying struct {
	turn     events.Turn
	sequence uint64
	plan     *plan.Plan
	requests []plan.Request
	tries    map[int]int
	delivery *delivery
	until    time.Time // when the turn may be somebody else's
}

// spent is the try after which a command has no time left.
const spent = 6

// take takes a turn in hand.
func (w *writer) take(p *delivery, t events.Turn) {
	for _, c := range w.hands {
		if c.turn.Controller == t.Controller && c.sequence == p.sequence {
			p.take()
			return
		}
	}
	again := p.attempts > 0
	p.take()
	if !w.world.options.Preconditions {
		t.Commands = heedless(t.Commands)
	}
	c := &carrying{turn: t, sequence: p.sequence, tries: map[int]int{}, delivery: p, until: p.at}
	allowed := w.world.promises[t.Controller]
	options := plan.Options{Again: again, Promised: allowed}
	if w.world.options.Preconditions {
		options.Refused = w.stale(t)
	}
	c.plan = plan.New(t, options)
	w.hands = append(w.hands, c)
	w.ask(c)
}

// heedless is commands without their conditions, but for the uid without which
// the plan would not delete at all.
func heedless(commands []events.Command) []events.Command {
	out := slices.Clone(commands)
	for i, c := range out {
		if c.If != nil {
			out[i].If = &events.If{UID: c.If.UID}
		}
	}
	return out
}

// stale judges the turn by the newest delta of its object.
func (w *writer) stale(t events.Turn) plan.Refusal {
	if t.Kind == "" {
		return plan.Refusal{}
	}
	ref := events.Ref{Kind: t.Kind, Namespace: t.Key.Namespace, Name: t.Key.Name}
	delta, known := w.world.bus.lastDelta(ref)
	return plan.Stale(t, delta, known)
}

// ask takes what the plan wants next; a plan that wants nothing more is done.
func (w *writer) ask(c *carrying) {
	c.requests = append(c.requests, c.plan.Next()...)
	if results, done := c.plan.Results(); done {
		w.finish(c, results)
	}
}

// letGo drops the turns that may have been delivered to somebody else by now,
// as the writer does when it was stopped for too long.
func (w *writer) letGo() {
	w.hands = slices.DeleteFunc(w.hands, func(c *carrying) bool { return !c.until.After(w.world.now) })
}

// step makes one of the requests that may run now. The answer may get lost,
// before or after the request has had its effect.
func (w *writer) step(c *carrying, which int, fate fate) {
	r := c.requests[which]
	c.requests = append(c.requests[:which], c.requests[which+1:]...)
	c.delivery.Working()
	c.until = c.delivery.at
	c.tries[r.Command]++
	var answer plan.Response
	switch fate {
	case fails:
		answer = plan.Response{}
	case losesAnswer:
		w.world.request(c.turn.Controller, c.turn.Commands[r.Command], r)
		answer = plan.Response{}
	default:
		answer = w.world.request(c.turn.Controller, c.turn.Commands[r.Command], r)
	}
	answer.Spent = c.tries[r.Command] >= spent
	c.plan.Answer(r.Command, answer)
	w.ask(c)
}

func (w *writer) finish(c *carrying, results []events.Result) {
	w.world.bus.put(events.Outcome{
		Controller: c.turn.Controller, Key: c.turn.Key, Lane: c.turn.Lane, Turn: c.sequence, Results: results, At: w.world.now,
	})
	c.delivery.Done()
	for i, other := range w.hands {
		if other == c {
			w.hands = append(w.hands[:i], w.hands[i+1:]...)
			return
		}
	}
}

// fate is what becomes of a request.
type fate int

const (
	works fate = iota
	fails
	losesAnswer
)
