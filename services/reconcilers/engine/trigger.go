package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/subject"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
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
			d.enqueue(e, workqueue.AfterChange)
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
	d.enqueue(e, workqueue.AfterChange)
}

// HTTP statuses that no result names: of a success, and of a failure without a status.
const (
	statusOK            = 200
	statusInternalError = 500
)

// answered reports how a turn ended.
//
// Upstream: a failure without a status of the API server counts as a 500.
func (d *Engine) answered(o events.Outcome, took time.Duration) {
	if d.settings.Answered == nil {
		return
	}
	code := statusOK
	if failure, failed := o.Failure(); failed {
		code = cmp.Or(failure.Code, statusInternalError)
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

// traceOf is the trace that a turn belongs to: that of the newest traced change or wake that asks
// for it, or else of the newest outcome, which only ended the wait of a change.
func traceOf(triggers []events.Trigger) (found events.Trace) {
	for _, t := range slices.Backward(triggers) {
		switch {
		case t.Trace.Parent == "":
		case !ofOutcome(t):
			return t.Trace
		case found.Parent == "":
			found = t.Trace
		}
	}
	return found
}

func ofOutcome(t events.Trigger) bool { return strings.HasPrefix(t.Stream, subject.OutcomeStream("")) }

// dropServed drops the causes up to the last one that a round had: they have had their turn, and
// the turns of later ones are not theirs.
func (e *entry) dropServed(last events.Trigger) {
	for i, t := range e.Triggers {
		if t == last {
			e.Triggers = e.Triggers[i+1:]
			break
		}
	}
}

// newest is the last cause of the key; zero when there is none.
func (e *entry) newest() events.Trigger {
	if len(e.Triggers) == 0 {
		return events.Trigger{}
	}
	return e.Triggers[len(e.Triggers)-1]
}

// woken records that a wake's time has come: the engine that set the wake knows it before the
// message comes.
func (e *entry) woken(by events.Trace) {
	if by.Parent == "" {
		e.first = true
		return
	}
	e.addTrigger(events.Trigger{Stream: subject.WakeStream, Trace: by})
}
