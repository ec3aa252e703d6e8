// Package standing answers how things stand, from what the bus stores now: the last turns of a
// key, which keys are parked or held by a write limit, which controllers decide nothing, how far
// consumers are behind, how large the streams grow, and how far shadow controllers agree with
// kube-controller-manager. What happened to an object before is answered by package record.
package standing

import (
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/record"
)

// Reader reads how things stand. It is safe for concurrent use, and caches nothing between
// questions.
type Reader struct {
	bus    bus.Archive
	record *record.Record
}

// New returns a reader of what the bus stores.
func New(b bus.Archive) *Reader { return &Reader{bus: b, record: record.New(b)} }
