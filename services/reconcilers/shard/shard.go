// Package shard divides the keys of a controller among the replicas of the reconcilers. Each key
// belongs to one of [Count] shards by a hash of its name, and each replica owns a [Set] of them.
package shard

import (
	"hash/fnv"
	"math/bits"

	"github.com/millrace/millrace/pkg/events"
)

// Count is the number of shards among which the keys of a controller are divided.
const Count = 64

// Set is a set of shards, one bit for each.
type Set uint64

// All is the set of a single replica.
const All = ^Set(0)

// Has reports whether a shard is in the set.
func (s Set) Has(shard int) bool { return s>>shard&1 != 0 }

// With is the set with a shard added.
func (s Set) With(shard int) Set { return s | 1<<shard }

// Size is the number of shards in the set.
func (s Set) Size() int { return bits.OnesCount64(uint64(s)) }

// Of is the shard of a key, from 0 to Count-1. All replicas of all versions must agree on it.
func Of(key events.Key) int {
	h := fnv.New32a()
	for _, part := range []string{string(key.Kind), key.Namespace, key.Name} {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return int(h.Sum32() % Count)
}
