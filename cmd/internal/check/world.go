package check

import (
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// The kinds that the rules use.
const (
	pods        = kinds.Name("pods")
	replicaSets = kinds.Name("replicasets.apps")
	deployments = kinds.Name("deployments.apps")
	namespaces  = kinds.Name("namespaces")
)

// world are the objects that exist at a revision.
type world struct {
	objects map[types.UID]*Object
	owned   map[types.UID]map[types.UID]*Object // by the controlling owner
}

// replay calls each for every change in order, with the world before it. before is nil for
// a new object.
func (b *books) replay(each func(w *world, before *Object, c *Change)) *world {
	w := &world{objects: map[types.UID]*Object{}, owned: map[types.UID]map[types.UID]*Object{}}
	for i := range b.Changes {
		c := &b.Changes[i]
		before := w.objects[c.Object.UID]
		each(w, before, c)
		w.apply(before, c)
	}
	return w
}

func (w *world) apply(before *Object, c *Change) {
	if before != nil {
		if o := controllerOf(before); o != nil {
			delete(w.owned[o.UID], before.UID)
		}
	}
	if c.Gone {
		delete(w.objects, c.Object.UID)
		return
	}
	w.objects[c.Object.UID] = &c.Object
	if o := controllerOf(&c.Object); o != nil {
		if w.owned[o.UID] == nil {
			w.owned[o.UID] = map[types.UID]*Object{}
		}
		w.owned[o.UID][c.Object.UID] = &c.Object
	}
}

// active counts the pods of a ReplicaSet that have neither ended nor been deleted.
func (w *world) active(set types.UID) int {
	n := 0
	for _, o := range w.owned[set] {
		if o.Ref.Kind == pods && o.Active {
			n++
		}
	}
	return n
}

func controllerOf(o *Object) *metav1.OwnerReference {
	for i := range o.Owners {
		if c := o.Owners[i].Controller; c != nil && *c {
			return &o.Owners[i]
		}
	}
	return nil
}

// commandOf parses an audit ID: stream, sequence, command and, from the second try on, the
// number of the try.
func commandOf(id string) (command, bool) {
	f := strings.Split(id, ".")
	if len(f) != 3 && len(f) != 4 {
		return command{}, false
	}
	controller, ok := strings.CutPrefix(f[0], "TURN_")
	sequence, err := strconv.ParseUint(f[1], 10, 64)
	at, wrong := strconv.Atoi(f[2])
	return command{place{controller, sequence}, at}, ok && err == nil && wrong == nil
}

// origin is the first turn that a turn repeats, or the turn itself.
func (b *books) origin(p place) place {
	if first, repeated := b.origins[p]; repeated {
		return first
	}
	return p
}

// commandOf is the command of an audit ID, in the turn that was stored first.
func (b *books) commandOf(id string) (command, bool) {
	c, ok := commandOf(id)
	c.place = b.origin(c.place)
	return c, ok
}

// turnOf is the turn that made a revision of an object; nil if it is not known.
func (b *books) turnOf(e edition) *Turn {
	w := b.by[e]
	if w == nil {
		return nil
	}
	c, _ := commandOf(w.ID)
	return b.turns[c.place]
}

// between are the versions of an object that existed at any time between two
// revisions.
func (b *books) between(uid types.UID, from, to int64) []*Object {
	var some []*Object
	for i, c := range b.lives[uid] {
		if c.Revision > to || c.Gone {
			break
		}
		if next := i + 1; next < len(b.lives[uid]) && b.lives[uid][next].Revision <= from {
			continue // it was replaced before from
		}
		some = append(some, &c.Object)
	}
	return some
}

// decidedAt is the version of its object on which a turn was decided; 0 if it is not
// known.
func decidedAt(t *Turn) int64 {
	if t == nil {
		return 0
	}
	return number(t.ResourceVersion)
}

// number parses a resourceVersion; 0 for none.
func number(version string) int64 {
	n, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// reached is how far a turn had read a kind: the newest revision that the log had by then,
// without a list in progress; 0 if it is not known.
func (b *books) reached(t *Turn, kind kinds.Name) int64 {
	log, newest := b.read(t, kind), int64(0)
	for i := len(log) - 1; i >= 0 && newest == 0; i-- {
		if !listing(log[i]) {
			newest = log[i].Revision
		}
	}
	return newest
}

// listed are the revisions of the objects of a list that was being recorded at the position to
// which a turn had read. A list has no order, so until its end it has no single revision.
func (b *books) listed(t *Turn, kind kinds.Name) map[types.UID]int64 {
	log, told := b.read(t, kind), map[types.UID]int64{}
	for i := len(log) - 1; i >= 0 && listing(log[i]); i-- {
		told[log[i].UID] = log[i].Revision
	}
	return told
}

// view are the objects of a kind that a turn had seen.
type view struct {
	books  *books
	upTo   int64 // everything up to this revision was seen; 0: it is not known
	listed map[types.UID]int64
}

func (b *books) view(t *Turn, kind kinds.Name) view {
	return view{b, b.reached(t, kind), b.listed(t, kind)}
}

// at is an object in the view; nil if it is not there.
func (v view) at(uid types.UID) *Object { return v.books.at(uid, max(v.upTo, v.listed[uid])) }

// podsOf are the pods of an owner in the view.
func (v view) podsOf(owner types.UID) []*Object {
	var all []*Object
	for _, uid := range v.books.owned[owner] {
		if o := v.at(uid); o != nil && o.Ref.Kind == pods {
			if c := controllerOf(o); c != nil && c.UID == owner {
				all = append(all, o)
			}
		}
	}
	return all
}

// listing is whether an entry belongs to a list, and is not its final mark.
func listing(e Entry) bool { return e.Sync && e.Op != events.Mark }

// read is the part of a kind's log that a turn had read; empty if the turn does not say.
func (b *books) read(t *Turn, kind kinds.Name) []Entry {
	log := b.Logs[kind]
	n, found := slices.BinarySearchFunc(log, t.Seen[kind], func(e Entry, to uint64) int { return compare(e.Sequence, to) })
	if found {
		n++
	}
	return log[:n]
}

func compare(a, b uint64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	default:
		return 0
	}
}
