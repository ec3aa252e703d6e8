package pod

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Least sorts pods by which should be deleted first, by their own properties alone:
// deletion costs and other pods on the node do not count, and times count to the
// second.
//
// Upstream: pkg/controller/controller_utils.go, ActivePods.
func Least(pods []*corev1.Pod) []*corev1.Pod {
	sorted := slices.Clone(pods)
	slices.SortFunc(sorted, func(a, b *corev1.Pod) int {
		sinceA, readyA := ReadySince(a)
		sinceB, readyB := ReadySince(b)
		order := cmp.Or(
			falseFirst(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(phase(a), phase(b)),
			falseFirst(readyA, readyB),
		)
		if order == 0 && readyA {
			order = lateFirst(sinceA, sinceB)
		}
		restartsA, besideA := restarts(a)
		restartsB, besideB := restarts(b)
		return cmp.Or(order,
			cmp.Compare(restartsB, restartsA),
			cmp.Compare(besideB, besideA),
			lateFirst(a.CreationTimestamp.Time, b.CreationTimestamp.Time),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name),
		)
	})
	return sorted
}

// lateFirst compares moments; an unknown one counts as the latest.
func lateFirst(a, b time.Time) int {
	return cmp.Or(falseFirst(!a.IsZero(), !b.IsZero()), b.Compare(a))
}
