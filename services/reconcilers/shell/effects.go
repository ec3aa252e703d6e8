package shell

import (
	"slices"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// effect is an effect: an applied result that has not come back.
type effect struct {
	result    events.Result
	since     time.Time // when the engine learned that it was applied
	discovery int       // the first discovery that cannot miss the kind
	dated     bool      // epoch is known
	epoch     uint64    // epoch of the kind: the writer's, or else the memory's when the outcome arrived
	asked     bool      // the engine asks for the end of the stream
	goal      uint64    // the end of the stream plus 1; 0: not known
	seen      uint64    // if set, no effect, but the position in the kind's stream that the last turn had seen
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
		d.awaitKind(e, due.result.Ref.Kind)
	}
	d.scheduleEffectCheck(e)
}

// setEpochs gives effects without an epoch the present epoch of their kind. It skips a kind that is
// shut: while it is folded from its start, its epoch in the memory may be an old one.
func (d *Engine) setEpochs(l *lane) {
	d.memory.view(d.name, nil, func(s snapshot) {
		for i := range l.effects {
			u := &l.effects[i]
			if k, ok := s.memory.kinds[u.result.Ref.Kind]; ok && !u.dated && !d.shut[u.result.Ref.Kind] {
				u.dated, u.epoch = true, k.epoch
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
			d.enqueue(e, afterChange)
		}
	}
	clear(list[len(still):])
	d.awaiting[kind] = still
}

func (e *entry) awaits(kind kinds.Name) bool {
	for _, l := range []*lane{&e.write, &e.status} {
		for _, due := range l.effects {
			if due.result.Ref.Kind == kind {
				return true
			}
		}
	}
	return false
}

// dropReturned drops the effects that have come back, or that cannot come back.
func (d *Engine) dropReturned(e *entry) {
	if len(e.write.effects)+len(e.status.effects) > 0 {
		d.memory.view(d.name, nil, func(s snapshot) {
			for _, l := range []*lane{&e.write, &e.status} {
				open := l.effects[:0]
				for _, due := range l.effects {
					if !s.hasReturned(due) && !s.lost(due) && !d.hasNoStream(s, due) {
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

// maxRemembered is the most results of an outcome that is remembered although it succeeded and
// answers no question.
const maxRemembered = 64

// hasAnswer reports whether an outcome has the answer of a command `ask`.
func hasAnswer(o events.Outcome) bool {
	return slices.ContainsFunc(o.Results, func(r events.Result) bool { return r.Status == events.Answered })
}

// hasNoStream reports whether the kind of an effect has no stream. Only a controller that reads every
// kind needs this, and only a discovery that began after the effect was known can tell: for a
// kind that a controller names, the engine stays shut until the kind has a stream.
func (d *Engine) hasNoStream(s snapshot, u effect) bool {
	kind := u.result.Ref.Kind
	_, known := s.memory.kinds[kind]
	return !known && !d.named[kind] && !d.shut[kind] && u.discovery <= d.discovered
}

// lost reports whether an effect cannot come back any more: it was made and undone while the
// streams kept no trace of it. The kind's log has been folded beyond the effect's version, and
// up to its end as looked up after that.
func (s snapshot) lost(u effect) bool {
	k, ok := s.memory.kinds[u.result.Ref.Kind]
	return ok && u.goal > 0 && k.position >= u.goal-1 && s.reportedBeyond(u) && (u.seen == 0 || k.reportedAgain(u))
}

// reportedBeyond reports whether the watcher has reported everything up to the time of an effect.
func (s snapshot) reportedBeyond(u effect) bool {
	k, ok := s.memory.kinds[u.result.Ref.Kind]
	switch {
	case !ok:
		return false
	case u.seen > 0:
		return true
	case u.dated && k.epoch > u.epoch:
		return true // the API server was restored to a time before the effect
	case u.result.Removed || u.result.Version == "":
		// A deletion has no version of its own to compare with: while the object exists in the
		// memory, its deletion is still to come.
		if _, there := k.objects[name{u.result.Ref.Namespace, u.result.Ref.Name}]; there {
			return false
		}
	}
	return k.mark != "" && kinds.CompareVersions(k.mark, u.result.Version) >= 0
}

// checkEffects checks the effects of a key that have not come back in time, and looks up where
// their streams end.
func (d *Engine) checkEffects(e *entry) {
	if d.entries[e.key] != e {
		return
	}
	write, status := e.write.settled(), e.status.settled()
	if d.dropReturned(e); write != e.write.settled() || status != e.status.settled() {
		d.enqueue(e, afterChange)
	}
	d.requeue(e)
	if len(e.write.effects)+len(e.status.effects) == 0 {
		return
	}
	d.reportOverdue(e.write.effects)
	d.reportOverdue(e.status.effects)
	var ask []kinds.Name
	d.memory.view(d.name, nil, func(s snapshot) {
		for _, l := range []*lane{&e.write, &e.status} {
			for i, due := range l.effects {
				if due.goal == 0 && s.reportedBeyond(due) {
					l.effects[i].asked = true
					ask = append(ask, due.result.Ref.Kind)
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
	d.timers.set(d.now.Add(d.settings.Patience), func() {
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
				if due.asked && due.goal == 0 && due.result.Ref.Kind == kind {
					l.effects[i].goal = sequence + 1 // 0 means unknown
				}
			}
		}
	}
	d.recheck(kind)
}
