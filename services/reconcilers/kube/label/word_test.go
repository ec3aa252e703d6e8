package label

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

// A word is what the library takes for a value of a label, of each character at each place.
func TestWordsAreTheLibrarysValues(t *testing.T) {
	texts := []string{"", strings.Repeat("a", 63), strings.Repeat("a", 64)}
	for c := range 256 {
		for _, form := range []string{"?", "a?", "?a", "a?a", "-?", "?-", "a-?a"} {
			texts = append(texts, strings.ReplaceAll(form, "?", string([]byte{byte(c)})))
		}
	}
	for _, text := range texts {
		if got, want := word(text), len(validation.IsValidLabelValue(text)) == 0; got != want {
			t.Errorf("%q is a word: %t, want %t", text, got, want)
		}
	}
}
