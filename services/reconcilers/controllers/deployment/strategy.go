package deployment

import (
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// roll takes one step of a rolling update: it creates the new set, scales it up, or
// scales the old ones down. Once the rollout is complete, it deletes old history.
//
// Upstream: pkg/controller/deployment/rolling.go. There old sets may shrink in
// the sync in which the new one is created.
func (r *rollout) roll() reconcile.Decision {
	if r.fresh == nil {
		return r.bear(true)
	}
	r.record()
	switch {
	case r.grow():
		return r.done("the new replica set is to have another size", r.report(true))
	case r.shrink():
		return r.done("old replica sets are too large", r.report(true))
	default:
		return r.finish("the rollout waits for pods")
	}
}

// finish reports the status, and deletes old history once the rollout is complete.
func (r *rollout) finish(because string) reconcile.Decision {
	tidy := reconcile.Decision{}
	if complete(r.deployment, r.deployment.Status) {
		because, tidy = "the rollout is complete", r.forget()
	}
	return r.done(because, tidy, r.report(true))
}

// grow scales the new set to the size that is allowed now, and reports whether that is a change.
func (r *rollout) grow() bool {
	was := r.fresh.size
	r.resize(r.fresh, r.target(was))
	return r.fresh.size != was
}

// target returns the size that the new set may have now, given its current size: no more
// than wanted, and no more than fits beside the old sets.
//
// Upstream: pkg/controller/deployment/util, NewRSNewReplicas. There a set that is
// created because of a rollback has all replicas at once when the Deployment
// recreates, beside the old ones.
func (r *rollout) target(has int32) int32 {
	goal := wanted(r.deployment)
	switch {
	case has >= goal:
		return goal
	case !rolls(r.deployment) && sum(r.old, size) > 0:
		return has
	case !rolls(r.deployment):
		return goal
	}
	room := most(r.deployment) - sum(r.old, size) - has
	return has + min(max(room, 0), goal-has)
}

// shrink scales the old sets down, oldest first: first by their unavailable replicas,
// which serve no client, then by as many others as are not needed. Unavailable replicas
// of the new set count as missing, so a template that never becomes ready stops the rollout.
//
// Upstream: pkg/controller/deployment/rolling.go, reconcileOldReplicaSets. A set
// that has more available replicas than it should have is shrinking already, and
// everything waits for it.
func (r *rollout) shrink() bool {
	old := active(r.old)
	before := sum(old, size)
	missing := r.fresh.size - available(r.fresh)
	budget := sum(r.all(), size) - least(r.deployment) - missing
	if before == 0 || budget <= 0 {
		return false
	}
	for _, s := range old {
		if budget <= 0 {
			break
		}
		if available(s) > s.size {
			return false
		}
		n := min(budget, s.size-available(s))
		r.resize(s, s.size-n)
		budget -= n
	}
	spare := sum(old, available) + available(r.fresh) - least(r.deployment)
	for _, s := range old {
		n := min(max(spare, 0), s.size)
		r.resize(s, s.size-n)
		spare -= n
	}
	return sum(old, size) < before
}

// recreate waits until no old pod runs before it creates or scales the new set.
//
// Upstream: pkg/controller/deployment/recreate.go.
func (r *rollout) recreate() reconcile.Decision {
	r.record()
	stopping := active(r.old)
	for _, s := range stopping {
		r.resize(s, 0)
	}
	switch {
	case len(stopping) > 0:
		return r.done("old replica sets stop first", r.report(true))
	case r.oldRuns():
		return r.done("old pods are still running", r.report(true))
	case r.fresh == nil:
		return r.bear(true)
	default:
		r.resize(r.fresh, wanted(r.deployment))
		return r.finish("nothing old is left")
	}
}

// oldRuns reports whether an old set still has pods. A pod counts until it has ended, even
// if its state is unknown.
func (r *rollout) oldRuns() bool {
	for _, s := range r.old {
		if s.seen.Status.Replicas > 0 || r.running[s.seen.UID] > 0 {
			return true
		}
	}
	return false
}
