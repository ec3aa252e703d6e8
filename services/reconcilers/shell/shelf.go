package shell

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// held is an object that the memory holds. Its state is replaced as newer ones
// are folded, but never changed; readers meet it only under the memory's lock.
type held struct {
	ref events.Ref
	*state
}

// state is an object in one version.
type state struct {
	uid     types.UID
	version string
	epoch   uint64
	object  reconcile.Object
	heard   time.Time // see [reconcile.Snapshot]
	silent  bool      // heard is that of a version before this one
}

// shelf is a list of held objects, sorted by kind, namespace and name. Changes
// are staged and take effect together in settle.
type shelf struct {
	items  []*held
	staged map[events.Ref]*held // nil: to be removed
}

func (s *shelf) stage(ref events.Ref, h *held) {
	if s.staged == nil {
		s.staged = map[events.Ref]*held{}
	}
	s.staged[ref] = h
}

// settle makes what was staged visible. It costs a search and a move of memory for
// each change, and never looks at the items between: a list may be very long.
func (s *shelf) settle() {
	fresh, removed := make([]*held, 0, len(s.staged)), []int(nil)
	for ref, h := range s.staged {
		at, found := s.find(len(s.items), ref)
		switch {
		case found && h != nil:
			s.items[at] = h
		case found:
			removed = append(removed, at)
		case h != nil:
			fresh = append(fresh, h)
		}
	}
	s.staged = nil
	s.remove(removed)
	s.insert(fresh)
}

// find gives the place of an object among the first n items.
func (s *shelf) find(n int, ref events.Ref) (at int, found bool) {
	return slices.BinarySearchFunc(s.items[:n], ref, func(item *held, ref events.Ref) int {
		return compareRefs(item.ref, ref)
	})
}

// remove takes out the items at some places.
func (s *shelf) remove(places []int) {
	if len(places) == 0 {
		return
	}
	slices.Sort(places)
	to := places[0]
	for i, at := range places {
		end := len(s.items)
		if i+1 < len(places) {
			end = places[i+1]
		}
		to += copy(s.items[to:], s.items[at+1:end])
	}
	clear(s.items[to:])
	s.items = s.items[:to]
}

// insert puts in items that are not there, the last one first, so that every
// item moves once.
func (s *shelf) insert(fresh []*held) {
	slices.SortFunc(fresh, func(a, b *held) int { return compareRefs(a.ref, b.ref) })
	end := len(s.items)
	s.items = slices.Grow(s.items, len(fresh))[:end+len(fresh)]
	for i, h := range slices.Backward(fresh) {
		at, _ := s.find(end, h.ref)
		copy(s.items[at+i+1:], s.items[at:end])
		s.items[at+i], end = h, at
	}
}

func compareRefs(a, b events.Ref) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// index files held objects under a property that they share.
type index[K comparable] struct {
	shelves map[K]*shelf
	touched map[K]bool
}

func newIndex[K comparable]() index[K] {
	return index[K]{shelves: map[K]*shelf{}, touched: map[K]bool{}}
}

func (x index[K]) put(under K, h *held) { x.stage(under, h.ref, h) }

func (x index[K]) remove(under K, h *held) { x.stage(under, h.ref, nil) }

func (x index[K]) stage(under K, ref events.Ref, h *held) {
	s, ok := x.shelves[under]
	if !ok {
		s = &shelf{}
		x.shelves[under] = s
	}
	s.stage(ref, h)
	x.touched[under] = true
}

// settle makes what was staged visible and lets go of shelves that are empty.
func (x index[K]) settle() {
	for under := range x.touched {
		s := x.shelves[under]
		if s.settle(); len(s.items) == 0 {
			delete(x.shelves, under)
		}
	}
	clear(x.touched)
}

func (x index[K]) at(under K) []*held {
	if s, ok := x.shelves[under]; ok {
		return s.items
	}
	return nil
}

// byNamespace files all objects of a kind, those of one namespace after those of
// another: a list of all would cost a move of all for one that comes or goes.
type byNamespace struct {
	index[string]
	order []string // the namespaces that have some, sorted
}

func newByNamespace() byNamespace { return byNamespace{index: newIndex[string]()} }

func (x *byNamespace) settle() {
	touched := slices.Collect(maps.Keys(x.touched))
	x.index.settle()
	for _, namespace := range touched {
		at, listed := slices.BinarySearch(x.order, namespace)
		switch _, some := x.shelves[namespace]; {
		case some && !listed:
			x.order = slices.Insert(x.order, at, namespace)
		case listed && !some:
			x.order = slices.Delete(x.order, at, at+1)
		}
	}
}

// all are the objects of the kind, sorted by namespace and name.
func (x *byNamespace) all() iter.Seq[*held] {
	return func(yield func(*held) bool) {
		for _, namespace := range x.order {
			for _, h := range x.shelves[namespace].items {
				if !yield(h) {
					return
				}
			}
		}
	}
}

func objects(n int, items iter.Seq[*held]) []metav1.Object {
	out := make([]metav1.Object, 0, n)
	for h := range items {
		if obj, ok := h.seen(); ok {
			out = append(out, obj)
		}
	}
	return out
}

func listed(items []*held) []metav1.Object { return objects(len(items), slices.Values(items)) }
