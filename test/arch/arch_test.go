package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTheTreeObeys(t *testing.T) {
	tree, err := Load(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(tree.Packages) < 10 || len(tree.Mods) < 6 {
		t.Fatalf("found %d packages in %d modules: not the whole repository", len(tree.Packages), len(tree.Mods))
	}
	for _, v := range Check(tree) {
		t.Error(v)
	}
}

// want is the expectation on a line: part of a violation's text. It is in a comment in Go and
// go.mod files, and in an HTML comment in Markdown.
var want = regexp.MustCompile(`(?://|<!--) want: (.*?)(?: -->)?$`)

// TestEveryRuleBites compares a small tree that breaks every rule with the expectations beside
// the broken lines: Check must find all of them, and nothing else.
func TestEveryRuleBites(t *testing.T) {
	root := filepath.Join("testdata", "bad")
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	expected := expectations(t, root)
	for _, v := range Check(tree) {
		place := fmt.Sprintf("%s:%d", v.File, v.Line)
		at := slices.IndexFunc(expected[place], func(text string) bool { return strings.Contains(v.Text, text) })
		if at < 0 {
			t.Errorf("unexpected violation: %v", v)
			continue
		}
		expected[place] = slices.Delete(expected[place], at, at+1)
	}
	for place, texts := range expected {
		for _, text := range texts {
			t.Errorf("%s: no violation with %q", place, text)
		}
	}
}

func expectations(t *testing.T, root string) map[string][]string {
	t.Helper()
	expected := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := want.FindStringSubmatch(line); m != nil {
				place := fmt.Sprintf("%s:%d", filepath.ToSlash(relative), i+1)
				expected[place] = append(expected[place], strings.Split(m[1], " & ")...)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(expected) < 20 {
		t.Fatalf("only %d expectations: the bad tree is incomplete", len(expected))
	}
	return expected
}

// TestLayersFindTheirPackages finds rules that have no effect because the packages that they
// name were renamed.
func TestLayersFindTheirPackages(t *testing.T) {
	tree, err := Load(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		if !slices.ContainsFunc(tree.Packages, func(p *Package) bool {
			found, _ := layerOf(p.Dir)
			return found.Name == l.Name
		}) {
			t.Errorf("no package is in layer %q any more (%s): the rule protects nothing", l.Name, strings.Join(l.Packages, ", "))
		}
	}
}

func TestSizesBite(t *testing.T) {
	function := func(lines int) string { return "func f() {\n" + strings.Repeat("\tf()\n", lines-2) + "}\n" }
	for _, c := range []struct {
		name, text string
		want       string // part of the only violation, or nothing
	}{
		{"services/writer/a.go", function(functionLines - 1), ""},
		{"services/writer/a.go", function(functionLines), "function f has 60 lines"},
		{"services/writer/a_test.go", function(functionLines), ""},
		{"services/writer/a.go", strings.Repeat("\n", fileLines-3), ""},
		{"services/writer/a.go", strings.Repeat("\n", fileLines-2), "file has 600 lines"},
		{"services/writer/a_test.go", strings.Repeat("\n", fileLines-2), "file has 600 lines"},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, c.name), "// Package writer is long.\npackage writer\n"+c.text)
		write(t, filepath.Join(root, chartFile), "# Map\n")
		tree, err := Load(root)
		if err != nil {
			t.Fatal(err)
		}
		found := Check(tree)
		if c.want == "" && len(found) > 0 || c.want != "" && (len(found) != 1 || !strings.Contains(found[0].Text, c.want)) {
			t.Errorf("%s with %d lines: %v, want %q", c.name, strings.Count(c.text, "\n"), found, c.want)
		}
	}
}

func TestTheMapIsThere(t *testing.T) {
	root := t.TempDir()
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	if found := Check(tree); len(found) != 1 || found[0].File != chartFile {
		t.Errorf("violations of a tree without a map: %v", found)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a/b", "a/b", true},
		{"a/b", "a/b/c", false},
		{"a/*", "a/b", true},
		{"a/*", "a/b/c", false},
		{"a/...", "a", true},
		{"a/...", "a/b/c", true},
		{"a/...", "ab", false},
	} {
		if got := match([]string{c.pattern}, c.name); got != c.want {
			t.Errorf("match(%q, %q) = %v", c.pattern, c.name, got)
		}
	}
}
