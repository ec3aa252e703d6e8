// Package taint knows which taints of nodes a pod puts up with.
package taint

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Tolerated tells whether one of some tolerations is of a taint.
//
// Upstream: k8s.io/api, ToleratesTaint, which wants a logger. Numbers are not compared
// (Gt, Lt), as long as TaintTolerationComparisonOperators is off by default.
func Tolerated(t corev1.Taint, by []corev1.Toleration) bool {
	return slices.ContainsFunc(by, func(toleration corev1.Toleration) bool {
		switch {
		case toleration.Effect != "" && toleration.Effect != t.Effect, toleration.Key != "" && toleration.Key != t.Key:
			return false
		case toleration.Operator == "", toleration.Operator == corev1.TolerationOpEqual:
			return toleration.Value == t.Value
		default:
			return toleration.Operator == corev1.TolerationOpExists
		}
	})
}

// Repels tells whether one of some taints has one of the effects and is not tolerated.
func Repels(taints []corev1.Taint, tolerations []corev1.Toleration, effects ...corev1.TaintEffect) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return slices.Contains(effects, t.Effect) && !Tolerated(t, tolerations)
	})
}
