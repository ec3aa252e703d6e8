package resourcequota

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// scopes are all scopes of a quota, including those in the older form. An
// object must be in all of them to count.
func scopes(q *corev1.ResourceQuota) []corev1.ScopedResourceSelectorRequirement {
	var all []corev1.ScopedResourceSelectorRequirement
	for _, name := range q.Spec.Scopes {
		all = append(all, corev1.ScopedResourceSelectorRequirement{ScopeName: name, Operator: corev1.ScopeSelectorOpExists})
	}
	if q.Spec.ScopeSelector != nil {
		all = append(all, q.Spec.ScopeSelector.MatchExpressions...)
	}
	return all
}

// inAll reports whether an object is in every scope.
func inAll[T any](object T, scopes []corev1.ScopedResourceSelectorRequirement, in func(T, corev1.ScopedResourceSelectorRequirement) bool) bool {
	return !slices.ContainsFunc(scopes, func(s corev1.ScopedResourceSelectorRequirement) bool { return !in(object, s) })
}

// selects reports whether a scope selects an object with these classes, or
// without any.
func selects(scope corev1.ScopedResourceSelectorRequirement, classes []string) bool {
	listed := func(class string) bool { return slices.Contains(scope.Values, class) }
	switch scope.Operator {
	case corev1.ScopeSelectorOpExists:
		return len(classes) > 0
	case corev1.ScopeSelectorOpDoesNotExist:
		return len(classes) == 0
	case corev1.ScopeSelectorOpIn:
		return slices.ContainsFunc(classes, listed)
	case corev1.ScopeSelectorOpNotIn:
		return len(classes) == 0 || slices.ContainsFunc(classes, func(class string) bool { return !listed(class) })
	default:
		return false
	}
}

// classesOf are the names that are not empty, each once.
func classesOf(names ...string) []string {
	names = slices.DeleteFunc(names, func(name string) bool { return name == "" })
	slices.Sort(names)
	return slices.Compact(names)
}
