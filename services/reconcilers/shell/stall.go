package shell

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// Stalled controllers. An engine may wait for many things, and each wait is right by itself:
// for a kind to be read, an epoch to be listed, an outcome to come. A wait that does not end
// looks like a controller that has nothing to do. So an engine keeps which keys want something,
// and when each sort of wait last ended. Where the oldest wait has lasted for
// [events.StallAfter], the engine names its condition. Waits that end by time, such as a
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
// [events.StallAfter]; ok is false when there is none.
func (d *Engine) Stall() (s events.Stall, ok bool) {
	waits := d.waits()
	oldest := slices.MinFunc(append(waits, wait{since: d.now}), func(a, b wait) int { return a.since.Compare(b.since) })
	if d.now.Sub(oldest.since) < events.StallAfter {
		return s, false
	}
	return events.Stall{
		Controller: d.name, Condition: oldest.condition, Detail: oldest.detail(), Since: oldest.since, Work: len(d.pending),
	}, true
}

// wait is one condition for which work waits.
type wait struct {
	condition events.Condition
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
	w := wait{condition: events.NotRead, since: since}
	for kind := range d.shut {
		switch {
		case kind == unfound:
			w.about = append(w.about, "the kinds that there are")
		default:
			w.about = append(w.about, string(kind))
		}
		switch {
		case d.listingEpoch[kind]:
			w.condition = events.EpochNotTold
		case d.forgotten[kind] && w.condition == events.NotRead:
			w.condition = events.CacheInconsistent
		}
	}
	slices.Sort(w.about)
	return w
}

// whyInconsistent is why keys wait for a consistent snapshot.
func (d *Engine) whyInconsistent() wait {
	w := wait{condition: events.CacheInconsistent, since: d.heldSince}
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		all := s.InconsistentKinds()
		if newest, skewed := s.EpochSkew(); skewed {
			w.condition, all = events.EpochNotTold, s.Lagging(newest)
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
	found := map[events.Condition]*wait{}
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
	for _, condition := range events.Conditions() {
		if w := found[condition]; w != nil {
			slices.Sort(w.about)
			all = append(all, *w)
		}
	}
	return all
}

// describeWriters says whether writers send heartbeats.
func (d *Engine) describeWriters() string {
	if d.now.Sub(d.writersSeen) > maxHeartbeatAge {
		return "no writer says that it is there"
	}
	return "writers are there, and none has its turns"
}

// Stall is the condition under which the controller has had work and decided nothing for
// [events.StallAfter], if there is one. known is false when the loop does not answer before the
// context ends, and no decision has been going on for that long.
func (l *Loop) Stall(ctx context.Context) (s events.Stall, stalled, known bool) {
	if s, stalled, known = l.stalled(); known {
		return s, stalled, true
	}
	type answer struct {
		stall   events.Stall
		stalled bool
	}
	a, known := ask(ctx, l, func(d *Engine) (a answer) {
		a.stall, a.stalled = d.Stall()
		return a
	})
	return a.stall, a.stalled, known
}

// stalled is the part of Stall that needs no answer of the engine: a decision that does not
// end, streams that cannot be read, or no work.
func (l *Loop) stalled() (s events.Stall, stalled, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock()
	s.Controller = l.Name()
	switch {
	case !l.busy.IsZero() && now.Sub(l.busy) >= events.StallAfter:
		s.Condition, s.Since = events.Deciding, l.busy
		return s, true, true
	case l.failure != nil && now.Sub(l.failedAt) <= recent && now.Sub(l.failing) >= events.StallAfter:
		s.Condition, s.Detail, s.Since = events.BusRefuses, l.failure.Error(), l.failing
		return s, true, true
	}
	return s, false, !l.working && l.busy.IsZero()
}
