package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/services/reconcilers/cache"
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
	name  report.Condition
	holds func(d *Engine, e *entry, since time.Time) (hold, bool)
}

// conditions are all conditions. One that explains others comes before them. A key for which
// none holds has all that it wants.
var conditions = []condition{
	{report.NoLease, func(d *Engine, _ *entry, since time.Time) (hold, bool) {
		return hold{since: since}, d.settings.Leased && d.lease.writer == ""
	}},
	{report.OtherReplica, func(d *Engine, e *entry, since time.Time) (hold, bool) {
		return hold{since: since}, !d.owns(e.key)
	}},
	{report.Parked, func(_ *Engine, e *entry, _ time.Time) (hold, bool) {
		if e.parked == nil || e.dirty {
			return hold{}, false
		}
		return hold{since: e.parked.At, about: e.parked.Reason}, true
	}},
	{report.NoOutcome, (*Engine).noOutcome},
	{report.NotSeen, (*Engine).notSeen},
	{report.BusRefuses, (*Engine).refused},
	{report.EpochNotTold, inconsistent(report.EpochNotTold)},
	{report.CacheInconsistent, inconsistent(report.CacheInconsistent)},
	{report.BackingOff, (*Engine).backingOff},
	{report.KeysWait, func(d *Engine, e *entry, since time.Time) (hold, bool) {
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
func inconsistent(name report.Condition) func(*Engine, *entry, time.Time) (hold, bool) {
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
func (d *Engine) firstHold(e *entry, since time.Time) (name report.Condition, h hold, ok bool) {
	for _, c := range conditions {
		if h, ok := c.holds(d, e, since); ok {
			return c.name, h, true
		}
	}
	return "", hold{}, false
}

// Key is the state of a key, with the check of every condition.
func (d *Engine) Key(key events.Key) report.KeyState {
	e, known := d.entries[key]
	if !known {
		e = &entry{key: key}
	}
	k := report.KeyState{
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
func checked(k *report.KeyState, name report.Condition, h hold, holds bool) {
	c := report.KeyCheck{Condition: name, Reason: name.Reason(), Holds: holds}
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

func (l *lane) state() report.LaneState {
	s := report.LaneState{Turn: l.turn, Outcome: l.outcome, Failures: l.failures}
	for _, u := range l.effects {
		s.Unseen = append(s.Unseen, u.Result.Ref)
	}
	return s
}

// LongWait is the least wait under one condition that [Engine.Waiting] counts.
const LongWait = 10 * time.Second

// Waiting counts, by condition, the keys that have waited for [LongWait] without a known end,
// and names the one that has waited longest.
func (d *Engine) Waiting() map[report.Condition]Waiting {
	found := map[report.Condition]Waiting{}
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

// Stalled controllers. An engine may wait for many things, and each wait is right by itself:
// for a kind to be read, an epoch to be listed, an outcome to come. A wait that does not end
// looks like a controller that has nothing to do. So an engine keeps which keys want something,
// and when each sort of wait last ended. Where the oldest wait has lasted for
// [report.StallAfter], the engine names its condition. Waits that end by time, such as a
// back-off, do not count, and neither does a parked key.

// waitRecord is what an engine records of its waits.
type waitRecord struct {
	// pending are the keys that wanted a turn or an outcome when they were last checked, and
	// since when. [Engine.Stall] drops those that want nothing any more; they start anew when
	// they are asked for a turn again.
	pending map[*entry]time.Time

	shutSince time.Time // since when the engine has been shut
	heldSince time.Time // since when keys have waited for a consistent snapshot
	forgotten map[kinds.Name]bool

	freedAt   time.Time // when the engine was last no longer shut, or its keys no longer held back
	decidedAt time.Time // when a key last had a turn that the fence did not hold back
	heardAt   time.Time // when an outcome last came
	seenAt    time.Time // when an effect was last seen
	repliedAt time.Time // when the bus last answered
	// storeRefusal is of storing turns and wakes, recallRefusal of recalling lanes.
	storeRefusal, recallRefusal refusal
}

// markPending notes that a key wants something.
func (d *Engine) markPending(e *entry) {
	if _, known := d.pending[e]; !known {
		d.pending[e] = d.now
	}
}

// refusal is the error of the last request of a sort, and since when the bus has refused all of
// them; a nil err: the last one succeeded.
type refusal struct {
	err   error
	since time.Time
}

// recordReply records the bus's answer to a request.
func (d *Engine) recordReply(to *refusal, err error) {
	d.repliedAt = d.now
	if to.err == nil {
		to.since = d.now
	}
	to.err = err
}

// Working reports whether the engine may have work. [Engine.Stall] tells it exactly.
func (d *Engine) Working() bool {
	return len(d.pending) > 0 || len(d.inconsistent) > 0 || len(d.shut) > 0 && !d.askedAll
}

// Stall is the condition under which the engine has had work and decided nothing for
// [report.StallAfter]; ok is false when there is none.
func (d *Engine) Stall() (s report.Stall, ok bool) {
	waits := d.waits()
	oldest := slices.MinFunc(append(waits, wait{since: d.now}), func(a, b wait) int { return a.since.Compare(b.since) })
	if d.now.Sub(oldest.since) < report.StallAfter {
		return s, false
	}
	return report.Stall{
		Controller: d.name, Condition: oldest.condition, Detail: oldest.detail(), Since: oldest.since, Work: len(d.pending),
	}, true
}

// wait is one condition for which work waits.
type wait struct {
	condition report.Condition
	since     time.Time
	about     []string // sorted
}

// fewAbout is the most kinds or keys that a detail names.
const fewAbout = 3

func (w wait) detail() string {
	text := strings.Join(w.about[:min(len(w.about), fewAbout)], ", ")
	if more := len(w.about) - fewAbout; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// waits are the conditions that hold work back at the moment. An engine that is shut decides
// nothing, so only that condition counts then.
func (d *Engine) waits() []wait {
	oldest, some := d.work()
	if len(d.shut) > 0 {
		if !some && d.askedAll {
			return nil
		}
		if d.askedAll {
			return []wait{d.whyShut(latest(d.shutSince, oldest))}
		}
		return []wait{d.whyShut(d.shutSince)}
	}
	var all []wait
	if len(d.inconsistent) > 0 {
		all = append(all, d.whyInconsistent())
	}
	return append(all, d.keyHolds()...)
}

// work drops the keys that want nothing any more, and returns since when the oldest of the
// others has waited.
func (d *Engine) work() (oldest time.Time, some bool) {
	oldest = d.now
	for e, since := range d.pending {
		if !e.wants() || d.entries[e.key] != e {
			delete(d.pending, e)
			continue
		}
		if some = true; since.Before(oldest) {
			oldest = since
		}
	}
	return oldest, some
}

// wants reports whether a key wants a turn, or waits for the results of its last one.
func (e *entry) wants() bool {
	return e.dirty || e.round != nil || e.recalling > 0 || e.parking != "" || e.awaitsLane(&e.write) || e.awaitsLane(&e.status)
}

// awaitsLane reports whether the outcome or an effect of the last turn of a lane is still to
// come. The lane of a key that is in doubt may only be unknown: the key's next turn recalls it.
func (e *entry) awaitsLane(l *lane) bool { return !l.settled() && (e.known || l.watched) }

// whyShut is why the engine is shut.
func (d *Engine) whyShut(since time.Time) wait {
	w := wait{condition: report.NotRead, since: since}
	for kind := range d.shut {
		switch {
		case kind == unfound:
			w.about = append(w.about, "the kinds that there are")
		default:
			w.about = append(w.about, string(kind))
		}
		switch {
		case d.listingEpoch[kind]:
			w.condition = report.EpochNotTold
		case d.forgotten[kind] && w.condition == report.NotRead:
			w.condition = report.CacheInconsistent
		}
	}
	slices.Sort(w.about)
	return w
}

// whyInconsistent is why keys wait for a consistent snapshot.
func (d *Engine) whyInconsistent() wait {
	w := wait{condition: report.CacheInconsistent, since: d.heldSince}
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		all := s.InconsistentKinds()
		if newest, skewed := s.EpochSkew(); skewed {
			w.condition, all = report.EpochNotTold, s.Lagging(newest)
		}
		for _, kind := range all {
			w.about = append(w.about, string(kind))
		}
	})
	slices.Sort(w.about)
	return w
}

// keyHolds are the conditions that hold single keys back. Each counts since its oldest key
// began to wait, or since the condition last released a key.
func (d *Engine) keyHolds() []wait {
	found := map[report.Condition]*wait{}
	for e, since := range d.pending {
		if slices.Contains(d.inconsistent, e) {
			continue // [Engine.whyInconsistent] reports the condition of all of these
		}
		condition, h, ok := d.firstHold(e, since)
		if !ok || condition.OfKey() {
			continue
		}
		w := found[condition]
		if w == nil {
			w = &wait{condition: condition, since: h.since}
			found[condition] = w
		}
		w.since = earliest(w.since, h.since)
		if !slices.Contains(w.about, h.about) && h.about != "" {
			w.about = append(w.about, h.about)
		}
	}
	var all []wait
	for _, condition := range report.Conditions() {
		if w := found[condition]; w != nil {
			slices.Sort(w.about)
			all = append(all, *w)
		}
	}
	return all
}

// describeWriters says whether writers send heartbeats.
func (d *Engine) describeWriters() string {
	if d.now.Sub(d.writersSeen) > MaxHeartbeatAge {
		return "no writer says that it is there"
	}
	return "writers are there, and none has its turns"
}
