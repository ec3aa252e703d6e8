package shell

import (
	"hash/fnv"
	"math/bits"
	"slices"

	"github.com/millrace/millrace/pkg/events"
)

// Shards is how many parts the keys of a controller are shared out in among replicas.
const Shards = 64

// Share is a set of shards, one bit for each.
type Share uint64

// Everything is the share of a replica that is alone.
const Everything = ^Share(0)

// Has tells whether a shard is in the share.
func (s Share) Has(shard int) bool { return s>>shard&1 != 0 }

// With is the share and a shard.
func (s Share) With(shard int) Share { return s | 1<<shard }

// Size is the number of shards in the share.
func (s Share) Size() int { return bits.OnesCount64(uint64(s)) }

// Shard is the part that a key is in, from 0 to Shards-1.
func Shard(key events.Key) int {
	h := fnv.New32a()
	for _, part := range []string{string(key.Kind), key.Namespace, key.Name} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return int(h.Sum32() % Shards)
}

func (d *Engine) owns(key events.Key) bool { return d.share.Has(Shard(key)) }

// Own says which keys this engine decides about from now on: those of some shards. The keys
// that are new to it are all asked about, since what asked for them before may have come to
// a replica that is gone. Those that it had are another replica's: of them only what is
// under way is finished.
//
// Replicas may disagree for a moment about who owns a shard. A turn is stored behind the last
// one of its key, so that of two replicas one is refused.
func (d *Engine) Own(share Share) {
	gained := share &^ d.share
	d.share = share
	for _, e := range d.sorted() {
		if !d.owns(e.key) {
			d.release(e)
		}
	}
	if gained == 0 || !d.Awake() {
		return // an engine that opens asks about every key
	}
	keys, unread := d.keys()
	for _, k := range keys {
		if gained.Has(Shard(k)) {
			d.Ask(k)
		}
	}
	d.take(news{unmapped: slices.DeleteFunc(unread, func(u unmapped) bool { return !gained.Has(Shard(events.Key(u.ref))) })})
}

// release lets go of what a key wants, and of the key when nothing of it is under way.
func (d *Engine) release(e *entry) {
	e.dirty, e.causes, e.first = false, causes{}, false
	e.doubt()
	if e.parked != nil {
		e.parked = nil
		delete(d.parked, e.key)
	}
	d.gauge(e.key, nil)
	d.dismiss(e)
}

// dismiss forgets a key of another replica's when nothing of it is under way here.
func (d *Engine) dismiss(e *entry) {
	busy := e.round != nil || e.recalling > 0 || e.parking != "" || e.act.repeating || e.tell.repeating
	if !busy && d.entries[e.key] == e && !d.owns(e.key) {
		delete(d.entries, e.key)
	}
}
