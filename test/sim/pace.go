package sim

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
)

// Rules about the rate of writes, and about delays: I7, I11 and I16.

const (
	// mostWrites is the most writes of an object while users, nodes and faults do nothing.
	mostWrites = 20
	// latest is for how long reconcilers may leave a key undecided while nothing delays them.
	latest = 10 * time.Minute
)

// batch is the results of a turn's creates, by command. Several writers may request each create
// several times.
type batch struct {
	made    map[int]bool // or existed before: then the create is refused, and the writer finds the object
	refused map[int]bool
}

// stirred records that something other than a controller acted.
func (g *guard) stirred() { clear(g.writes) }

// wrote counts the effect of a request on an object, and its costs.
func (g *guard) wrote(c *carrying, r plan.Request, answer plan.Response, effect bool) {
	if effect {
		g.world.tally.Effects++
	}
	if effect && r.Name != "" {
		at := events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
		g.writes[at]++
		n := g.writes[at]
		if g.world.tally.Busiest = max(g.world.tally.Busiest, n); n > mostWrites && g.world.clocksDiffer() {
			g.spare(clockAhead)
		} else if n > mostWrites {
			g.breaks("I11", "%s %s was written %d times while nothing else happened, at last by %s", r.Kind, r.Name, n, c.turn.Controller)
		}
	}
	if r.Verb != plan.Create {
		return
	}
	if r.Kind == kinds.Jobs.Name && answer.Code == 409 {
		g.names[r.Name] = true
	}
	b := g.batches[c.at()]
	if b == nil {
		b = &batch{made: map[int]bool{}, refused: map[int]bool{}}
		g.batches[c.at()] = b
	}
	switch {
	case effect || g.world.api.has(events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}):
		b.made[r.Command] = true
	case answer.Code == 403 && !b.made[r.Command]:
		b.refused[r.Command] = true
	}
	// The first batch has one create, each further one twice as many, until one is refused.
	if n := len(b.refused); n > len(b.made)+1 {
		g.breaks("I16", "turn %d of %s has %d creates refused after %d that were not", c.sequence, c.turn.Controller, n, len(b.made))
	}
}

// waited charges reconcilers with the time for which a wanted key was undecided while nothing
// else could happen, every process ran, and no view was held back.
func (g *guard) waited(d time.Duration) {
	w := g.world
	if !w.until.IsZero() || slices.ContainsFunc(w.replicas, func(r *replica) bool { return r.stalled() }) ||
		slices.ContainsFunc(w.writers, func(x *writer) bool { return x.stalled() }) {
		return
	}
	for _, r := range w.replicas {
		for _, engine := range r.engines {
			g.undecided(engine, d)
		}
	}
}

// undecided charges an engine for the keys that changes have asked for and that it has not
// decided about.
func (g *guard) undecided(engine *replicaEngine, d time.Duration) {
	for key, wants := range engine.wanted {
		wants.late += d
		g.world.tally.Latest = max(g.world.tally.Latest, wants.late)
		if wants.late > latest {
			g.breaks("I7", "%s has left %v undecided for %v", engine.Name(), key, wants.late)
		}
	}
}

// farApart is the difference of clocks that shows that one was set; smaller ones come from
// their start.
const farApart = 5 * time.Minute

// clocksDiffer reports whether the clocks of reconcilers have been set so far apart that a
// deadline has passed by one and not by another.
func (w *World) clocksDiffer() bool {
	first := w.replicas[0].skew
	return slices.ContainsFunc(w.replicas, func(r *replica) bool { return (r.skew - first).Abs() >= farApart })
}
