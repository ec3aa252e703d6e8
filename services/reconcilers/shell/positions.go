package shell

import (
	"maps"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// The fence waits for the effects of a key's last turn, and assumes that the engine that
// decided that turn had seen the effects of earlier ones. If the turn is another replica's, or
// of a process that is gone, this engine is another one. It may lag behind earlier creates, and
// a last turn that did nothing tells it nothing about them. So no engine decides on an older
// view than the last turn did: each kind has to be folded up to the position that the last turn
// had seen. If a stream has lost that position, the watcher detects it and reports the objects
// again, or continues where the stream ends; a mark says when that is done.

// awaitPositions has a lane wait for the positions that its last turn had seen.
func (d *Engine) awaitPositions(e *entry, l *lane, last *events.Turn) {
	l.effects = slices.DeleteFunc(l.effects, func(u effect) bool { return u.Seen > 0 })
	if last == nil {
		return
	}
	for _, kind := range slices.Sorted(maps.Keys(last.Seen)) {
		if seen := last.Seen[kind]; d.reads(kind) && d.position(kind) < seen {
			u := cache.Effect{Result: events.Result{Ref: events.Ref{Kind: kind}, Version: newest(l.last, l.turn)}, Seen: seen}
			l.effects = append(l.effects, effect{Effect: u, discovery: d.discoveries + 1, since: d.now})
		}
	}
	d.awaitEffects(e, l)
}

// newest is the newest version in the outcome of a turn; "" when the outcome is of another
// turn, or has no version.
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

// seen keeps the effects that wait for a position that a turn had seen. The outcome of that
// turn, which may come later than the recall of the turn, does not replace them.
func seen(effects []effect) []effect {
	return slices.DeleteFunc(effects, func(u effect) bool { return u.Seen == 0 })
}

// recallForeign has the key recalled when an outcome is of a turn that this engine did not store:
// only a recall can tell which positions that turn had seen.
func (d *Engine) recallForeign(e *entry, l *lane, turn uint64) {
	if turn > l.turn && l.storing.IsZero() && e.recalling == 0 {
		e.known = false
	}
}
