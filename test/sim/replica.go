package sim

import (
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// replica is one process of the reconcilers: a memory, and a desk for each
// controller. Killing it is forgetting it.
type replica struct {
	world  *World
	memory *shell.Memory
	desks  []*desk
	folded map[kinds.Name]uint64
}

// desk is a desk with what lies between it and the bus: requests that have not
// been carried out, and answers that have not arrived.
type desk struct {
	*shell.Desk
	replica  *replica
	reads    []kinds.Name
	requests []func() (answer func())
	answers  []func()
	heard    int // outcomes of the followed stream that it has heard
}

func newReplica(w *World) *replica {
	r := &replica{world: w, memory: shell.NewMemory(), folded: map[kinds.Name]uint64{}}
	for _, k := range w.served {
		r.memory.Follow(k)
	}
	for _, c := range w.controllers {
		r.memory.Register(c.Describe())
	}
	for _, c := range w.controllers {
		d := &desk{replica: r, reads: reads(c, w.served), heard: len(w.bus.outcomes[c.Describe().Name])}
		d.Desk = shell.NewDesk(c, r.memory, d, shell.Settings{Code: "sim", Pace: w.options.Pace}, w.now)
		for _, k := range w.served {
			if end := uint64(len(w.bus.logs[k.Name])); end > 0 && d.hears(k.Name) {
				d.Shut(k.Name)
			}
		}
		r.desks = append(r.desks, d)
	}
	for _, k := range w.served {
		r.open(k.Name, uint64(len(w.bus.logs[k.Name])))
	}
	return r
}

// open remembers where a kind's stream ended at the start: decisions wait until
// it has been folded up to there.
func (r *replica) open(kind kinds.Name, end uint64) {
	if end == 0 {
		return
	}
	r.world.later(func() bool {
		if r.folded[kind] < end {
			return false
		}
		for _, d := range r.desks {
			if d.hears(kind) {
				d.Open(kind)
			}
		}
		return true
	}, r)
}

func reads(c reconcile.Any, served []kinds.Kind) []kinds.Name {
	var out []kinds.Name
	for _, in := range c.Describe().Inputs {
		if !in.Every {
			out = append(out, in.Kind.Name)
			continue
		}
		for _, k := range served {
			out = append(out, k.Name)
		}
	}
	return out
}

func (d *desk) hears(kind kinds.Name) bool {
	for _, k := range d.reads {
		if k == kind {
			return true
		}
	}
	return false
}

// fold takes in a few messages of a kind's state stream.
func (r *replica) fold(kind kinds.Name, most int) {
	batch := r.world.bus.state(kind, r.folded[kind], most)
	if len(batch) == 0 {
		r.folded[kind] = uint64(len(r.world.bus.logs[kind]))
		return
	}
	r.memory.Fold(kind, batch)
	r.folded[kind] = batch[len(batch)-1].Sequence
	for _, d := range r.desks {
		if d.hears(kind) {
			d.Folded(kind)
		}
	}
}

// Store implements shell.Door.
func (d *desk) Store(t events.Turn, expect uint64) {
	d.request(func() func() {
		sequence, err := d.replica.world.bus.store(t, expect)
		if err == nil {
			d.replica.world.stored(t, sequence)
		}
		return func() {
			d.Stored(t.Key, t.Lane, sequence, err)
			if err == nil && d.replica.world.options.HalfFence {
				d.Outcome(events.Outcome{Controller: t.Controller, Key: t.Key, Lane: t.Lane, Turn: sequence})
			}
		}
	})
}

// Recall implements shell.Door.
func (d *desk) Recall(key events.Key, lane events.Lane) {
	d.request(func() func() {
		sequence, turn, outcome := d.replica.world.bus.last(d.Name(), lane, key)
		return func() {
			d.Recalled(key, lane, shell.Past{Sequence: sequence, Turn: turn, Outcome: outcome}, nil)
		}
	})
}

// Schedule implements shell.Door.
func (d *desk) Schedule(w events.Wake) {
	d.request(func() func() {
		d.replica.world.bus.wakes[wakeKey{w.Controller, w.Key}] = w
		return func() { d.Scheduled(w.Key, w.At, nil) }
	})
}

// Reach implements shell.Door.
func (d *desk) Reach(kind kinds.Name) {
	d.request(func() func() {
		end := uint64(len(d.replica.world.bus.logs[kind]))
		return func() { d.Reached(kind, end, nil) }
	})
}

func (d *desk) request(r func() func()) { d.requests = append(d.requests, r) }

// next is the earliest timer of the replica.
func (r *replica) next() (at time.Time, ok bool) {
	for _, d := range r.desks {
		if t, has := d.Next(); has && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	return at, ok
}
