package shell

import (
	"cmp"
	"maps"
	"net/http"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
)

// Folded says that the memory has taken in a kind's stream further. The keys that the
// changes concern are asked about.
func (d *Engine) Folded(kind kinds.Name) {
	d.turnOver(kind)
	d.recheckMoved(kind)
	var all news
	d.memory.look(d.name, nil, func(s scene) {
		all = s.reader.take()
		if k, ok := s.kind(kind); ok {
			d.taken[kind] = k.position
		}
	})
	d.take(all)
	d.restore(kind)
	d.revisitInconsistent()
}

// take has the keys asked about that changes concern, and sets the changes aside that concern
// none as they cannot be read.
func (d *Engine) take(all news) {
	for _, k := range all.keys {
		if d.owns(k) {
			e := d.entry(k)
			e.asked(*all.causes[k])
			d.demand(e, urgently)
		}
	}
	for _, u := range all.unmapped {
		if key := events.Key(u.ref); d.owns(key) {
			e := d.entry(key)
			e.message, e.version = true, u.version
			d.park(e, u.reason)
		}
	}
}

// Dealt is, by kind, up to which sequence everything that changes asked for has had its turn,
// as far as the engine was told of them.
func (d *Engine) Dealt() map[kinds.Name]uint64 {
	dealt := maps.Clone(d.taken)
	for kind, oldest := range d.Backlog() {
		dealt[kind] = min(dealt[kind], oldest.Sequence-1)
	}
	return dealt
}

// asked notes what asks for a turn of the key.
func (e *entry) asked(why causes) {
	for _, t := range why.triggers {
		e.caused(t)
	}
	for _, b := range why.oldest {
		if e.wait(b); e.since.IsZero() || b.Stored.Before(e.since) {
			e.since = b.Stored
		}
	}
}

// caused notes one thing that asks for a turn of the key.
func (e *entry) caused(t events.Trigger) {
	if e.triggers = append(e.triggers, t); len(e.triggers) > events.MaxTriggers {
		e.triggers = e.triggers[len(e.triggers)-events.MaxTriggers:]
	}
}

// restore looks at the messages of a kind that are set aside: of an object that has changed
// since and can be read again, there is nothing to be said any more.
func (d *Engine) restore(kind kinds.Name) {
	for key, e := range d.parked {
		if e.message && key.Kind == kind {
			if keys, reason, version := d.mapped(events.Ref(key)); version != e.version && reason == "" {
				d.mend(e)
				d.Ask(keys...)
			}
		}
	}
}

// mapped gives the keys of an object as it is, or why none can be told, and its version; of one
// that is gone the version alone.
func (d *Engine) mapped(ref events.Ref) (keys []events.Key, reason, version string) {
	d.memory.look(d.name, nil, func(s scene) {
		k, ok := s.kind(ref.Kind)
		if !ok {
			return
		}
		at := name{ref.Namespace, ref.Name}
		if damage, ok := k.damaged[at]; ok {
			reason, version = damage.reason, damage.version
			return
		}
		h, there := k.objects[at]
		if !there {
			version = k.gone[k.last[at]].version // what its end asks for was asked when it was folded
			return
		}
		version = h.version
		var err error
		if keys, err = s.reader.keys(s, change{ref: ref, now: h.object}); err != nil {
			reason = err.Error()
		}
	})
	return keys, reason, version
}

// Wake says that a wake of a key has fired, whose message is at a sequence of the stream of
// wakes.
func (d *Engine) Wake(sequence uint64, w events.Wake) {
	if !d.owns(w.Key) {
		return
	}
	e := d.entry(w.Key)
	e.first = e.first || w.Trace.Parent == ""
	e.caused(events.Trigger{Stream: subject.WakeStream, Sequence: sequence, Trace: w.Trace})
	d.demand(e, urgently)
}

// answered tells how a turn ended.
//
// Upstream: a failure without a status of the API server counts as a 500.
func (d *Engine) answered(o events.Outcome, took time.Duration) {
	if d.settings.Answered == nil {
		return
	}
	code := http.StatusOK
	if failure, failed := o.Failure(); failed {
		code = cmp.Or(failure.Code, http.StatusInternalServerError)
	}
	d.settings.Answered(code, took)
}

// took is how long a turn took, from its decision until now; 0 where that is not
// known, since another replica made it.
func (d *Engine) took(l *lane, o events.Outcome) time.Duration {
	if l.journey.turn == o.Turn {
		return d.now.Sub(l.journey.decided)
	}
	return 0
}
