package check

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

const (
	collector     = "system:serviceaccount:kube-system:generic-garbage-collector"
	setController = "system:serviceaccount:kube-system:replicaset-controller"
)

// spared judges every delete that the API server carried out for Millrace.
func spared(b *books) []Violation {
	var found []Violation
	ends := b.ends()
	for _, c := range sorted(b.stored) {
		for _, w := range b.stored[c] {
			if w.Verb != "delete" {
				continue
			}
			if w.OnlyUID == "" {
				found = append(found, violation([]string{w.String()}, "%v was deleted by name alone", w.Ref))
			}
			end := ends[w.OnlyUID]
			if end == nil || b.foreign[edition{w.OnlyUID, end.change.Revision}] {
				continue // it was being deleted already
			}
			if end.by(b, w) {
				found = append(found, b.wrongfully(w, end)...)
			}
		}
	}
	return found
}

// end is the revision at which the deletion of an object began, and the state just before.
type end struct {
	change *Change
	before *Object
	living map[types.UID]*Object // its existing owners
	others int                   // active pods of its controller, itself included
}

// by is whether a delete was the effective one: a second one changes nothing, and its
// response has the existing object. The response to a delete that removes an object at once may
// have no revision.
func (e *end) by(b *books, w *Write) bool {
	if e.change.Gone {
		return true
	}
	return b.by[edition{e.before.UID, e.change.Revision}] == w
}

// ends finds the revision at which the deletion of each object began.
func (b *books) ends() map[types.UID]*end {
	all := map[types.UID]*end{}
	b.replay(func(w *world, before *Object, c *Change) {
		if before == nil || before.Deleting || all[before.UID] != nil || !c.Gone && !c.Object.Deleting {
			return
		}
		e := &end{change: c, before: before, living: map[types.UID]*Object{}}
		for _, o := range before.Owners {
			if owner := w.objects[o.UID]; owner != nil {
				e.living[o.UID] = owner
			}
		}
		if o := controllerOf(before); o != nil {
			e.others = w.active(o.UID)
		}
		all[before.UID] = e
	})
	return all
}

func (b *books) wrongfully(w *Write, e *end) []Violation {
	c, _ := commandOf(w.ID)
	turn := b.turns[c.place]
	evidence := append(b.evidence(turn, e.change), w.String())
	switch w.As {
	case collector:
		for _, o := range e.before.Owners {
			if owner := e.living[o.UID]; owner != nil && !waits(owner) {
				return []Violation{violation(evidence, "the garbage collector deleted %v, whose owner %v lived", e.before.Ref, owner.Ref)}
			}
		}
	case setController, rcController, jobController:
		if turn == nil || !e.before.Active {
			return nil
		}
		if v, broken := b.unasked(turn, e); broken {
			v.Evidence = append(v.Evidence, evidence...)
			return []Violation{v}
		}
	}
	return nil
}

// waits is whether an owner is in foreground deletion, and waits for its dependents.
func waits(o *Object) bool {
	return o.Deleting && slices.Contains(o.Finalizers, metav1.FinalizerDeleteDependents)
}

// unasked judges the deletion of a pod by the controller of its ReplicaSet,
// ReplicationController or Job: there must have been a surplus as far as the controller could
// know. Pods that others have ended since its view still counted in the view.
func (b *books) unasked(t *Turn, e *end) (Violation, bool) {
	looked := b.reached(t, pods)
	if looked == 0 {
		return Violation{}, false // the log that it rests on is damaged, which other rules report
	}
	versions := b.between(t.UID, decidedAt(t), e.change.Revision)
	if len(versions) == 0 {
		return Violation{}, false
	}
	least := b.wanted(versions[0], e.change.Revision)
	for _, v := range versions {
		least = min(least, b.wanted(v, e.change.Revision))
	}
	counted := e.others + b.wentWithout(t, looked, e.change.Revision)
	if counted > int(least) {
		return Violation{}, false
	}
	return violation(nil, "%v was deleted as one too many when its owner had %d pods and asked for %d", e.before.Ref, counted, least), true
}

// wanted is how many pods an owner needs: a Job needs none if it is suspended or has failed too
// often, and at most as many as completions are left.
func (b *books) wanted(o *Object, by int64) int32 {
	if o.Ref.Kind != jobs {
		return o.Replicas
	}
	if o.Idle || o.Done || o.Deleting || b.failed(o.UID, by) > int(o.Retries) {
		return 0
	}
	return min(o.Replicas, max(0, o.Completions-int32(b.succeeded(o.UID, by))))
}

// failed counts the pods of a Job that have ended by a revision and did not succeed.
func (b *books) failed(job types.UID, by int64) int {
	n := 0
	for _, uid := range b.owned[job] {
		if b.lives[uid][0].Revision > by {
			continue
		}
		last := b.lives[uid][len(b.lives[uid])-1].Object
		if o := b.at(uid, by); !last.EndedWell && (o == nil || !o.Active) {
			n++
		}
	}
	return n
}

