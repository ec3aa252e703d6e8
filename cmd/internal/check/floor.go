package check

import (
	"k8s.io/apimachinery/pkg/types"
)

// The identities of controllers that delete pods.
const (
	statefulSetController = "system:serviceaccount:kube-system:statefulset-controller"
	daemonSetController   = "system:serviceaccount:kube-system:daemon-set-controller"
	rcController          = "system:serviceaccount:kube-system:replication-controller"
	jobController         = "system:serviceaccount:kube-system:job-controller"
)

// available: no controller makes more pods unavailable than a user allows. A controller is
// judged by what it could see when it decided: pods that others deleted since then count as
// available.
func available(b *books) []Violation {
	var found []Violation
	add := func(v Violation, broken bool) {
		if broken {
			found = append(found, v)
		}
	}
	ends := b.ends()
	for _, c := range sorted(b.stored) {
		for _, w := range b.stored[c] {
			e := ends[w.OnlyUID]
			if w.Verb != "delete" || e == nil || e.before.Ref.Kind != pods || b.foreign[edition{w.OnlyUID, e.change.Revision}] || !e.by(b, w) {
				continue
			}
			turn := b.turns[c.place]
			if turn == nil || b.reached(turn, pods) == 0 {
				continue // other rules report it
			}
			switch w.As {
			case statefulSetController:
				add(b.oneAtATime(turn, e))
			case daemonSetController:
				add(b.fewNodes(turn, e))
			case setController, rcController:
				add(b.worstFirst(turn, e))
			}
		}
	}
	b.replay(func(w *world, before *Object, c *Change) {
		if c.Gone || before == nil {
			return
		}
		switch c.Object.Ref.Kind {
		case replicaSets:
			add(b.shrunk(w, before, c))
		case budgets:
			add(b.claimed(before, c))
		}
	})
	return found
}

// oneAtATime judges the pods that a StatefulSet deletes: it deletes a ready pod only while the
// others are ready, without ordered creation at least those above it, and surplus pods from the
// highest ordinal.
func (b *books) oneAtATime(turn *Turn, e *end) (Violation, bool) {
	seen := b.view(turn, pods)
	was, versions := seen.at(e.before.UID), b.between(turn.UID, decidedAt(turn), e.change.Revision)
	if was == nil || len(versions) == 0 {
		return Violation{}, false
	}
	least, start, ordered := versions[0].Replicas, versions[0].Start, true
	for _, v := range versions {
		least, ordered = min(least, v.Replicas), ordered && v.Ordered
	}
	there := map[int32]*Object{}
	for _, o := range seen.podsOf(turn.UID) {
		there[o.Index] = o
	}
	at := was.Index
	if at >= start+least {
		for i, o := range there {
			if ordered && i > at && b.at(o.UID, e.change.Revision-1) != nil {
				return violation(b.evidence(turn, e.change), "%v was taken away before %v, which is beyond it", was.Ref, o.Ref), true
			}
		}
		return Violation{}, false
	}
	for i := start; was.Ready && i < start+least; i++ {
		o := there[i]
		if i == at || !ordered && i < at || o != nil && o.Ready {
			continue
		}
		if o != nil && b.wasReady(o.UID, seen.upTo, e.change.Revision) {
			continue
		}
		return violation(b.evidence(turn, e.change), "%v, which was ready, was taken away while pod %d of %s was not", was.Ref, i, b.name(turn.UID)), true
	}
	return Violation{}, false
}

// fewNodes judges the pods that a DaemonSet deletes: when it deletes a ready pod, at most as many
// nodes may be without one as the DaemonSet allows.
func (b *books) fewNodes(turn *Turn, e *end) (Violation, bool) {
	seen := b.view(turn, pods)
	was, versions := seen.at(e.before.UID), b.between(turn.UID, decidedAt(turn), e.change.Revision)
	if was == nil || !was.Ready || len(versions) == 0 {
		return Violation{}, false
	}
	allowed := int32(0)
	for _, v := range versions {
		if v.Deleting {
			return Violation{}, false
		}
		allowed = max(allowed, v.Unavailable)
	}
	without := map[string]bool{}
	for _, uid := range b.owned[turn.UID] {
		if b.kindOf(uid) == pods {
			without[b.lives[uid][0].Object.Node] = true
		}
	}
	for _, o := range seen.podsOf(turn.UID) {
		// Pods that the same turn deleted before count as deleted.
		if o.Ready && o.UID != was.UID && !b.takenBy(turn, o.UID, e.change.Revision) {
			delete(without, o.Node)
		}
	}
	if !without[was.Node] || int32(len(without)) <= allowed {
		return Violation{}, false
	}
	return violation(b.evidence(turn, e.change), "%v was taken away, which leaves %d nodes of %s without a pod that is ready, of %d allowed",
		was.Ref, len(without), b.name(turn.UID), allowed), true
}

// takenBy is whether a turn deleted an object before a revision.
func (b *books) takenBy(turn *Turn, uid types.UID, before int64) bool {
	for _, c := range b.lives[uid] {
		if c.Revision < before && (c.Gone || c.Object.Deleting) {
			by := b.turnOf(edition{uid, c.Revision})
			return by != nil && by.place() == turn.place()
		}
	}
	return false
}

