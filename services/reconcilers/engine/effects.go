package engine

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
	"github.com/millrace/millrace/services/reconcilers/workqueue"
)

// effect is an effect: an applied result that has not come back.
type effect struct {
	// The epoch is the writer's, or else the cache's when the outcome arrived.
	cache.Effect
	since     time.Time // when the engine learned that it was applied
	discovery int       // the first discovery that cannot miss the kind
	asked     bool      // the engine asks for the end of the stream
}

// becomesVisible reports whether the memory will see a result. An unchanged object may not have been
// seen yet: for example a create that was carried out twice, whose first outcome was never
// stored. And the memory has to see the object that conflicted with a command before the
// controller decides the same again.
func becomesVisible(r events.Result) bool {
	switch r.Status {
	case events.Applied:
		return true
	case events.Unchanged:
		return r.Version != "" || r.Removed
	case events.Conflict, events.Failed:
		return r.Version != ""
	default:
		return false
	}
}

// awaitEffects has the lane checked whenever a kind that it waits for is folded.
func (d *Engine) awaitEffects(e *entry, l *lane) {
	if len(l.effects) == 0 {
		return
	}
	d.setEpochs(l)
	for _, due := range l.effects {
		d.awaitKind(e, due.Result.Ref.Kind)
	}
	d.scheduleEffectCheck(e)
}

// setEpochs gives effects without an epoch the present epoch of their kind. It skips a kind that is
// shut: while it is folded from its start, its epoch in the memory may be an old one.
func (d *Engine) setEpochs(l *lane) {
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		for i := range l.effects {
			u := &l.effects[i]
			if epoch, followed := s.FollowedEpoch(u.Result.Ref.Kind); followed && !u.Dated && !d.shut[u.Result.Ref.Kind] {
				u.Dated, u.Epoch = true, epoch
			}
		}
	})
}

func (d *Engine) awaitKind(e *entry, kind kinds.Name) {
	if !slices.Contains(e.listed, kind) {
		e.listed = append(e.listed, kind)
		d.awaiting[kind] = append(d.awaiting[kind], e)
	}
}

// recheck drops the keys that no longer wait for a kind from its awaiting list.
func (d *Engine) recheck(kind kinds.Name) {
	d.recheckIf(kind, func(*entry) bool { return true })
}

// recheckIf is recheck for only the keys that may have changed.
func (d *Engine) recheckIf(kind kinds.Name, may func(*entry) bool) {
	list := d.awaiting[kind]
	if len(list) == 0 {
		return
	}
	still := list[:0]
	for _, e := range list {
		if !may(e) {
			still = append(still, e)
			continue
		}
		write, status := e.write.settled(), e.status.settled()
		if d.dropReturned(e); e.awaits(kind) {
			still = append(still, e)
		} else {
			e.listed = slices.DeleteFunc(e.listed, func(k kinds.Name) bool { return k == kind })
		}
		if write != e.write.settled() || status != e.status.settled() {
			d.enqueue(e, workqueue.AfterChange)
		}
	}
	clear(list[len(still):])
	d.awaiting[kind] = still
}

func (e *entry) awaits(kind kinds.Name) bool {
	for _, l := range []*lane{&e.write, &e.status} {
		for _, due := range l.effects {
			if due.Result.Ref.Kind == kind {
				return true
			}
		}
	}
	return false
}

// dropReturned drops the effects that have come back, or that cannot come back.
func (d *Engine) dropReturned(e *entry) {
	if len(e.write.effects)+len(e.status.effects) > 0 {
		d.cache.View(d.name, nil, func(s cache.Snapshot) {
			for _, l := range []*lane{&e.write, &e.status} {
				open := l.effects[:0]
				for _, due := range l.effects {
					if !s.HasReturned(due.Effect) && !s.Lost(due.Effect) && !d.hasNoStream(s, due) {
						open = append(open, due)
					}
				}
				if len(open) < len(l.effects) {
					d.seenAt = d.now
				}
				l.effects = open
			}
		})
	}
	for _, l := range []*lane{&e.write, &e.status} {
		d.effectsSeen(l)
		if l.settled() && l.remember && l.last.OK() && (!d.described.Remembers || len(l.last.Results) > maxRemembered && !hasAnswer(l.last)) {
			l.last, l.remember = events.Outcome{}, false
		}
	}
}

// maxRemembered is the most results of an outcome that is remembered although it succeeded and has
// neither an answer nor a note.
const maxRemembered = 64

// hasAnswer reports whether an outcome has the answer of a command `ask`, or a controller's note.
func hasAnswer(o events.Outcome) bool {
	return slices.ContainsFunc(o.Results, func(r events.Result) bool { return r.Status == events.Answered || r.Answer != nil })
}

