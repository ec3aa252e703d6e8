package pod

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// AsGood tells whether it is chance which of two pods [ToDelete] puts first: they
// differ at most in how old they are, and on its scale of powers of two by no more
// than one step, which a moment may decide.
func AsGood(a, b *corev1.Pod, crowd Crowd, costs bool, now time.Time) bool {
	x, y := weigh(a, crowd, costs, now), weigh(b, crowd, costs, now)
	if !x.since.near(y.since) || !x.created.near(y.created) {
		return false
	}
	y.since, y.created = x.since, x.created
	return byWorth(x, y) == 0
}

func (a age) near(b age) bool { return max(a.rank-b.rank, b.rank-a.rank) <= 1 }
