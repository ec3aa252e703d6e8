package deployment

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
)

// rescaled reports whether the number of wanted replicas has changed since a set
// with replicas was last scaled.
func (r *rollout) rescaled() bool {
	return slices.ContainsFunc(active(r.all()), func(s *set) bool {
		desired, ok := number(s.notes, desiredNote)
		return ok && desired != wanted(r.deployment)
	})
}

// scales reports whether scale can apply a changed number of replicas. Under the strategy
// Recreate it cannot while several sets, perhaps adopted ones, have replicas and the new
// set is not saturated: recreate scales the old ones to zero instead.
//
// Upstream: there it finds that the number has changed at every sync, changes nothing, and
// never comes to recreate.
func (r *rollout) scales() bool {
	recreates := r.deployment.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType
	return !recreates || len(active(r.all())) < 2 || r.saturated()
}

// scale distributes the wanted number of replicas among the sets. A single set gets all
// of them. If the new set is saturated, the old ones get none. Otherwise a rolling update
// is in progress, and every set gets its proportional share, so that the change favours no template.
//
// Upstream: pkg/controller/deployment/sync.go, scale. There one set that has the
// right size keeps a note of another number, and the Deployment, which takes
// that for a change, never rolls out again; here the note is renewed.
func (r *rollout) scale() {
	sets := active(r.all())
	if only := r.only(sets); only != nil {
		r.resize(only, wanted(r.deployment))
		if r.rescaled() {
			r.settle(only, wanted(r.deployment))
		}
		return
	}
	if r.saturated() {
		for _, s := range active(r.old) {
			r.resize(s, 0)
		}
		return
	}
	if !rolls(r.deployment) {
		return
	}
	for i, share := range r.shares(sets) {
		r.settle(sets[i], share)
	}
}

// only returns the one set that has replicas or, if none has any, the latest. It is nil
// if several have replicas, or if there is no set.
func (r *rollout) only(active []*set) *set {
	switch {
	case len(active) == 1:
		return active[0]
	case len(active) > 1:
		return nil
	case r.fresh != nil:
		return r.fresh
	case len(r.old) > 0:
		return r.old[len(r.old)-1]
	default:
		return nil
	}
}

// saturated reports whether the new set has every wanted replica, all of them are
// available, and the set was last scaled for this number.
func (r *rollout) saturated() bool {
	if r.fresh == nil {
		return false
	}
	goal := wanted(r.deployment)
	desired, err := strconv.Atoi(r.fresh.notes[desiredNote])
	return err == nil && r.fresh.size == goal && desired == int(goal) && available(r.fresh) == goal
}

// shares returns the size of each set. It sorts sets in place: largest first, and among
// equals the newer first when replicas are added, the older first when replicas are
// removed. The first set gets the remainder of the rounding.
//
// Upstream: a set with a note that is too low to be true grows even when there
// is something to take, so that in the end there may be more than is allowed.
func (r *rollout) shares(sets []*set) []int32 {
	var allowed int32
	if wanted(r.deployment) > 0 {
		allowed = most(r.deployment)
	}
	toAdd := allowed - sum(sets, size)
	if toAdd != 0 {
		slices.SortStableFunc(sets, func(a, b *set) int {
			age := olderFirst(a.seen, b.seen)
			if toAdd > 0 {
				age = -age
			}
			return cmp.Or(cmp.Compare(b.size, a.size), age)
		})
	}
	left := toAdd
	shares := make([]int32, len(sets))
	for i, s := range sets {
		var share int32
		switch {
		case left > 0:
			share = min(r.proportion(s), left)
		case left < 0:
			share = max(min(r.proportion(s), 0), left)
		}
		shares[i] = s.size + share
		left -= share
	}
	if len(shares) > 0 {
		shares[0] = max(shares[0]+left, 0)
	}
	return shares
}

// proportion returns how many replicas a set gains, or loses if negative, to keep its
// share of the allowed total.
//
// Upstream: pkg/controller/deployment/util, getReplicaSetFraction. A set that
// does not say how many were allowed when it got its size is measured by how
// many there are.
func (r *rollout) proportion(s *set) int32 {
	if wanted(r.deployment) == 0 {
		return -s.size
	}
	before, ok := number(s.notes, mostNote)
	if !ok || before == 0 {
		before = r.deployment.Status.Replicas
	}
	if before <= 0 {
		return 0
	}
	part := int64(s.size) * int64(most(r.deployment))
	rounded := (2*part + int64(before)) / (2 * int64(before)) // half up
	return int32(min(rounded, math.MaxInt32)) - s.size
}
