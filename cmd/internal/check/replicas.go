package check

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// bounded judges every create of a pod, and every growth of a ReplicaSet. It allows what the
// owner requested in any version between the one that was decided on and the create, because a
// reconciler cannot know later versions.
func bounded(b *books) []Violation {
	var found []Violation
	b.replay(func(w *world, before *Object, c *Change) {
		owner := controllerOf(&c.Object)
		if c.Gone || owner == nil {
			return
		}
		switch {
		case c.Object.Ref.Kind == pods && before == nil:
			if v, broken := b.created(w, owner.UID, c); broken {
				found = append(found, v)
			}
		case c.Object.Ref.Kind == replicaSets && (before == nil || c.Object.Replicas > before.Replicas):
			if v, broken := b.growth(w, owner.UID, c); broken {
				found = append(found, v)
			}
		}
	})
	return found
}

// created judges the creation of a pod by the kind of its owner.
func (b *books) created(w *world, owner types.UID, c *Change) (Violation, bool) {
	switch b.kindOf(owner) {
	case statefulSets:
		return b.member(owner, c)
	case daemonSets:
		return b.daemon(w, owner, c)
	default:
		return b.create(w, owner, c)
	}
}

func (b *books) create(w *world, set types.UID, c *Change) (Violation, bool) {
	turn := b.turnOf(edition{c.Object.UID, c.Revision})
	allowed, versions := int32(0), b.between(set, decidedAt(turn), c.Revision)
	for _, v := range versions {
		allowed = max(allowed, v.Replicas)
	}
	now := w.active(set) + 1
	if len(versions) == 0 || now <= int(allowed) {
		return Violation{}, false
	}
	return violation(b.evidence(turn, c), "%v is pod %d of %s, which never asked for more than %d since that was decided",
		c.Object.Ref, now, b.name(set), allowed), true
}

// growth judges a ReplicaSet that has become larger. One that is created with 0 replicas has not,
// regardless of what its Deployment has adopted.
func (b *books) growth(w *world, deployment types.UID, c *Change) (Violation, bool) {
	if c.Object.Replicas == 0 {
		return Violation{}, false
	}
	turn := b.turnOf(edition{c.Object.UID, c.Revision})
	allowed, versions := int32(0), b.between(deployment, decidedAt(turn), c.Revision)
	for _, v := range versions {
		allowed = max(allowed, v.Replicas+v.Surge)
	}
	sum := c.Object.Replicas
	for uid, set := range w.owned[deployment] {
		if uid != c.Object.UID && set.Ref.Kind == replicaSets {
			sum += set.Replicas
		}
	}
	if len(versions) == 0 || sum <= allowed {
		return Violation{}, false
	}
	return violation(b.evidence(turn, c), "%v grew to %d, which makes %d replicas of %s, never allowed more than %d since that was decided",
		c.Object.Ref, c.Object.Replicas, sum, b.name(deployment), allowed), true
}

// name is the name of an object in messages.
func (b *books) name(uid types.UID) string {
	if life := b.lives[uid]; len(life) > 0 {
		return life[0].Object.Ref.String()
	}
	return "an unknown object " + string(uid)
}

func (b *books) evidence(t *Turn, c *Change) []string {
	e := []string{fmt.Sprintf("revision %d of %v, uid %s", c.Revision, c.Object.Ref, c.Object.UID)}
	if t != nil {
		e = append(e, t.String(), fmt.Sprintf("decided on version %s, having seen pods up to %d, %s up to %d, %s up to %d",
			t.ResourceVersion, t.Seen[pods], replicaSets, t.Seen[replicaSets], deployments, t.Seen[deployments]))
	}
	return e
}

// converged judges the objects at the end.
func converged(b *books) []Violation {
	w := b.replay(func(*world, *Object, *Change) {})
	var found []Violation
	for uid, o := range w.objects {
		for _, missing := range w.missing(uid, o) {
			found = append(found, violation(nil, "in the end %v %s", o.Ref, missing))
		}
	}
	return found
}

func (w *world) has(ref events.Ref) bool {
	for _, o := range w.objects {
		if o.Ref == ref {
			return true
		}
	}
	return false
}

// inUse is whether an object is a claim that an active pod uses. Such a claim may be in deletion
// until the pod ends: a StatefulSet that is deleted and created again with the same name uses the
// old one's claims, which the garbage collector still has to delete.
//
// Upstream: updateClaimOwnerRefForSetAndPod leaves the owners of such a claim as they are.
func (w *world) inUse(claim *Object) bool {
	if claim.Ref.Kind != kinds.PersistentVolumeClaims.Name {
		return false
	}
	for _, o := range w.objects {
		if o.Ref.Namespace == claim.Ref.Namespace && slices.Contains(o.Claims, claim.Ref.Name) {
			return true
		}
	}
	return false
}

// missing are the reasons why an object has not converged.
func (w *world) missing(uid types.UID, o *Object) []string {
	var all []string
	say := func(wrong bool, format string, args ...any) {
		if wrong {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	if o.Deleting && w.inUse(o) {
		return nil
	}
	say(o.Deleting, "is on its way out")
	say(o.Empty, "lacks what belongs into it")
	switch o.Ref.Kind {
	case namespaces:
		for _, of := range []events.Ref{{Kind: "serviceaccounts", Namespace: o.Ref.Name, Name: "default"}, {Kind: "configmaps", Namespace: o.Ref.Name, Name: "kube-root-ca.crt"}} {
			say(!w.has(of), "lacks %v", of)
		}
	case deployments:
		asked := int32(0)
		for _, set := range w.owned[uid] {
			asked += set.Replicas
		}
		say(asked != o.Replicas, "asks for %d replicas, and its ReplicaSets for %d", o.Replicas, asked)
		say(o.Observed != o.Generation, "is of generation %d, and its status of %d", o.Generation, o.Observed)
		say(o.Total != o.Replicas || o.Updated != o.Replicas || o.Available != o.Replicas,
			"asks for %d replicas, and its status says %d, %d up to date, %d available", o.Replicas, o.Total, o.Updated, o.Available)
	case jobs:
		say(!o.Done, "has not ended")
		say(o.Done && w.active(uid) > 0, "has ended, and %d pods of it are at work", w.active(uid))
	case daemonSets:
		say(o.Observed != o.Generation || o.Total != o.Replicas || o.Updated != o.Replicas || o.Available != o.Replicas || int32(w.active(uid)) != o.Replicas,
			"is of generation %d for %d nodes and has %d pods, and its status of %d with %d, %d up to date, %d available",
			o.Generation, o.Replicas, w.active(uid), o.Observed, o.Total, o.Updated, o.Available)
	case replicaSets, replicationControllers, statefulSets:
		say(int32(w.active(uid)) != o.Replicas, "asks for %d pods, and has %d", o.Replicas, w.active(uid))
		say(o.Observed != o.Generation || o.Total != o.Replicas, "is of generation %d with %d pods, and its status of %d with %d",
			o.Generation, o.Replicas, o.Observed, o.Total)
	}
	for _, owner := range o.Owners {
		say(w.objects[owner.UID] == nil, "is owned by %s %s, which is gone", owner.Kind, owner.Name)
	}
	return all
}
