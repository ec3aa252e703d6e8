package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
	"github.com/millrace/millrace/cmd/mutants/operator"
)

// Every mutant in equivalent.tsv still exists and has a reason; every directory whose tests run for another
// package has tests.
func TestTheTablesFitTheTree(t *testing.T) {
	root, err := binaries.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	f, err := newFactory(root, t.TempDir(), options{})
	if err != nil {
		t.Fatal(err)
	}
	var patterns []string
	for name := range f.equivalent {
		if p := "./" + filepath.Dir(strings.Split(name, ":")[0]); !slices.Contains(patterns, p) {
			patterns = append(patterns, p)
		}
	}
	names := map[string]bool{}
	if len(patterns) > 0 {
		packages, err := operator.Load(t.Context(), root, patterns...)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range packages {
			for _, m := range p.Mutants {
				names[m.Name] = true
			}
		}
	}
	for name := range f.equivalent {
		if !names[name] {
			t.Errorf("equivalent.tsv has %s, which no operator makes any more: look whether the code is still as the reason says, and name it anew", name)
		}
	}
	for dir, dirs := range f.further {
		if _, err := os.Stat(filepath.Join(root, dir)); err != nil {
			t.Errorf("further.tsv: %v", err)
		}
		for _, text := range dirs {
			if !thereIs(t, root, suiteOf(text)) {
				t.Errorf("further.tsv has the tests %s for %s: there are none", text, dir)
			}
		}
	}
}

// thereIs fails the test unless a suite has tests.
func thereIs(t *testing.T, root string, s *suite) bool {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, s.dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	only := regexp.MustCompile(s.only)
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(string(text), -1) {
			if only.MatchString(name[1]) {
				return true
			}
		}
	}
	return false
}

const (
	tiny = `package tiny

const Step = 2

func Cap(n int) int {
	if n > 10 {
		return 10
	}
	return n
}

func Down(n int) int {
	for n > 0 {
		n--
	}
	return n
}

func Unused(ok bool) bool { return ok }
`
	tinyTest = `package tiny

import "testing"

func TestCap(t *testing.T) {
	if Cap(20) != 10 || Cap(5) != 5 || Step != 2 {
		t.Error("not so")
	}
}

func TestDown(t *testing.T) {
	if Down(3) != 0 {
		t.Error("not so")
	}
}

func TestThatFailsByItself(t *testing.T) { t.Error("always") }
`
)

// tinyFactory has a module with one package.
func tinyFactory(t *testing.T) (*factory, *operator.Package) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "tiny.go": tiny, "tiny_test.go": tinyTest} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	packages, err := operator.Load(t.Context(), root, "./...")
	if err != nil {
		t.Fatal(err)
	}
	f := &factory{workshop: workshop{root, t.TempDir(), time.Second / 2}, jobs: 2, equivalent: map[string]string{"tiny.go:Cap:bound:1": "10 is 10"}}
	return f, packages[0]
}

// Each mutant of a package has the fate that the package's tests give it.
func TestFatesOfMutants(t *testing.T) {
	f, p := tinyFactory(t)
	outcomes, err := f.try(t.Context(), p, p.Mutants)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range outcomes {
		got[strings.TrimPrefix(o.Name, "tiny.go:")] = strings.TrimSpace(string(o.fate) + " " + o.by)
	}
	want := map[string]string{
		"Step:number:1": "killed TestCap",
		"Cap:negate:1":  "killed TestCap", "Cap:bound:1": "equivalent", "Cap:number:1": "survived", "Cap:leave:1": "killed TestCap", "Cap:number:2": "killed TestCap",
		"Down:negate:1": "killed TestDown", "Down:bound:1": "killed TestDown", "Down:number:1": "killed TestDown", "Down:sum:1": "hung",
		"Unused:negate:1": "uncovered",
	}
	if !maps.Equal(got, want) {
		t.Errorf("fates are\n%v, want\n%v", got, want)
	}
	if len(f.left) != 1 || !strings.HasSuffix(f.left[0], ":TestThatFailsByItself") {
		t.Errorf("left out: %v", f.left)
	}
	var made proof
	made.add(p.Dir, outcomes, 12, 20, 90)
	if all := made.All; len(made.Rows) != 1 || made.Exit != 1 || all != (row{Of: 20, NotTried: 1, Mutants: 11, Killed: 7, Hung: 1, Survived: 1, Uncovered: 1, Equivalent: 1, Score: 80}) {
		t.Errorf("the score is %+v", all)
	}
	var out bytes.Buffer
	made.tell(&out, outcomes)
	for _, line := range []string{"tiny.go:Cap:number:1 survived, line 6:\n-10\n+11\n", "tiny.go:Unused:negate:1 uncovered, line 19:"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("%q is missing in\n%s", line, out.String())
		}
	}
}

