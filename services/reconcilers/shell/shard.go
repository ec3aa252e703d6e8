package shell

import (
	"hash/fnv"
	"math/bits"
	"slices"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/cache"
)

// Shards is the number of shards among which the keys of a controller are divided.
const Shards = 64

// Share is a set of shards, one bit for each.
type Share uint64

// Everything is the share of a single replica.
const Everything = ^Share(0)

// Has reports whether a shard is in the share.
func (s Share) Has(shard int) bool { return s>>shard&1 != 0 }

// With is the share with a shard added.
func (s Share) With(shard int) Share { return s | 1<<shard }

// Size is the number of shards in the share.
func (s Share) Size() int { return bits.OnesCount64(uint64(s)) }

// Shard is the shard of a key, from 0 to Shards-1.
func Shard(key events.Key) int {
	h := fnv.New32a()
	for _, part := range []string{string(key.Kind), key.Namespace, key.Name} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return int(h.Sum32() % Shards)
}

func (d *Engine) owns(key events.Key) bool { return d.share.Has(Shard(key)) }

// Own sets the share of keys that this replica decides about. While no writer holds the Lease of a
// leased controller, the engine decides about none of them.
func (d *Engine) Own(share Share) {
	d.lease.share = share
	d.decideAbout(d.mayDecide())
}

// decideAbout sets the share of keys that this engine decides about. It asks about all keys of the
// shards gained, because the changes that asked for them before may have gone to a replica that
// is gone. It releases the keys of the shards lost, and finishes only their turns in flight.
//
// Replicas may disagree for a moment about who owns a shard. A turn is stored behind the last
// one of its key, so that the bus refuses one of two replicas.
func (d *Engine) decideAbout(share Share) {
	gained := share &^ d.share
	d.share = share
	for _, e := range d.sorted() {
		if !d.owns(e.key) {
			d.release(e)
		}
	}
	if gained == 0 || !d.HasOpened() {
		return // an engine that opens asks about every key
	}
	keys, unread := d.keys()
	for _, k := range keys {
		if gained.Has(Shard(k)) {
			d.Ask(k)
		}
	}
	d.takeChanges(cache.Changes{Unmapped: slices.DeleteFunc(unread, func(u cache.Unmapped) bool { return !gained.Has(Shard(events.Key(u.Ref))) })})
}

// release drops what a key wants, and the key when nothing of it is in flight.
func (d *Engine) release(e *entry) {
	e.dirty, e.Causes, e.first = false, cache.Causes{}, false
	e.invalidate()
	if e.parked != nil {
		e.parked = nil
		delete(d.parked, e.key)
	}
	d.reportGauges(e.key, nil)
	d.dropUnowned(e)
}

// dropUnowned drops a key of another replica when nothing of it is in flight here.
func (d *Engine) dropUnowned(e *entry) {
	busy := e.round != nil || e.recalling > 0 || e.parking != "" || e.write.repeating || e.status.repeating
	if !busy && d.entries[e.key] == e && !d.owns(e.key) {
		delete(d.entries, e.key)
	}
}
