package arch

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestGivenUpWords: no word that the project has given up comes into use again, and the table
// has the number of places that still use it.
func TestGivenUpWords(t *testing.T) {
	table := filepath.Join("testdata", "words.tsv")
	words, err := ReadWords(table)
	if err != nil {
		t.Fatal(err)
	}
	places, err := CountWords(filepath.Join("..", ".."), words)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("UPDATE_WORDS") != "" {
		if err := WriteWords(table, places); err != nil {
			t.Fatal(err)
		}
		return
	}
	for _, w := range words {
		switch found := places[w.Pattern]; {
		case len(found) > w.Most:
			t.Errorf("%q stands in %d places, %d more than before: say %q. The first 30 are\n\t%s", w.Pattern, len(found), len(found)-w.Most, w.Instead, strings.Join(found[:min(len(found), 30)], "\n\t"))
		case len(found) < w.Most:
			t.Errorf("%q stands in %d places, and %s says %d: UPDATE_WORDS=1 go test ./test/arch -run TestGivenUpWords lowers it", w.Pattern, len(found), table, w.Most)
		}
	}
}

// TestWordsAreFound: in comments, texts, identifiers and documents, as whole words and in any
// case.
func TestWordsAreFound(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "// Wigwam is in tent.\ntype wigwamOf struct{ TwoWigwams int } // indeed, no wigwamtop\n\nconst said = \"Yonder's wigwam\"\n")
	write("docs/b.md", "A wigwam, and a\nwigwam_of in\ntent")
	write("testdata/c.go", "wigwam")
	write(".hidden/d.md", "wigwam")
	write("e.txt", "wigwam")
	words := []Word{{Pattern: "wigwams?"}, {Pattern: "in tent"}, {Pattern: "whither|yonder"}}
	got, err := CountWords(root, words)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"wigwams?":       {"a.go:1", "a.go:2", "a.go:2", "a.go:4", "docs/b.md:1", "docs/b.md:2"},
		"in tent":        {"a.go:1"},
		"whither|yonder": {"a.go:4"},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("found %v, want %v", got, want)
	}
	if _, err := CountWords(root, []Word{{Pattern: "("}}); err == nil {
		t.Error("a pattern that cannot be read is taken")
	}
}

// TestTheTableOfWords: it is read as it is written, no number in it rises, and an invalid row is an error.
func TestTheTableOfWords(t *testing.T) {
	table := filepath.Join(t.TempDir(), "words.tsv")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(table, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("# the words\nwigwams?\tengine\t7\n\nin tent\tindoors\t1\nteh\tthe\t1\n")
	if err := WriteWords(table, map[string][]string{"wigwams?": {"a.go:1", "a.go:2"}, "teh": {"a.go:1", "a.go:2"}}); err != nil {
		t.Fatal(err)
	}
	words, err := ReadWords(table)
	if want := []Word{{"wigwams?", "engine", 2}, {"in tent", "indoors", 0}, {"teh", "the", 1}}; err != nil || !slices.Equal(words, want) {
		t.Errorf("it has %v (%v), want %v", words, err, want)
	}
	for _, bad := range []string{"wigwams?\tengine", "wigwams?\tengine\tmany", "wigwams?\tengine\t1\t2"} {
		write(bad)
		if _, err := ReadWords(table); err == nil {
			t.Errorf("%q is taken for a row", bad)
		}
	}
	if _, err := ReadWords(table + ".none"); err == nil {
		t.Error("a table that is not there is read")
	}
}
