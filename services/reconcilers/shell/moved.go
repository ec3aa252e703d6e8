package shell

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

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
