package shell

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// The fence waits for what the last turn of a key did, and takes it that what came
// before had been seen by the engine that decided that turn. This engine is not that one if
// the turn is another replica's, or of a process that is gone: it may lag behind
// the creates before it, and a last turn that did nothing tells it nothing of them.
// So no engine decides on an older view than the last turn did: each kind has to be
// folded as far as that had seen it. Where a stream has lost what was seen, the watcher
// finds that out and tells it again, or goes on where the stream ends; a mark says
// when that has been done.

// sight has a lane wait for what its last turn had seen.
func (d *Engine) sight(e *entry, l *lane, last *events.Turn) {
	l.effects = slices.DeleteFunc(l.effects, func(u due) bool { return u.seen > 0 })
	if last == nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(last.Seen)) {
		if seen := last.Seen[kind]; d.reads(kind) && d.position(kind) < seen {
			l.effects = append(l.effects, due{
				result: events.Result{Ref: events.Ref{Kind: kind}, Version: newest(l.last, l.turn)}, discovery: d.discoveries + 1, since: d.now, seen: seen,
			})
		}
	}
	d.await(e, l)
}

// newest is the newest version that the outcome of a turn speaks of; "" when the
// outcome is of another one, or speaks of none.
func newest(o events.Outcome, turn uint64) (version string) {
	if o.Turn != turn {
		return ""
	}
	for _, r := range o.Results {
		if r.Version != "" && kinds.CompareVersions(r.Version, version) > 0 {
			version = r.Version
		}
	}
	return version
}

// toldAgain tells whether a stream that had lost what was seen says all of it: there
// is a mark behind its end, or one that is not older than what the last turn did.
func (k *kindMemory) toldAgain(u due) bool {
	return k.markAt >= u.goal || u.result.Version != "" && k.mark != "" && kinds.CompareVersions(k.mark, u.result.Version) >= 0
}

// seen are the effects that wait for what a turn had seen. The outcome of that turn,
// which may come later than the recall of the turn, does not make up for it.
func seen(effects []due) []due {
	return slices.DeleteFunc(effects, func(u due) bool { return u.seen == 0 })
}

// foreign notes that an outcome is of a turn that this engine did not store: only a
// recall can tell what that had seen.
func (d *Engine) foreign(e *entry, l *lane, turn uint64) {
	if turn > l.turn && l.storing.IsZero() && e.recalling == 0 {
		e.known = false
	}
}
