// Package label answers questions about labels and selectors. It changes none of its
// arguments.
package label

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Selector returns an API selector, ready to match. ok is false for a selector that is
// malformed, missing or empty, and so selects nothing on purpose. No retry makes it
// better, so this is no error.
//
// Upstream: an empty selector is refused by the API's validation; should one
// creep in, it matches nothing, not everything.
func Selector(s *metav1.LabelSelector) (selector labels.Selector, ok bool) {
	if plain(s) {
		return labels.ValidatedSetSelector(s.MatchLabels), true
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if s == nil || err != nil || selector.Empty() {
		return labels.Nothing(), false
	}
	return selector, true
}

// plain reports whether a selector has only labels that are obviously well-formed. Nearly
// all do, and the library's check, by regular expressions, took a twelfth of a turn.
func plain(s *metav1.LabelSelector) bool {
	if s == nil || len(s.MatchLabels) == 0 || len(s.MatchExpressions) > 0 {
		return false
	}
	for key, value := range s.MatchLabels {
		if key == "" || !word(key) || !word(value) {
			return false
		}
	}
	return true
}

// word reports whether a string is a valid label value, or a label key without a prefix.
func word(s string) bool {
	for i := range len(s) {
		letter := 'a' <= s[i] && s[i] <= 'z' || 'A' <= s[i] && s[i] <= 'Z' || '0' <= s[i] && s[i] <= '9'
		inner := i > 0 && i < len(s)-1 && (s[i] == '-' || s[i] == '_' || s[i] == '.')
		if !letter && !inner {
			return false
		}
	}
	return len(s) <= validation.LabelValueMaxLength
}

// Selects reports whether an API selector matches an object's labels.
func Selects(s *metav1.LabelSelector, obj metav1.Object) bool {
	selector, ok := Selector(s)
	return ok && selector.Matches(labels.Set(obj.GetLabels()))
}

// With returns a copy of labels with one more.
func With(have map[string]string, key, value string) map[string]string {
	more := make(map[string]string, len(have)+1)
	maps.Copy(more, have)
	more[key] = value
	return more
}

// SelectorWith returns a copy of an API selector that requires one more label.
func SelectorWith(s *metav1.LabelSelector, key, value string) *metav1.LabelSelector {
	more := s.DeepCopy()
	if more == nil {
		more = &metav1.LabelSelector{}
	}
	more.MatchLabels = With(more.MatchLabels, key, value)
	return more
}

// Covers reports whether labels include all wanted labels, with their values.
func Covers(have, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}