// hasNoStream reports whether the kind of an effect has no stream. Only a controller that reads every
// kind needs this, and only a discovery that began after the effect was known can tell: for a
// kind that a controller names, the engine stays shut until the kind has a stream.
func (d *Engine) hasNoStream(s cache.Snapshot, u effect) bool {
	kind := u.Result.Ref.Kind
	_, followed := s.FollowedEpoch(kind)
	return !followed && !d.named[kind] && !d.shut[kind] && u.discovery <= d.discovered
}

// checkEffects checks the effects of a key that have not come back in time, and looks up where
// their streams end.
func (d *Engine) checkEffects(e *entry) {
	if d.entries[e.key] != e {
		return
	}
	write, status := e.write.settled(), e.status.settled()
	if d.dropReturned(e); write != e.write.settled() || status != e.status.settled() {
		d.enqueue(e, workqueue.AfterChange)
	}
	d.requeue(e)
	if len(e.write.effects)+len(e.status.effects) == 0 {
		return
	}
	d.reportOverdue(e.write.effects)
	d.reportOverdue(e.status.effects)
	var ask []kinds.Name
	d.cache.View(d.name, nil, func(s cache.Snapshot) {
		for _, l := range []*lane{&e.write, &e.status} {
			for i, due := range l.effects {
				if due.Goal == 0 && s.ReportedBeyond(due.Effect) {
					l.effects[i].asked = true
					ask = append(ask, due.Result.Ref.Kind)
				}
			}
		}
	})
	for _, kind := range ask {
		if !d.reaching[kind] {
			d.reaching[kind] = true
			d.io.Reach(kind)
		}
	}
	d.scheduleEffectCheck(e)
}

func (d *Engine) scheduleEffectCheck(e *entry) {
	if e.effectCheckSet {
		return
	}
	e.effectCheckSet = true
	d.timers.Set(d.now.Add(d.settings.Patience), func() {
		e.effectCheckSet = false
		d.checkEffects(e)
	})
}

// Reached answers [IO.Reach]: the log of the kind ended at sequence when it was
// looked at.
func (d *Engine) Reached(kind kinds.Name, sequence uint64, err error) {
	delete(d.reaching, kind)
	if err != nil {
		return // the next call of impatient asks again
	}
	for _, e := range d.awaiting[kind] {
		for _, l := range []*lane{&e.write, &e.status} {
			for i, due := range l.effects {
				if due.asked && due.Goal == 0 && due.Result.Ref.Kind == kind {
					l.effects[i].Goal = sequence + 1 // 0 means unknown
				}
			}
		}
	}
	d.recheck(kind)
}

// ownVersion makes the version of the key's own object on which a turn was decided an effect that
// the next turn has to have seen. Replicas take turns, and the memory of the next one may lag:
// it has seen the effects of the last turn, but not what that turn had seen. It would decide on
// an old state, such as a scale that has been taken back.
func (d *Engine) ownVersion(e *entry, o events.Outcome) []effect {
	own := d.own(e.key)
	if o.ResourceVersion == "" || !d.reads(own.Kind) {
		return nil
	}
	result := events.Result{Status: events.Applied, Ref: own, UID: o.UID, Version: o.ResourceVersion}
	u := effect{Effect: cache.Effect{Result: result}, discovery: d.discoveries + 1, since: d.now}
	u.Epoch, u.Dated = o.Epochs[own.Kind]
	return []effect{u}
}

// recheckMoved is [Engine.recheck] for the keys that the deltas folded since the last call may
// concern.
func (d *Engine) recheckMoved(kind kinds.Name) {
	if len(d.awaiting[kind]) == 0 {
		return
	}
	names, some, now := d.cache.MovedSince(kind, d.rechecked[kind])
	d.rechecked[kind] = now
	if !some {
		d.recheck(kind)
		return
	}
	have := make(map[types.NamespacedName]bool, len(names))
	for _, at := range names {
		have[at] = true
	}
	d.recheckIf(kind, func(e *entry) bool { return e.mayHaveReturned(kind, have) })
}

// mayHaveReturned reports whether a fold may have brought a key an effect on one of the objects of a
// kind, or one that rests on how far the kind was folded; or whether the key no longer waits
// for the kind.
func (e *entry) mayHaveReturned(kind kinds.Name, names map[types.NamespacedName]bool) bool {
	waits := false
	for _, l := range []*lane{&e.write, &e.status} {
		for i := range l.effects {
			u := &l.effects[i]
			ref := &u.Result.Ref
			if ref.Kind != kind {
				continue
			}
			if waits = true; u.Seen > 0 || u.Goal > 0 || names[types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}] {
				return true
			}
		}
	}
	return !waits
}
