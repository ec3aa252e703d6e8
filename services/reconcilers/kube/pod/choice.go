package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// AsGood reports whether [ToDelete] might as well put one pod before the other as
// the reverse. The two differ at most in their ages, and by at most one step on
// the scale of powers of two, which a moment may change.
func AsGood(a, b *corev1.Pod, crowd Crowd, costs bool, now time.Time) bool {
	x, y := weigh(a, crowd, costs, now), weigh(b, crowd, costs, now)
	if !x.since.near(y.since) || !x.created.near(y.created) {
		return false
	}
	y.since, y.created = x.since, x.created
	return byWorth(x, y) == 0
}

func (a age) near(b age) bool { return max(a.rank-b.rank, b.rank-a.rank) <= 1 }
