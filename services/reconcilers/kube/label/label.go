// Package label answers questions about labels and selectors. Nothing in it
// changes what it is given.
package label

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Selector is an API selector, ready to match. ok is false when it can select
// nothing that anyone meant: it is malformed, missing or empty. No retry makes such a
// selector better, so it is a value and not an error.
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

// plain tells whether a selector asks for labels that are well formed at first sight.
// Nearly all do, and the library's look, by regular expressions, was a twelfth of a turn.
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

// word tells whether something is a label's value, or its key without a prefix.
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

// Selects tells whether an API selector matches an object's labels.
func Selects(s *metav1.LabelSelector, obj metav1.Object) bool {
	selector, ok := Selector(s)
	return ok && selector.Matches(labels.Set(obj.GetLabels()))
}

// With is a copy of labels with one more.
func With(have map[string]string, key, value string) map[string]string {
	more := make(map[string]string, len(have)+1)
	maps.Copy(more, have)
	more[key] = value
	return more
}

// SelectorWith is a copy of an API selector that asks for one more label.
func SelectorWith(s *metav1.LabelSelector, key, value string) *metav1.LabelSelector {
	more := s.DeepCopy()
	if more == nil {
		more = &metav1.LabelSelector{}
	}
	more.MatchLabels = With(more.MatchLabels, key, value)
	return more
}

// Covers tells whether labels have every label that is wanted, with its value.
func Covers(have, wanted map[string]string) bool {
	for key, value := range wanted {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}
