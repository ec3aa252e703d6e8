package rules

import (
	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/sim/apiserver"
	"github.com/millrace/millrace/test/sim/cluster"
	"github.com/millrace/millrace/test/sim/metadata"
	"github.com/millrace/millrace/test/sim/network"
	"github.com/millrace/millrace/test/sim/workloads"
)

// Before checks a request just before it happens: the garbage collector deletes nothing with a
// live owner. An owner that is being deleted is not live: a user who turns a foreground
// deletion into an orphaning one races the collector, between its read of the owner and its
// delete, here as upstream.
func Before(g *cluster.Guard, c *cluster.Taken, r plan.Request) {
	workloads.Spends(g, c, r)
	metadata.Forgets(g, c, r)
	network.Looks(g, c, r)
	if r.Verb != plan.Delete {
		return
	}
	obj := g.World.API.Get(events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	if obj == nil {
		return
	}
	if p := r.Delete.Preconditions; p != nil &&
		(*p.UID != obj.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != obj.GetResourceVersion()) {
		return // the API server will refuse it
	}
	g.Turns.Wrong = c.Turn.Commands[r.Command].If.UID != obj.GetUID()
	if deletes(g, c, r, obj) {
		return
	}
	for _, ref := range obj.GetOwnerReferences() {
		at, known := g.World.API.OwnerRef(&ref, obj.GetNamespace())
		switch owner := g.World.API.Get(at); {
		case !known || owner == nil || owner.GetUID() != ref.UID:
		case owner.GetDeletionTimestamp() != nil && !apiserver.Waits(owner):
			g.Spare(cluster.LeavingOwner)
		case owner.GetDeletionTimestamp() == nil:
			g.Breaks("I4", "%s %s is collected although its owner %s %s lives", r.Kind, r.Name, ref.Kind, ref.Name)
		}
	}
}

// After checks the effect of a request.
func After(g *cluster.Guard, c *cluster.Taken, r plan.Request, effect bool) {
	wrong := g.Turns.Wrong
	g.Turns.Wrong = false
	t := c.Turn
	if !effect || t.Lane != events.LaneWrite {
		return
	}
	if wrong {
		g.Breaks("I4", "%s %s is not the one that turn %d of %s wanted to delete", r.Kind, r.Name, c.Sequence, t.Controller)
	}
	if t.UID == "" {
		return
	}
	at := cluster.Asker{Controller: t.Controller, Object: t.UID}
	if g.Turns.Generations[at] > t.Generation {
		g.Breaks("I8", "turn %d of %s %v does something on generation %d after %d", c.Sequence, t.Controller, t.Key, t.Generation, g.Turns.Generations[at])
	}
	g.Turns.Generations[at] = t.Generation
}

// mostWrites is the most writes of an object while users, nodes and faults do nothing.
const mostWrites = 20

// Wrote counts the effect of a request on an object, and its costs.
func Wrote(g *cluster.Guard, c *cluster.Taken, r plan.Request, answer plan.Response, effect bool) {
	if effect {
		g.World.Counts.Effects++
	}
	if effect && r.Name != "" {
		at := events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
		g.Turns.Writes[at]++
		n := g.Turns.Writes[at]
		if g.World.Counts.Busiest = max(g.World.Counts.Busiest, n); n > mostWrites && g.World.ClocksDiffer() {
			g.Spare(cluster.ClockAhead)
		} else if n > mostWrites {
			g.Breaks("I11", "%s %s was written %d times while nothing else happened, at last by %s", r.Kind, r.Name, n, c.Turn.Controller)
		}
	}
	if r.Verb != plan.Create {
		return
	}
	if r.Kind == kinds.Jobs.Name && answer.Code == 409 {
		g.Jobs.Names[r.Name] = true
	}
	b := g.Turns.Batches[c.At()]
	if b == nil {
		b = &cluster.Batch{Made: map[int]bool{}, Refused: map[int]bool{}}
		g.Turns.Batches[c.At()] = b
	}
	switch {
	case effect || g.World.API.Has(events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}):
		b.Made[r.Command] = true
	case answer.Code == 403 && !b.Made[r.Command]:
		b.Refused[r.Command] = true
	}
	// The first batch has one create, each further one twice as many, until one is refused.
	if n := len(b.Refused); n > len(b.Made)+1 {
		g.Breaks("I16", "turn %d of %s has %d creates refused after %d that were not", c.Sequence, c.Turn.Controller, n, len(b.Made))
	}
}