// wentWithout counts the pods of a turn's owner that ended, or were deleted,
// between two revisions and not by the turn.
func (b *books) wentWithout(t *Turn, from, to int64) int {
	n := 0
	first, _ := slices.BinarySearchFunc(b.Changes, from+1, func(c Change, to int64) int { return cmp.Compare(c.Revision, to) })
	for i := first; i < len(b.Changes) && b.Changes[i].Revision < to; i++ {
		c := &b.Changes[i]
		if c.Object.Ref.Kind != pods {
			continue
		}
		owner := controllerOf(&c.Object)
		if owner == nil || owner.UID != t.UID || !c.Gone && c.Object.Active {
			continue
		}
		if before := b.before(c); before == nil || !before.Active {
			continue
		}
		if by := b.turnOf(edition{c.Object.UID, c.Revision}); by == nil || by.Sequence != t.Sequence {
			n++
		}
	}
	return n
}

// before is the version of an object before a change; nil if the change created it.
func (b *books) before(c *Change) *Object {
	life := b.lives[c.Object.UID]
	i := slices.Index(life, c)
	if i <= 0 {
		return nil
	}
	return &life[i-1].Object
}

// passesOn is whether the owner of a claim changes between its StatefulSet and the set's pod, as
// the retention policy requires when the set is scaled down and up again.
//
// Upstream: pkg/controller/statefulset, updateClaimOwnerRefForSetAndPod.
func passesOn(o *Object, was, is *metav1.OwnerReference) bool {
	between := was.Kind == "StatefulSet" && is.Kind == "Pod" || was.Kind == "Pod" && is.Kind == "StatefulSet"
	return o.Ref.Kind == kinds.PersistentVolumeClaims.Name && between
}

// owned judges the changes of owners and finalizers.
func owned(b *books) []Violation {
	var found []Violation
	add := func(c *Change, format string, args ...any) {
		found = append(found, violation(b.evidence(b.turnOf(edition{c.Object.UID, c.Revision}), c), format, args...))
	}
	b.replay(func(w *world, before *Object, c *Change) {
		o := &c.Object
		if !b.judged(c) {
			return
		}
		if !c.Gone && controllers(o) > 1 {
			add(c, "%v has %d controllers", o.Ref, controllers(o))
		}
		if before == nil {
			return
		}
		if was, is := controllerOf(before), controllerOf(o); !c.Gone && was != nil && is != nil && was.UID != is.UID && !passesOn(o, was, is) {
			add(c, "%v went from %s to %s in one step", o.Ref, b.name(was.UID), b.name(is.UID))
		}
		if waits(before) && (c.Gone || !waits(o)) {
			switch left := w.blocking(before.UID); {
			case left == nil, c.Gone && b.freed(before):
			case b.blind(before.UID, left), c.Gone && b.hasty(before):
				b.unseen++
			default:
				add(c, "%v went before its dependent %v", o.Ref, left.Ref)
			}
		}
		for _, f := range o.Finalizers {
			if strings.HasPrefix(f, "foregroundDeletion") && !o.Deleting && !c.Gone {
				add(c, "%v waits for its dependents, and is not being deleted", o.Ref)
			}
		}
	})
	return found
}

func controllers(o *Object) int {
	n := 0
	for _, owner := range o.Owners {
		if owner.Controller != nil && *owner.Controller {
			n++
		}
	}
	return n
}

// blocking is a dependent with blockOwnerDeletion of an owner; nil if it has none.
func (w *world) blocking(owner types.UID) *Object {
	for _, o := range w.objects {
		for _, ref := range o.Owners {
			if ref.UID == owner && ref.BlockOwnerDeletion != nil && *ref.BlockOwnerDeletion {
				return o
			}
		}
	}
	return nil
}

// freed is whether a user ended the foreground deletion of an owner: a second delete with another
// propagation policy removes the finalizer, and so the object. Then it was not the garbage
// collector that removed the owner.
func (b *books) freed(owner *Object) bool {
	asked := false
	for i := range b.Writes {
		w := &b.Writes[i]
		switch {
		case w.As == collector && w.Verb == "patch" && w.Ref == owner.Ref && (w.UID == owner.UID || !w.Ended):
			return false
		case w.Foreign && w.Verb == "delete" && w.Stored() && w.Ref == owner.Ref && w.Revision == 0 && (w.OnlyUID == "" || w.OnlyUID == owner.UID):
			asked = true
		}
	}
	return asked
}

// hasty is whether another controller of Millrace deleted an owner without having seen its
// foreground deletion, which that second delete ended. Upstream's controllers do the same; it is
// counted, and is no violation.
func (b *books) hasty(owner *Object) bool {
	began := int64(0)
	for _, c := range b.lives[owner.UID] {
		if began == 0 && waits(&c.Object) {
			began = c.Revision
		}
	}
	for c, writes := range b.stored {
		for _, w := range writes {
			if w.As == collector || w.Verb != "delete" || w.OnlyUID != owner.UID || w.Revision != 0 {
				continue
			}
			if turn := b.turns[c.place]; turn != nil && b.reached(turn, owner.Ref.Kind) < began {
				return true
			}
		}
	}
	return false
}

// blind is whether the garbage collector released an owner without having seen a dependent,
// because the log of the dependent's kind did not have it when that was decided. Upstream does
// the same if its watch of one kind lags behind that of another; it is counted, and is no
// violation.
func (b *books) blind(owner types.UID, dependent *Object) bool {
	var last *Turn
	for _, c := range sorted(b.stored) {
		for _, w := range b.stored[c] {
			if turn := b.turns[c.place]; w.As == collector && w.Verb == "patch" && w.UID == owner && turn != nil {
				last = turn
			}
		}
	}
	return last != nil && b.reached(last, dependent.Ref.Kind) < b.lives[dependent.UID][0].Revision
}
