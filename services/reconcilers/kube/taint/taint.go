// Package taint knows which taints of nodes a pod tolerates.
package taint

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Tolerated reports whether one of some tolerations tolerates a taint. The operators Gt and Lt
// count only if numbers is true, which means that the feature gate
// TaintTolerationComparisonOperators is on.
//
// Upstream: k8s.io/api, ToleratesTaint, which wants a logger.
func Tolerated(t corev1.Taint, by []corev1.Toleration, numbers bool) bool {
	return slices.ContainsFunc(by, func(toleration corev1.Toleration) bool {
		switch {
		case toleration.Effect != "" && toleration.Effect != t.Effect, toleration.Key != "" && toleration.Key != t.Key:
			return false
		case toleration.Operator == "", toleration.Operator == corev1.TolerationOpEqual:
			return toleration.Value == t.Value
		case toleration.Operator == corev1.TolerationOpGt, toleration.Operator == corev1.TolerationOpLt:
			return numbers && beyond(t.Value, toleration.Value, toleration.Operator)
		default:
			return toleration.Operator == corev1.TolerationOpExists
		}
	})
}

// beyond reports whether a taint's number is greater, or less, than a toleration's. A value
// that is not a decimal integer is neither.
func beyond(has, limit string, how corev1.TolerationOperator) bool {
	if len(content.IsDecimalInteger(has)) > 0 || len(content.IsDecimalInteger(limit)) > 0 {
		return false
	}
	a, failed := strconv.ParseInt(has, 10, 64)
	b, err := strconv.ParseInt(limit, 10, 64)
	if failed != nil || err != nil {
		return false
	}
	return how == corev1.TolerationOpGt && a > b || how == corev1.TolerationOpLt && a < b
}

// Repels reports whether one of some taints has one of the effects and is not tolerated.
func Repels(taints []corev1.Taint, tolerations []corev1.Toleration, numbers bool, effects ...corev1.TaintEffect) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool {
		return slices.Contains(effects, t.Effect) && !Tolerated(t, tolerations, numbers)
	})
}
