package shell

import (
	"context"
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// Why a key waits. Each condition that holds a key back is one row of [conditions], and all
// reports about waits read that table: whether the controller is stalled ([Engine.Stall]),
// which keys have waited for long ([Engine.Waiting]), and how one key stands ([Engine.Key]).

// hold is a condition that keeps a key from its next turn.
type hold struct {
	since time.Time
	until time.Time // when time ends the wait; zero: only an event ends it
	about string
}

// condition is one row: a condition under which a key waits. holds takes since when the key has
// wanted a turn.
type condition struct {
	name  events.Condition
	holds func(d *Engine, e *entry, since time.Time) (hold, bool)
}

// conditions are all conditions. One that explains others comes before them. A key for which
// none holds has all that it wants.
var conditions = []condition{
	{events.NoLease, func(d *Engine, _ *entry, since time.Time) (hold, bool) {
		return hold{since: since}, d.settings.Leased && d.lease.writer == ""
	}},
	{events.OtherReplica, func(d *Engine, e *entry, since time.Time) (hold, bool) {
		return hold{since: since}, !d.owns(e.key)
	}},
	{events.Parked, func(_ *Engine, e *entry, _ time.Time) (hold, bool) {
		if e.parked == nil || e.dirty {
			return hold{}, false
		}
		return hold{since: e.parked.At, about: e.parked.Reason}, true
	}},
	{events.NoOutcome, (*Engine).noOutcome},
	{events.NotSeen, (*Engine).notSeen},
	{events.BusRefuses, (*Engine).refused},
	{events.EpochNotTold, inconsistent(events.EpochNotTold)},
	{events.CacheInconsistent, inconsistent(events.CacheInconsistent)},
	{events.BackingOff, (*Engine).backingOff},
	{events.KeysWait, func(d *Engine, e *entry, since time.Time) (hold, bool) {
		return hold{since: d.moved(since), about: e.key.String()}, e.wants()
	}},
}

// noOutcome: the outcome of the key's last turn is not known.
func (d *Engine) noOutcome(e *entry, since time.Time) (hold, bool) {
	for _, l := range []*lane{&e.write, &e.status} {
		if e.awaitsLane(l) && l.turn > l.outcome && l.storing.IsZero() {
			return hold{since: latest(latest(l.since, d.inFlight[l.turn]), latest(since, d.heardAt)), about: d.describeWriters()}, true
		}
	}
	return hold{}, false
}

// notSeen: an effect of the key's last turn has not come back.
func (d *Engine) notSeen(e *entry, since time.Time) (hold, bool) {
	for _, l := range []*lane{&e.write, &e.status} {
		if e.awaitsLane(l) && len(l.effects) > 0 {
			return hold{since: latest(latest(l.effects[0].since, since), d.seenAt), about: string(l.effects[0].Result.Ref.Kind)}, true
		}
	}
	return hold{}, false
}

// refused: a request to the bus has failed, or has no answer yet.
func (d *Engine) refused(e *entry, since time.Time) (hold, bool) {
	since = d.moved(since)
	switch {
	case !e.wants():
	case d.storeRefusal.err != nil:
		return hold{since: latest(since, d.storeRefusal.since), about: d.storeRefusal.err.Error()}, true
	case d.recallRefusal.err != nil:
		return hold{since: latest(since, d.recallRefusal.since), about: d.recallRefusal.err.Error()}, true
	case e.round != nil, e.recalling > 0, e.parking != "":
		return hold{since: latest(since, d.repliedAt), about: "it does not answer"}, true
	}
	return hold{}, false
}

// inconsistent: the key's turn rests on kinds that the memory does not hold as of one moment,
// for the reason that a condition names.
func inconsistent(name events.Condition) func(*Engine, *entry, time.Time) (hold, bool) {
	return func(d *Engine, e *entry, since time.Time) (hold, bool) {
		if !slices.Contains(d.inconsistent, e) {
			return hold{}, false
		}
		w := d.whyInconsistent()
		return hold{since: latest(since, w.since), about: w.detail()}, w.condition == name
	}
}

// backingOff: the engine looks at the key again at a known moment.
func (d *Engine) backingOff(e *entry, since time.Time) (hold, bool) {
	until := latest(latest(e.until, e.requeueTime), latest(e.write.notBefore, e.status.notBefore))
	return hold{since: since, until: until}, e.wants() && d.now.Before(until)
}

// moved is since when the engine has made no progress, for a key that has waited since a
// moment.
func (d *Engine) moved(since time.Time) time.Time {
	return latest(latest(since, d.freedAt), latest(d.decidedAt, latest(d.heardAt, d.seenAt)))
}

// firstHold is the first condition that holds a key back; ok is false if none does.
func (d *Engine) firstHold(e *entry, since time.Time) (name events.Condition, h hold, ok bool) {
	for _, c := range conditions {
		if h, ok := c.holds(d, e, since); ok {
			return c.name, h, true
		}
	}
	return "", hold{}, false
}

// Key is the state of a key, with the check of every condition.
func (d *Engine) Key(key events.Key) events.KeyState {
	e, known := d.entries[key]
	if !known {
		e = &entry{key: key}
	}
	k := events.KeyState{
		Known: known, Reason: "nothing asks for a turn", Write: e.write.state(), Status: e.status.state(),
		WakeAt: timeOrNil(e.wake), Causes: slices.Clone(e.Triggers),
	}
	since, pending := d.pending[e]
	if !pending {
		since = d.now
	}
	if len(d.shut) > 0 {
		w := d.whyShut(d.shutSince)
		checked(&k, w.condition, hold{since: w.since, about: w.detail()}, true)
	}
	for _, c := range conditions {
		h, holds := c.holds(d, e, since)
		checked(&k, c.name, h, holds)
	}
	return k
}

// checked adds one check to a key's state.
func checked(k *events.KeyState, name events.Condition, h hold, holds bool) {
	c := events.KeyCheck{Condition: name, Reason: name.Reason(), Holds: holds}
	if holds {
		c.Since, c.Until, c.About = timeOrNil(h.since), timeOrNil(h.until), h.about
		if k.Waits == "" {
			k.Waits, k.Reason = name, c.Reason
		}
	}
	k.Checks = append(k.Checks, c)
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

func (l *lane) state() events.LaneState {
	s := events.LaneState{Turn: l.turn, Outcome: l.outcome, Failures: l.failures}
	for _, u := range l.effects {
		s.Unseen = append(s.Unseen, u.Result.Ref)
	}
	return s
}

// LongWait is the least wait under one condition that [Engine.Waiting] counts.
const LongWait = 10 * time.Second

// Waiting counts, by condition, the keys that have waited for [LongWait] without a known end,
// and names the one that has waited longest.
func (d *Engine) Waiting() map[events.Condition]Waiting {
	found := map[events.Condition]Waiting{}
	for e, since := range d.pending {
		if !e.wants() || d.entries[e.key] != e {
			continue
		}
		condition, h, ok := d.firstHold(e, since)
		if !ok || condition.OfKey() || d.now.Sub(h.since) < LongWait {
			continue
		}
		w := found[condition]
		if w.Keys == 0 || h.since.Before(w.Since) {
			w.Oldest, w.Since, w.About = e.key, h.since, h.about
		}
		w.Keys++
		found[condition] = w
	}
	return found
}

// Waiting is how many keys wait under a condition.
type Waiting struct {
	Keys   int
	Oldest events.Key
	Since  time.Time
	About  string
}

// Key is the state of a key. ok is false when the loop does not answer before the context ends.
func (l *Loop) Key(ctx context.Context, key events.Key) (k events.KeyState, ok bool) {
	return ask(ctx, l, func(d *Engine) events.KeyState { return d.Key(key) })
}

// Waiting is [Engine.Waiting]. ok is false when the loop does not answer before the context
// ends.
func (l *Loop) Waiting(ctx context.Context) (w map[events.Condition]Waiting, ok bool) {
	return ask(ctx, l, (*Engine).Waiting)
}

// ask has the loop's goroutine answer a question about its engine, as of now.
func ask[T any](ctx context.Context, l *Loop, question func(*Engine) T) (answer T, ok bool) {
	answers := make(chan T, 1)
	if !l.queue(ctx, func() {
		l.engine.Advance(l.clock())
		answers <- question(l.engine)
	}) {
		return answer, false
	}
	select {
	case answer = <-answers:
		return answer, true
	case <-ctx.Done():
		return answer, false
	}
}
