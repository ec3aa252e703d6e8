package reconcile

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// Chooser is a controller that says which of its choices are free. Every
// [Controller] is one.
type Chooser interface {
	Any
	// Indifferent tells whether it is chance which of two objects, by their uids, a
	// decision about a key has deleted.
	Indifferent(s Snapshot, k events.Key, chosen, other types.UID, now time.Time) bool
}

// Indifferent asks the controller's AsGood.
func (c Controller[V]) Indifferent(s Snapshot, k events.Key, chosen, other types.UID, now time.Time) bool {
	if c.AsGood == nil {
		return false
	}
	view, ok := c.Observe(s, k)
	return ok && c.AsGood(view, chosen, other, now)
}
