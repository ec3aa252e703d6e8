package shell

import (
	"cmp"
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
}

// shelf is a list of held objects, sorted by kind, namespace and name. Changes
// are staged and take effect together in settle, so that the first fold of a
// large kind sorts once instead of once per object.
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

// few is the number of staged changes up to which single insertions are cheaper
// than going through the whole list.
const few = 8

func (s *shelf) settle() {
	if len(s.staged) <= few {
		for ref, h := range s.staged {
			s.place(ref, h)
		}
	} else {
		s.merge()
	}
	s.staged = nil
}

func (s *shelf) place(ref events.Ref, h *held) {
	at, found := slices.BinarySearchFunc(s.items, ref, func(item *held, ref events.Ref) int {
		return compareRefs(item.ref, ref)
	})
	switch {
	case h == nil && found:
		s.items = slices.Delete(s.items, at, at+1)
	case h != nil && found:
		s.items[at] = h
	case h != nil:
		s.items = slices.Insert(s.items, at, h)
	}
}

func (s *shelf) merge() {
	fresh := make([]*held, 0, len(s.staged))
	for _, h := range s.staged {
		if h != nil {
			fresh = append(fresh, h)
		}
	}
	slices.SortFunc(fresh, func(a, b *held) int { return compareRefs(a.ref, b.ref) })
	merged := make([]*held, 0, len(s.items)+len(fresh))
	for _, item := range s.items {
		if _, replaced := s.staged[item.ref]; replaced {
			continue
		}
		for len(fresh) > 0 && compareRefs(fresh[0].ref, item.ref) < 0 {
			merged, fresh = append(merged, fresh[0]), fresh[1:]
		}
		merged = append(merged, item)
	}
	s.items = append(merged, fresh...)
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

func objects(items []*held) []metav1.Object {
	out := make([]metav1.Object, 0, len(items))
	for _, h := range items {
		if obj, ok := h.seen(); ok {
			out = append(out, obj)
		}
	}
	return out
}
