// Package keys collects the keys to which a change of an object maps.
package keys

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Set holds keys in the order in which they were added, each once. The zero value is empty.
type Set struct {
	all []events.Key
	has map[events.Key]bool
}

// Add adds a key, unless it has no name.
func (s *Set) Add(key events.Key) {
	if key.Name == "" || s.has[key] {
		return
	}
	if s.has == nil {
		s.has = map[events.Key]bool{}
	}
	s.has[key], s.all = true, append(s.all, key)
}

// Has reports whether a key was added.
func (s *Set) Has(key events.Key) bool { return s.has[key] }

// All returns the keys; nil if there are none.
func (s *Set) All() []events.Key { return s.all }

// Sides returns the object of a change as it is and as it was, in this order, as far as each
// exists. It returns none for a change of one object in which same is true.
func Sides[T metav1.Object](was, now reconcile.Object, same func(was, now T) bool) (sides []T) {
	before, existed := was.Object.(T)
	after, exists := now.Object.(T)
	if existed && exists && before.GetUID() == after.GetUID() && same(before, after) {
		return nil
	}
	if exists {
		sides = append(sides, after)
	}
	if existed {
		sides = append(sides, before)
	}
	return sides
}

// Newest returns the object of a change as it is or, if it was deleted, as it was.
func Newest(was, now reconcile.Object) reconcile.Object {
	if now.None() {
		return was
	}
	return now
}
