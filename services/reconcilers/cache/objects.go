package cache

import (
	"iter"
	"time"

	"github.com/tidwall/btree"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// cachedObject is an object in the cache. A newer version replaces its state, which is never changed
// in place. Readers see it only under the cache's lock.
type cachedObject struct {
	ref events.Ref
	*state
}

// state is one version of an object.
type state struct {
	uid     types.UID
	version string
	epoch   uint64
	object  reconcile.Object
	heard   time.Time // see [reconcile.Snapshot]
	silent  bool      // heard is the heartbeat of an earlier version
}

// objectSet is a set of held objects, ordered by kind, namespace and name. Adding or deleting
// one costs about as much among a hundred thousand as among ten. It is changed only under the
// memory's lock.
type objectSet = btree.BTreeG[*cachedObject]

func newObjectSet() *objectSet {
	return btree.NewBTreeGOptions(func(a, b *cachedObject) bool { return a.ref.Compare(b.ref) < 0 }, btree.Options{NoLocks: true, Degree: setDegree})
}

// setDegree bounds the room of a small set: most sets have the few objects of one owner.
const setDegree = 8

// in yields the objects of a namespace, by name.
func (k *kindCache) in(namespace string) iter.Seq[*cachedObject] {
	return func(yield func(*cachedObject) bool) {
		k.all.Ascend(&cachedObject{ref: events.Ref{Kind: k.kind.Name, Namespace: namespace}}, func(h *cachedObject) bool {
			return h.ref.Namespace == namespace && yield(h)
		})
	}
}

// index files held objects under a property that they share.
type index[K comparable] map[K]*objectSet

func (x index[K]) put(under K, h *cachedObject) {
	s, ok := x[under]
	if !ok {
		s = newObjectSet()
		x[under] = s
	}
	s.Set(h)
}

func (x index[K]) remove(under K, h *cachedObject) {
	s, ok := x[under]
	if !ok {
		return
	}
	if s.Delete(h); s.Len() == 0 {
		delete(x, under)
	}
}

// at yields the objects under a key, in order.
func (x index[K]) at(under K) iter.Seq[*cachedObject] {
	return func(yield func(*cachedObject) bool) {
		if s, ok := x[under]; ok {
			s.Scan(yield)
		}
	}
}

// count is the number of objects under a key.
func (x index[K]) count(under K) int {
	if s, ok := x[under]; ok {
		return s.Len()
	}
	return 0
}

// list returns the objects under a key as a controller sees them.
func (x index[K]) list(under K) []metav1.Object { return objects(x.count(under), x.at(under)) }

func objects(n int, items iter.Seq[*cachedObject]) []metav1.Object {
	out := make([]metav1.Object, 0, n)
	for h := range items {
		if obj, ok := h.decoded(); ok {
			out = append(out, obj)
		}
	}
	return out
}
