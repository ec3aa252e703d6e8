package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// Chooser is a controller that tells which of its choices are arbitrary. Every
// [Controller] is a Chooser.
type Chooser interface {
	Any
	// Indifferent reports whether the controller might as well have deleted other as
	// chosen (both uids) in its decision about a key.
	Indifferent(s Snapshot, k events.Key, chosen, other types.UID, now time.Time) bool
}

// Indifferent calls the controller's AsGood.
func (c Controller[V]) Indifferent(s Snapshot, k events.Key, chosen, other types.UID, now time.Time) bool {
	if c.AsGood == nil {
		return false
	}
	view, ok := c.Observe(s, k)
	return ok && c.AsGood(view, chosen, other, now)
}
