package resolve

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/services/reconcilers/controllers"
)

// MostNear is how many names are suggested in place of an unknown one.
const MostNear = 3

// Near are the names similar to a misspelt word, the nearest first, at most three: those at
// a small edit distance, and those that contain the word.
func Near(word string, names []string) []string {
	type candidate struct {
		name string
		far  int
	}
	word = strings.ToLower(word)
	var found []candidate
	for _, name := range names {
		lower := strings.ToLower(name)
		switch far := distance(word, lower); {
		case far <= max(1, min(3, len(word)/3)):
			found = append(found, candidate{name, far})
		case len(word) > 2 && strings.Contains(lower, word):
			found = append(found, candidate{name, len(lower)})
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.far, b.far), strings.Compare(a.name, b.name))
	})
	var near []string
	for _, c := range found {
		if !slices.Contains(near, c.name) && len(near) < MostNear {
			near = append(near, c.name)
		}
	}
	return near
}

// distance is the optimal string alignment distance of two words: how many letters have to be
// inserted, deleted, replaced or swapped with the next one.
func distance(a, b string) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := last[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, last[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// Meant is "did you mean", after a semicolon, with some names; empty without names.
func Meant(names []string) string {
	switch last := len(names) - 1; {
	case last < 0:
		return ""
	case last == 0:
		return "; did you mean " + names[0] + "?"
	default:
		return "; did you mean " + strings.Join(names[:last], ", ") + " or " + names[last] + "?"
	}
}

// Controller finds the catalogue entry with a name or an alias.
//
// Errors: there is none; the error has similar names.
func Controller(word string) (controllers.Entry, error) {
	e, ok := controllers.Find(word)
	if ok {
		return e, nil
	}
	var names []string
	for _, e := range controllers.Catalog() {
		names = append(append(names, e.Name), e.Aliases...)
	}
	return e, fmt.Errorf("%q is not in the list of known controllers%s", word, Meant(Near(word, names)))
}
