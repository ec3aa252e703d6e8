package shell

import (
	"cmp"
	"maps"
	"net/http"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// Folded says that the memory has folded more of a kind. The engine asks about the keys that
// the changes concern.
func (d *Engine) Folded(kind kinds.Name) {
	d.shutForEpoch(kind)
	d.recheckMoved(kind)
	var all cache.Changes
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		all = s.TakeChanges()
		if position, followed := s.Position(kind); followed {
			d.taken[kind] = position
		}
	})
	d.takeChanges(all)
	d.restore(kind)
	d.requeueInconsistent()
}

// takeChanges asks about the keys that changes concern, and parks the changes that cannot be decoded
// or mapped.
func (d *Engine) takeChanges(all cache.Changes) {
	for _, k := range all.Keys {
		if d.owns(k) {
			e := d.entry(k)
			e.addCauses(*all.Causes[k])
			d.enqueue(e, afterChange)
		}
	}
	for _, u := range all.Unmapped {
		if key := events.Key(u.Ref); d.owns(key) {
			e := d.entry(key)
			e.message, e.version = true, u.Version
			d.park(e, u.Reason)
		}
	}
}

// Dealt is, by kind, the sequence up to which every change has had the turns that it asked for,
// as far as the engine was told of changes.
func (d *Engine) Dealt() map[kinds.Name]uint64 {
	dealt := maps.Clone(d.taken)
	for kind, oldest := range d.Backlog() {
		dealt[kind] = min(dealt[kind], oldest.Sequence-1)
	}
	return dealt
}

// addCauses records the changes that ask for a turn of the key.
func (e *entry) addCauses(why cache.Causes) {
	for _, t := range why.Triggers {
		e.addTrigger(t)
	}
	for _, b := range why.Oldest {
		if e.AddOldest(b); e.since.IsZero() || b.Stored.Before(e.since) {
			e.since = b.Stored
		}
	}
}

// addTrigger records one trigger that asks for a turn of the key.
func (e *entry) addTrigger(t events.Trigger) {
	if e.Triggers = append(e.Triggers, t); len(e.Triggers) > events.MaxTriggers {
		e.Triggers = e.Triggers[len(e.Triggers)-events.MaxTriggers:]
	}
}

// restore looks at the parked messages of a kind. If the object has changed since and can be
// mapped again, restore unparks it and asks about its keys.
func (d *Engine) restore(kind kinds.Name) {
	for key, e := range d.parked {
		if e.message && key.Kind == kind {
			if keys, reason, version := d.mapped(events.Ref(key)); version != e.version && reason == "" {
				d.clearBroken(e)
				d.Ask(keys...)
			}
		}
	}
}

// mapped returns the keys of an object as it is now, or why it cannot be decoded or mapped, and
// its version. Of a deleted object it returns the version alone.
func (d *Engine) mapped(ref events.Ref) (keys []events.Key, reason, version string) {
	d.cache.View(d.name, nil, func(s cache.Snapshot) { keys, reason, version = s.Keys(ref) })
	return keys, reason, version
}

// Wake says that a wake of a key has fired, whose message has a sequence in the stream of
// wakes.
func (d *Engine) Wake(sequence uint64, w events.Wake) {
	if !d.owns(w.Key) {
		return
	}
	e := d.entry(w.Key)
	e.first = e.first || w.Trace.Parent == ""
	e.addTrigger(events.Trigger{Stream: subject.WakeStream, Sequence: sequence, Trace: w.Trace})
	d.enqueue(e, afterChange)
}

// answered reports how a turn ended.
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

// turnDuration is how long a turn took, from its decision until now; 0 where that is not known because
// another replica made it.
func (d *Engine) turnDuration(l *lane, o events.Outcome) time.Duration {
	if l.stages.turn == o.Turn {
		return d.now.Sub(l.stages.decided)
	}
	return 0
}