// A mutant that an earlier run killed must be killed again while its function is unchanged.
func TestWhatWasKilledSurvives(t *testing.T) {
	f, p := tinyFactory(t)
	var outcomes []outcome
	for _, m := range p.Mutants {
		o := outcome{Mutant: m, fate: survived}
		if strings.Contains(m.Name, ":Cap:negate") || strings.Contains(m.Name, ":Down:bound") {
			o.fate, o.by = killed, "TestCap"
		}
		outcomes = append(outcomes, o)
	}
	made := proof{Commit: "c0ffee"}
	made.add(p.Dir, outcomes, len(outcomes), len(outcomes), 90)
	text, err := json.Marshal(made)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mutants.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	before, err := readEarlier(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readEarlier(file + "*x"); err == nil {
		t.Error("without evidence there is something to compare with")
	}
	some := before.comparable(chosen([]*operator.Package{p}, regexp.MustCompile("")))
	if len(some[p]) != 2 {
		t.Fatalf("comparable are %v", some[p])
	}
	var out bytes.Buffer
	until := time.Now().Add(time.Hour)
	// Another test than before kills Down:bound. The test that always fails would kill every mutant, so it is
	// removed.
	text = []byte(strings.Replace(tinyTest, `t.Error("always")`, "", 1))
	if err := os.WriteFile(filepath.Join(f.root, "tiny_test.go"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.again(t.Context(), &out, before, some, until); err != nil {
		t.Errorf("%v:\n%s", err, out.String())
	}
	text = bytes.ReplaceAll(text, []byte("Cap(5) != 5"), []byte("Cap(20) == 5"))
	text = bytes.ReplaceAll(text, []byte("Cap(20) != 10"), []byte("Cap(20) == 11"))
	if err := os.WriteFile(filepath.Join(f.root, "tiny_test.go"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	err = f.again(t.Context(), &out, before, some, until)
	if !errors.Is(err, errSurvived) || !strings.Contains(out.String(), "tiny.go:Cap:negate:1 survives, and was killed by TestCap at c0ffee") {
		t.Errorf("%v:\n%s", err, out.String())
	}
	before = earlier{"tiny.go:Cap:negate:1@another": {"TestCap", "c0ffee"}}
	if some := before.comparable(chosen([]*operator.Package{p}, regexp.MustCompile(""))); len(some) != 0 {
		t.Errorf("a function that has changed is compared: %v", some)
	}
}

// The same seed draws the same sample, another seed another one.
func TestASampleIsDrawnByItsSeed(t *testing.T) {
	all := map[*operator.Package][]operator.Mutant{}
	for _, dir := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		p := &operator.Package{Dir: dir}
		for _, name := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
			all[p] = append(all[p], operator.Mutant{Name: dir + name, Dir: dir})
		}
	}
	names := func(seed uint64) (drawn []string) {
		for _, mutants := range draw(all, 7, 4, seed) {
			for _, m := range mutants {
				drawn = append(drawn, m.Name)
			}
		}
		slices.Sort(drawn)
		return drawn
	}
	if a, b := names(1), names(1); len(a) != 7 || !slices.Equal(a, b) {
		t.Errorf("one seed draws %v and %v", a, b)
	}
	if a, b := names(1), names(2); slices.Equal(a, b) {
		t.Errorf("two seeds draw %v", a)
	}
	if got := today(time.Date(2027, 3, 9, 23, 0, 0, 0, time.UTC)); got != 20270309 {
		t.Errorf("the seed of a day is %d", got)
	}
}

// A sample of all packages has mutants of each, and more of the larger ones.
func TestASampleOfAllPackages(t *testing.T) {
	all := map[*operator.Package][]operator.Mutant{}
	for dir, n := range map[string]int{"tiny": 3, "small": 40, "large": 400, "larger": 800} {
		p := &operator.Package{Dir: dir}
		for i := range n {
			all[p] = append(all[p], operator.Mutant{Name: fmt.Sprint(dir, i), Dir: dir})
		}
	}
	names := func(seed uint64) (drawn []string, of map[string]int) {
		of = map[string]int{}
		for p, mutants := range drawFromAll(all, 100, seed) {
			of[p.Dir] = len(mutants)
			for _, m := range mutants {
				drawn = append(drawn, m.Name)
			}
		}
		slices.Sort(drawn)
		return slices.Compact(drawn), of
	}
	a, of := names(1)
	if want := map[string]int{"tiny": 3, "small": 5, "large": 32, "larger": 64}; !maps.Equal(of, want) || len(a) != 104 {
		t.Errorf("%d mutants are drawn, of each package %v, want %v", len(a), of, want)
	}
	if b, _ := names(1); !slices.Equal(a, b) {
		t.Errorf("one seed draws %v and %v", a, b)
	}
	if b, _ := names(2); slices.Equal(a, b) {
		t.Errorf("two seeds draw %v", a)
	}
}

// Suites of other packages run only for mutants that the own tests do not notice.
func TestFurtherTestsAreAskedLast(t *testing.T) {
	f, p := tinyFactory(t)
	further := filepath.Join(f.root, "further")
	if err := os.Mkdir(further, 0o700); err != nil {
		t.Fatal(err)
	}
	text := "package further\n\nimport (\n\t\"testing\"\n\n\t\"tiny\"\n)\n\n" +
		"func TestUnused(t *testing.T) {\n\tif !tiny.Unused(true) || tiny.Cap(20) != 10 {\n\t\tt.Error(\"not so\")\n\t}\n}\n"
	if err := os.WriteFile(filepath.Join(further, "further_test.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f.further = map[string][]string{p.Dir: {"further"}}
	outcomes, err := f.try(t.Context(), p, p.Mutants)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, o := range outcomes {
		got[strings.TrimPrefix(o.Name, "tiny.go:")] = strings.TrimSpace(string(o.fate) + " " + o.by)
	}
	for name, want := range map[string]string{"Unused:negate:1": "killed further TestUnused", "Cap:negate:1": "killed TestCap", "Cap:number:1": "survived"} {
		if got[name] != want {
			t.Errorf("%s is %s, want %s", name, got[name], want)
		}
	}
}

// A package whose tests take longer than its time is not tried but reported as too slow, and none of its
// mutants counts.
func TestASlowPackageIsNotTried(t *testing.T) {
	f, p := tinyFactory(t)
	f.each = time.Nanosecond
	if outcomes, err := f.try(t.Context(), p, p.Mutants); !errors.Is(err, errSlow) || len(outcomes) > 0 {
		t.Errorf("it is tried: %v, %v", outcomes, err)
	}
	var made proof
	err := f.tryAll(t.Context(), map[*operator.Package][]operator.Mutant{p: p.Mutants}, map[*operator.Package][]operator.Mutant{p: p.Mutants}, &made, options{time: time.Hour})
	if err != nil || !slices.Equal(made.TooSlow, []string{p.Dir}) || len(made.Rows) > 0 {
		t.Errorf("the evidence has %+v, %v", made, err)
	}
}

// A stopped run continues where it was, at the same commit and with the same sample only.
func TestARunGoesOn(t *testing.T) {
	before := proof{Commit: "c0ffee", Sample: 10, Seed: 7}
	before.add("a", []outcome{{Mutant: operator.Mutant{Name: "a.go:F:drop:1", File: "a.go"}, fate: killed, by: "TestF"}}, 1, 3, 90)
	file := filepath.Join(t.TempDir(), "mutants.json")
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		run proof
		has bool
	}{
		{proof{Commit: "c0ffee", Sample: 10, Seed: 7}, true}, {proof{Commit: "c0ffee", Sample: 10, Seed: 8}, false},
		{proof{Commit: "c0ffee", Sample: 11, Seed: 7}, false}, {proof{Commit: "decaf", Sample: 10, Seed: 7}, false},
	} {
		run := c.run
		if err := run.goOn(file); err != nil || run.has("a") != c.has {
			t.Errorf("%+v goes on with what was tried: %v, %v", c.run, run.has("a"), err)
		}
		if run.add("b", nil, 0, 2, 90); c.has && (run.All.Killed != 1 || run.All.Of != 5) {
			t.Errorf("the score is %+v", run.All)
		}
	}
	if run := (proof{}); run.goOn(filepath.Join(t.TempDir(), "none")) != nil || len(run.Rows) > 0 {
		t.Errorf("of nothing %+v", run)
	}
}