// worstFirst: of surplus pods, no ready one is deleted while one that is not ready stays.
func (b *books) worstFirst(turn *Turn, e *end) (Violation, bool) {
	seen := b.view(turn, pods)
	was := seen.at(e.before.UID)
	if was == nil || !was.Ready {
		return Violation{}, false
	}
	for _, o := range seen.podsOf(turn.UID) {
		now := b.at(o.UID, e.change.Revision)
		if o.Ready || !o.Active || now == nil || !now.Active {
			continue
		}
		if last := b.at(o.UID, 1<<62); last != nil && last.Active {
			return violation(b.evidence(turn, e.change), "%v, which was ready, was taken away, and %v, which was not, was left", was.Ref, o.Ref), true
		}
	}
	return Violation{}, false
}

// shrunk judges a Deployment that scales down one of its ReplicaSets: of the available pods in the
// status of its ReplicaSets, as many must be left as the Deployment requires. A ReplicaSet deletes
// unavailable pods first.
func (b *books) shrunk(w *world, before *Object, c *Change) (Violation, bool) {
	owner, turn := controllerOf(&c.Object), b.turnOf(edition{c.Object.UID, c.Revision})
	if owner == nil || turn == nil || turn.UID != owner.UID || c.Object.Replicas >= before.Replicas {
		return Violation{}, false
	}
	looked, versions := b.view(turn, replicaSets), b.between(owner.UID, decidedAt(turn), c.Revision)
	if looked.upTo == 0 || len(versions) == 0 {
		return Violation{}, false
	}
	// A Deployment that was scaled meanwhile scales its ReplicaSets in proportion to their size,
	// regardless of availability, as upstream does.
	for _, v := range b.between(owner.UID, b.sized(before), c.Revision) {
		if v.Replicas != versions[0].Replicas {
			return Violation{}, false
		}
	}
	floor := versions[0].Replicas - versions[0].Unavailable
	for _, v := range versions {
		floor = min(floor, v.Replicas-v.Unavailable)
		if v.Deleting {
			return Violation{}, false
		}
	}
	had, left, stale := int32(0), int32(0), false
	for uid, set := range w.owned[owner.UID] {
		seen := looked.at(uid)
		if seen == nil || set.Ref.Kind != replicaSets {
			continue
		}
		stale = stale || seen.Available > seen.Replicas
		replicas := set.Replicas
		if uid == c.Object.UID {
			had, replicas = had+min(seen.Available, before.Replicas), c.Object.Replicas
		} else {
			had += min(seen.Available, replicas)
		}
		left += min(seen.Available, replicas)
	}
	if left >= had || left >= floor {
		return Violation{}, false
	}
	// The status of a ReplicaSet that was just scaled down still counts pods that are being deleted,
	// and reconcileOldReplicaSets (pkg/controller/deployment/rolling.go) relies on it, as Millrace
	// does.
	if stale {
		b.stale++
		return Violation{}, false
	}
	return violation(b.evidence(turn, c), "%v went from %d to %d, which leaves %d of %d available pods of %s, and %d must stay",
		c.Object.Ref, before.Replicas, c.Object.Replicas, left, had, b.name(owner.UID), floor), true
}

// sized is the revision at which a ReplicaSet got its current number of replicas.
func (b *books) sized(set *Object) int64 {
	life, at := b.lives[set.UID], int64(0)
	for i := range life {
		if i == 0 || life[i].Object.Replicas != life[i-1].Object.Replicas {
			at = life[i].Revision
		}
		if &life[i].Object == set {
			break
		}
	}
	return at
}

// claimed judges the status of a budget: it counts no more healthy pods than the turn had seen,
// and allows no more disruptions than there are healthy pods beyond the desired number.
func (b *books) claimed(before *Object, c *Change) (Violation, bool) {
	o, turn := &c.Object, b.turnOf(edition{c.Object.UID, c.Revision})
	if turn == nil || o.Healthy == before.Healthy && o.Allowed == before.Allowed {
		return Violation{}, false
	}
	if o.Allowed > max(0, o.Healthy-o.Desired) {
		return violation(b.evidence(turn, c), "%v lets %d go of %d that are healthy, and %d must stay", o.Ref, o.Allowed, o.Healthy, o.Desired), true
	}
	// If the expected number of pods is not known, failSafe (pkg/controller/disruption/disruption.go)
	// allows no disruptions and updates no counts, as Millrace does.
	failSafe := o.Allowed == 0 && o.Healthy == before.Healthy
	seen := b.view(turn, pods)
	if seen.upTo == 0 || o.App != before.App || failSafe {
		return Violation{}, false
	}
	healthy := int32(0)
	for _, uid := range b.labelled[label{o.Ref.Namespace, o.App}] {
		if p := seen.at(uid); p != nil && p.Ready {
			healthy++
		}
	}
	if o.Healthy <= healthy {
		return Violation{}, false
	}
	return violation(b.evidence(turn, c), "%v says that %d pods are healthy, and %d were as far as it had seen", o.Ref, o.Healthy, healthy), true
}
