// Package versions remembers of the versions of a kind's objects what the watcher has to know of
// them when the next one arrives: how many bytes each object has added to the log (Bounds), who
// wrote its newest version (Authors), and whether managers write it back and forth (Fights). It is
// pure: the time is an argument.
package versions

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"
)

// seed differs in each process: hashes are keys in memory, and nothing else.
var seed = maphash.MakeSeed()

func hashOf(uid types.UID) uint64 { return maphash.String(seed, string(uid)) }

// Recent remembers the entries that were put last: at least half of Limit, and at most Limit.
type Recent[K comparable, V any] struct {
	Limit      int
	young, old map[K]V
}

// Put sets an entry, and forgets the oldest ones where there is no room.
func (r *Recent[K, V]) Put(key K, value V) {
	if r.young == nil {
		r.young = map[K]V{}
	}
	if r.young[key] = value; len(r.young) >= r.Limit/2 {
		r.old, r.young = r.young, nil
	}
}

// Get returns an entry, if it is remembered.
func (r *Recent[K, V]) Get(key K) (V, bool) {
	if v, ok := r.young[key]; ok {
		return v, true
	}
	v, ok := r.old[key]
	return v, ok
}

// Drop forgets an entry.
func (r *Recent[K, V]) Drop(key K) {
	delete(r.young, key)
	delete(r.old, key)
}
