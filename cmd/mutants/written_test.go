package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tree writes a module with one function, which its test looks at in part.
func tree(t *testing.T) (root string, write func(name, text string)) {
	t.Helper()
	root = t.TempDir()
	write = func(name, text string) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/m\n\ngo 1.26\n")
	write("a/a.go", "package a\n\nfunc One() int { return 1 }\n\nfunc Two() int { return 2 }\n")
	write("a/a_test.go", "package a\n\nimport \"testing\"\n\nfunc TestOne(t *testing.T) {\n\tif One() != 1 {\n\t\tt.Error(\"no\")\n\t}\n}\n")
	return root, write
}

func brokenOne() mutant {
	return mutant{name: "a/one", file: "a/a.go", tests: []string{"./a"}, hunk: []string{"-func One() int { return 1 }", "+func One() int { return 3 }"}}
}

func brokenTwo() mutant {
	return mutant{name: "a/two", file: "a/a.go", tests: []string{"./a"}, hunk: []string{"-func Two() int { return 2 }", "+func Two() int { return 3 }"}}
}

// A mutant is killed by the test that fails, survives if none does, and is no mutant if it does not build.
func TestWrittenMutantsAreTried(t *testing.T) {
	t.Setenv("GOWORK", "off")
	root, _ := tree(t)
	bad := brokenTwo()
	bad.name, bad.hunk = "a/bad", []string{"-func Two() int { return 2 }", "+func Two() int { return }"}
	l := &lab{root: root, scratch: t.TempDir(), limit: time.Minute, measured: map[string]time.Duration{}}
	fates := map[string]string{}
	err := l.tryAll(t.Context(), []mutant{brokenOne(), brokenTwo(), bad}, 2, time.Now().Add(time.Hour), func(f finding) error {
		fates[f.name] = string(f.fate) + " " + f.by + " " + f.test
		return nil
	})
	if want := map[string]string{"a/one": "killed ./a TestOne", "a/two": "survived  ", "a/bad": "does not build  "}; err != nil || !cmp.Equal(fates, want) {
		t.Errorf("%v: %v, want %v", err, fates, want)
	}
	if l.took("./a") == 0 {
		t.Error("the tests were not run unbroken")
	}
	full := errors.New("the disk is full")
	if err := l.tryAll(t.Context(), []mutant{brokenOne()}, 1, time.Now().Add(time.Hour), func(finding) error { return full }); !errors.Is(err, full) {
		t.Errorf("a finding that cannot be kept: %v", err)
	}
	if err := l.tryAll(t.Context(), []mutant{brokenOne()}, 1, time.Now(), func(finding) error { return full }); err != nil {
		t.Errorf("one is begun when the time is over: %v", err)
	}
}

// Tests that fail with nothing broken notice nothing.
func TestNothingIsTriedWithTestsThatFail(t *testing.T) {
	t.Setenv("GOWORK", "off")
	root, write := tree(t)
	write("a/b_test.go", "package a\n\nimport \"testing\"\n\nfunc TestNever(t *testing.T) { t.Error(\"no\") }\n")
	l := &lab{root: root, scratch: t.TempDir(), limit: time.Minute, measured: map[string]time.Duration{}}
	if err := l.tryAll(t.Context(), []mutant{brokenOne()}, 1, time.Now().Add(time.Hour), func(finding) error { return nil }); err == nil {
		t.Error("a test that always fails kills a mutant")
	}
}

// A kill counts until the mutant, the code that it breaks, or the tests that noticed it change. What survived
// is tried again, what was never tried first.
func TestWhichWrittenMutantsAreLeft(t *testing.T) {
	root, write := tree(t)
	one, two, three := brokenOne(), brokenTwo(), brokenTwo()
	three.name = "a/three"
	all := []mutant{one, two, three}
	made := &writtenProof{Commit: "c", Tried: map[string]attempt{"a/gone": {Fate: killed}}}
	if err := errors.Join(made.add(root, finding{mutant: one, fate: killed, by: "./a", test: "TestOne", took: 1500 * time.Millisecond}, time.Unix(0, 0)),
		made.add(root, finding{mutant: two, fate: survived}, time.Unix(0, 0))); err != nil {
		t.Fatal(err)
	}
	left := func() (names []string) {
		t.Helper()
		some, err := made.left(root, all)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range some {
			names = append(names, m.name)
		}
		return names
	}
	is := func(what string, want ...string) {
		t.Helper()
		if got := left(); !slices.Equal(got, want) {
			t.Errorf("%s: %v are left, want %v", what, got, want)
		}
	}
	is("nothing has changed", "a/three", "a/two")
	if _, there := made.Tried["a/gone"]; there || made.Tried["a/one"].Commit != "c" || made.Tried["a/one"].Seconds != 1.5 {
		t.Errorf("remembered is %+v", made.Tried)
	}
	write("a/other.go", "package a\n")
	is("another file has changed", "a/three", "a/two")
	write("a/a_test.go", "package a\n")
	is("the tests have changed", "a/three", "a/one", "a/two")
	if err := made.add(root, finding{mutant: one, fate: killed, by: "./a"}, time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	is("it was tried again", "a/three", "a/two")
	all[0].hunk = []string{"-func One() int { return 1 }", "+func One() int { return 4 }"}
	is("the mutant has changed", "a/three", "a/one", "a/two")
	all[0] = one
	write("a/a.go", "package a\n\nfunc One() int { return 1 }\n\nfunc Two() int { return 22 }\n")
	is("the code has changed", "a/three", "a/one", "a/two")
}

// The score counts each mutant by its newest try; those that are not tried as they are now are told apart, and
// make the evidence incomplete.
func TestTheScoreOfWrittenMutants(t *testing.T) {
	one, two, three := mutant{name: "one"}, mutant{name: "two"}, mutant{name: "three"}
	made := &writtenProof{Tried: map[string]attempt{"one": {Fate: killed, Seconds: 2}, "two": {Fate: survived, Seconds: 3}, "three": {Fate: hung}}}
	made.score([]mutant{one, two, three}, nil, 66)
	if made.All.Mutants != 3 || made.All.Score != 66.6 || made.NotTried != 0 || made.Exit != 0 || made.Seconds != 5 || !slices.Equal(made.Survived, []string{"two"}) {
		t.Errorf("it is %+v", made)
	}
	if made.score([]mutant{one, two, three}, nil, 67); made.Exit != 1 {
		t.Error("too few are killed, and the evidence says all is well")
	}
	if made.score([]mutant{one, two, three}, []mutant{two}, 66); made.NotTried != 1 || made.All.Mutants != 2 || made.Exit != 1 || len(made.Survived) != 0 {
		t.Errorf("with one to be tried again it is %+v", made)
	}
}

// The evidence is read as it was written; a file that is not there has none, and another text is an error.
func TestWrittenEvidenceIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "written.json")
	if p, err := readWritten(file); err != nil || p.Tried == nil {
		t.Errorf("of no file it is %+v, %v", p, err)
	}
	if err := os.WriteFile(file, []byte(`{"tried":{"a":{"fate":"killed","inputs":"1"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := readWritten(file); err != nil || p.Tried["a"].Fate != killed || p.Tried["a"].Inputs != "1" {
		t.Errorf("it is %+v, %v", p, err)
	}
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readWritten(file); err == nil {
		t.Error("a text that is no evidence is taken")
	}
}
