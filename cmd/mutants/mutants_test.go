package main

import (
	"bytes"
	"errors"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

// Every mutant fits the tree: the text that it replaces occurs once, the result is Go, and the tests that it
// names exist. A change of the code that makes a mutant stale has to update the mutant.
func TestEveryMutantFitsTheTree(t *testing.T) {
	root, err := binaries.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	all, err := catalogue(root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fitting(root, all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 60 {
		t.Errorf("%d mutants, want at least 60", len(all))
	}
	for _, m := range all {
		text, err := m.broken(root)
		if err != nil {
			t.Error(err)
			continue
		}
		formatted, err := format.Source(text)
		if err != nil {
			t.Errorf("%s: mutant %s is not Go: %v", m.at, m.name, err)
		} else if !bytes.Equal(formatted, text) {
			t.Errorf("%s: mutant %s is not as gofmt would have it", m.at, m.name)
		}
		for _, name := range m.tests {
			s := stepOf(name)
			dir := strings.TrimSuffix(s.args[0], "/...")
			if tests, err := filepath.Glob(filepath.Join(root, s.dir, dir, "*_test.go")); err != nil || len(tests) == 0 && !strings.HasSuffix(s.args[0], "/...") {
				t.Errorf("%s: mutant %s names the tests of %s, where there are none", m.at, m.name, name)
			}
		}
	}
}

const sample = `# What this is about.
tests ./a sim

mutant one
file   a/a.go
like   a slip
-	if a < b {
+	if a <= b {
 		return

mutant two
file   a/a.go
like   another slip
tests  ./b
-	x()
`

func TestParse(t *testing.T) {
	all, err := parse("area.txt", sample)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].name != "area/one" || all[1].at != "area.txt:11" {
		t.Fatalf("read %+v", all)
	}
	if got, want := all[0].after(), "\tif a <= b {\n\t\treturn\n"; got != want {
		t.Errorf("after is %q, want %q", got, want)
	}
	if !slices.Equal(all[0].tests, []string{"./a", "sim"}) || !slices.Equal(all[1].tests, []string{"./b"}) {
		t.Errorf("tests are %q and %q", all[0].tests, all[1].tests)
	}
	for name, text := range map[string]string{
		"no hunk":       "tests ./a\nmutant x\nfile a.go\nlike y\n",
		"no change":     "tests ./a\nmutant x\nfile a.go\nlike y\n same\n",
		"no tests":      "mutant x\nfile a.go\nlike y\n-gone\n",
		"no file":       "tests ./a\nmutant x\nlike y\n-gone\n",
		"a strange one": "tests ./a\nmutant x\nflie a.go\nlike y\n-gone\n",
		"no mutant":     "file a.go\n",
		"late tests":    "tests ./a\nmutant x\nfile a.go\nlike y\n-gone\n\ntests ./b\n\nmutant z\nfile a.go\nlike y\n-gone\n",
	} {
		if _, err := parse("area.txt", text); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A mutant that fits nowhere, or in two places, is refused by name.
func TestStaleMutants(t *testing.T) {
	root := t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "a.go"), []byte("one\nof two\ntwo\none\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, fits := range map[string]bool{"one": false, "two": true, "of": false, "three": false} {
		m := mutant{name: "area/x", file: "a.go", hunk: []string{"-" + line}}
		text, err := m.broken(root)
		if fits && (err != nil || string(text) != "one\nof two\none\n") {
			t.Errorf("%q: %q, %v", line, text, err)
		}
		if !fits && (err == nil || !strings.Contains(err.Error(), "area/x")) {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestTheReportCounts(t *testing.T) {
	some := func(fates ...fate) (all []finding) {
		for _, f := range fates {
			all = append(all, finding{mutant: mutant{name: "a/" + string(f), hunk: []string{"-gone"}}, fate: f})
		}
		return all
	}
	var out bytes.Buffer
	if err := report(&out, some(killed, hung, killed, survived), 75); err != nil {
		t.Error(err)
	}
	if text := out.String(); !strings.HasSuffix(text, "killed 3 of 4 (75.0 %)\n") || !strings.Contains(text, "-gone") {
		t.Errorf("printed %s", text)
	}
	if err := report(&out, some(killed, survived), 95); !errors.Is(err, errSurvived) {
		t.Errorf("half of them survive: %v", err)
	}
	if err := report(&out, some(killed, misbuilt), 50); err == nil || errors.Is(err, errSurvived) {
		t.Errorf("a mutant does not build: %v", err)
	}
}

func TestFirstFailure(t *testing.T) {
	for out, want := range map[string]string{
		"ok\n--- FAIL: TestA (0.01s)\n    --- FAIL: TestA/b\n": "TestA",
		"panic: nil map\n\ngoroutine 1":                        "nil map",
		"FAIL\n":                                               "",
	} {
		if got := firstFailure(out); got != want {
			t.Errorf("%q: %q, want %q", out, got, want)
		}
	}
}
