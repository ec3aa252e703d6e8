package label_test

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/services/reconcilers/kube/label"
)

func TestSelector(t *testing.T) {
	web := map[string]string{"app": "web"}
	for what, c := range map[string]struct {
		selector *metav1.LabelSelector
		ok       bool
		matches  bool // app=web
	}{
		"matching": {&metav1.LabelSelector{MatchLabels: web}, true, true},
		"other":    {&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, true, false},
		"of both forms": {&metav1.LabelSelector{
			MatchLabels:      web,
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpExists}},
		}, true, false},
		"none":      {nil, false, false},
		"empty":     {&metav1.LabelSelector{}, false, false},
		"malformed": {&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Like"}}}, false, false},
	} {
		selector, ok := label.Selector(c.selector)
		if ok != c.ok || selector.Matches(labels.Set(web)) != c.matches {
			t.Errorf("%s: ok %v, matches %v", what, ok, selector.Matches(labels.Set(web)))
		}
		if got := label.Selects(c.selector, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: web}}); got != c.matches {
			t.Errorf("%s: selects %v", what, got)
		}
	}
}

// A selector is what the library makes of it, also where it need not look closely.
func TestSelectorsAreTheLibrarys(t *testing.T) {
	text := rapid.OneOf(rapid.StringMatching(`[a-zA-Z0-9._/ é-]{0,5}`), rapid.StringMatching(`[a-z0-9]{62,64}`))
	rapid.Check(t, func(t *rapid.T) {
		s := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(text, text, 0, 2).Draw(t, "labels")}
		want, err := metav1.LabelSelectorAsSelector(s)
		got, ok := label.Selector(s)
		if well := err == nil && !want.Empty(); ok != well || ok && (got.String() != want.String() || !got.Matches(labels.Set(s.MatchLabels))) {
			t.Fatalf("the selector is %v, %v, want %v, %v", got, ok, want, err)
		}
	})
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	original := map[string]string{"app": "web"}
	if got := label.With(original, "tier", "front"); len(got) != 2 || got["tier"] != "front" || got["app"] != "web" {
		t.Errorf("With = %v", got)
	}
	if got := label.With(nil, "tier", "front"); len(got) != 1 {
		t.Errorf("With of nothing = %v", got)
	}
	selector := &metav1.LabelSelector{MatchLabels: original}
	if got := label.SelectorWith(selector, "tier", "front").MatchLabels; len(got) != 2 {
		t.Errorf("SelectorWith = %v", got)
	}
	if got := label.SelectorWith(nil, "tier", "front").MatchLabels; len(got) != 1 {
		t.Errorf("SelectorWith of nothing = %v", got)
	}
	if !maps.Equal(original, map[string]string{"app": "web"}) || len(selector.MatchLabels) != 1 {
		t.Errorf("the originals are %v and %v now", original, selector)
	}
}

func TestCovers(t *testing.T) {
	have := map[string]string{"app": "web", "tier": ""}
	for _, c := range []struct {
		wanted map[string]string
		want   bool
	}{
		{nil, true},
		{map[string]string{"app": "web"}, true},
		{map[string]string{"tier": ""}, true},
		{map[string]string{"app": "db"}, false},
		{map[string]string{"zone": ""}, false},
	} {
		if got := label.Covers(have, c.wanted); got != c.want {
			t.Errorf("Covers(%v) = %v", c.wanted, got)
		}
	}
}

// A selector that is obviously well-formed skips the library's check, which took a twelfth
// of a turn. Any other is checked, and refused if the library refuses it.
func TestWhatIsPlainCostsNothing(t *testing.T) {
	long := strings.Repeat("a", 63)
	for text, c := range map[string]struct{ plain, ok bool }{
		"": {true, true}, "a": {true, true}, "z": {true, true}, "A": {true, true}, "Z": {true, true}, "0": {true, true}, "9": {true, true},
		"a-b": {true, true}, "a_b": {true, true}, "a.b": {true, true}, "a-.": {false, false}, "-a": {false, false}, "a-": {false, false},
		"a b": {false, false}, "a/b": {false, false}, "-": {false, false}, "`": {false, false}, "{": {false, false}, "@": {false, false}, "[": {false, false},
		":": {false, false}, long: {true, true}, long + "a": {false, false},
	} {
		s := &metav1.LabelSelector{MatchLabels: map[string]string{"app": text}}
		if _, ok := label.Selector(s); ok != c.ok {
			t.Errorf("app=%s is a selector: %v, want %v", text, ok, c.ok)
		}
		if n := testing.AllocsPerRun(20, func() { label.Selector(s) }); c.plain && n > 2 {
			t.Errorf("app=%s costs %v allocations", text, n)
		}
	}
}
