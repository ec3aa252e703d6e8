package arch

import (
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	promised = regexp.MustCompile(`within (?:(\d+) s|half a minute)(?:, (\d+) s)*|no pause over (\d+) s`)
	seconds  = regexp.MustCompile(`(\d+) s\b|half a minute`)
	shownBy  = regexp.MustCompile("`([a-z]+)\\.(Test\\w+|\\*)`")
)

// promise is a row of docs/reliability.md's table that promises times.
type promise struct {
	text  string
	times []time.Duration
	tests [][2]string // package and test; the test * is any test of the package
}

// promises are the rows of a page's table of promises that name times.
func promises(page string) (all []promise) {
	_, table, _ := strings.Cut(page, "## What is promised")
	table, _, _ = strings.Cut(table, "\n## ")
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		if len(columns) != 5 {
			continue
		}
		p := promise{text: strings.TrimSpace(columns[2])}
		for _, said := range promised.FindAllString(p.text, -1) {
			for _, m := range seconds.FindAllStringSubmatch(said, -1) {
				n, err := strconv.Atoi(m[1])
				if err != nil {
					n = 30 // half a minute
				}
				p.times = append(p.times, time.Duration(n)*time.Second)
			}
		}
		for _, m := range shownBy.FindAllStringSubmatch(columns[3], -1) {
			p.tests = append(p.tests, [2]string{m[1], m[2]})
		}
		if len(p.times) > 0 {
			all = append(all, p)
		}
	}
	return all
}

// TestPromisedTimesAreTested: a time that docs/reliability.md promises is a constant of the
// test that the row names for it. If a row has several times, each belongs to the test at the
// same position.
func TestPromisedTimesAreTested(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, "docs", "reliability.md"))
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Load(root)
	if err != nil {
		t.Fatal(err)
	}
	found := promises(string(page))
	if len(found) < 6 {
		t.Errorf("%d rows promise a time: the table is not read", len(found))
	}
	for _, p := range found {
		if len(p.times) != 1 && len(p.times) != len(p.tests) {
			t.Errorf("%q: %d times and %d tests", p.text, len(p.times), len(p.tests))
			continue
		}
		for i, test := range p.tests {
			if want := p.times[i%len(p.times)]; !tree.uses(test[0], test[1], want) {
				t.Errorf("%q: %s.%s uses no constant of %v", p.text, test[0], test[1], want)
			}
		}
	}
}

// uses reports whether a test refers to a constant of a duration, directly or through functions
// of its package.
func (t *Tree) uses(name, test string, want time.Duration) bool {
	for _, p := range t.Packages {
		if path.Base(p.Dir) != name {
			continue
		}
		constants, refers := map[string]bool{}, map[string]map[string]bool{}
		for _, f := range p.Files {
			ast.Inspect(f.AST, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec:
					for i, v := range n.Values {
						if duration(v) == want {
							constants[n.Names[i].Name] = true
						}
					}
				case *ast.FuncDecl:
					refers[n.Name.Name] = names(n, refers[n.Name.Name])
				}
				return true
			})
		}
		for function := range refers {
			if strings.HasPrefix(function, "Test") && (test == "*" || function == test) && reaches(function, refers, constants, map[string]bool{}) {
				return true
			}
		}
	}
	return false
}

// names are the identifiers in a function, together with the known ones of other functions of
// its name.
func names(of ast.Node, known map[string]bool) map[string]bool {
	all := map[string]bool{}
	for name := range known {
		all[name] = true
	}
	ast.Inspect(of, func(n ast.Node) bool {
		if i, is := n.(*ast.Ident); is {
			all[i.Name] = true
		}
		return true
	})
	return all
}

// reaches reports whether a function refers to one of the constants.
func reaches(function string, refers map[string]map[string]bool, constants, seen map[string]bool) bool {
	seen[function] = true
	for name := range refers[function] {
		if constants[name] || refers[name] != nil && !seen[name] && reaches(name, refers, constants, seen) {
			return true
		}
	}
	return false
}

// duration is the value of 30 * time.Second and its like; 0 for anything else.
func duration(e ast.Expr) time.Duration {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		return map[string]time.Duration{"Second": time.Second, "Minute": time.Minute}[e.Sel.Name]
	case *ast.BinaryExpr:
		factor, is := e.X.(*ast.BasicLit)
		if !is || e.Op != token.MUL || factor.Kind != token.INT {
			return 0
		}
		n, err := strconv.Atoi(factor.Value)
		if err != nil {
			return 0
		}
		return time.Duration(n) * duration(e.Y)
	default:
		return 0
	}
}

// TestAPromiseWithoutATestIsFound: a promised time that no test uses is reported.
func TestAPromiseWithoutATestIsFound(t *testing.T) {
	const page = "## What is promised\n\n| whatever | promise | shown by |\n|---|---|---|\n" +
		"| it dies | its work goes on within 7 s | `system.TestFailover` |\n| it dies | its work goes on | `system.TestStall` |\n\n## Else\n"
	found := promises(page)
	if len(found) != 1 || len(found[0].times) != 1 || found[0].times[0] != 7*time.Second || len(found[0].tests) != 1 {
		t.Fatalf("the page promises %+v", found)
	}
	tree, err := Load(filepath.Join("..", "..", "test", "system"))
	if err != nil {
		t.Fatal(err)
	}
	tree.Packages[0].Dir = "system"
	for want, is := range map[time.Duration]bool{7 * time.Second: false, time.Second: true} {
		if tree.uses("system", "TestFailover", want) != is {
			t.Errorf("TestFailover uses a constant of %v: %t", want, !is)
		}
	}
}

// TestWhatRunsAloneIsSaidOnce: the Makefile runs alone exactly the tests of test/system that
// ask for the machine for themselves, torture, and the test of watchers that die.
func TestWhatRunsAloneIsSaidOnce(t *testing.T) {
	root := filepath.Join("..", "..")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile(`(?m)^ALONE := \^Test\(([\w|]+)\)\$\$$`).FindSubmatch(makefile)
	if said == nil {
		t.Fatal("the Makefile does not say what runs alone")
	}
	tree, err := Load(filepath.Join(root, "test", "system"))
	if err != nil {
		t.Fatal(err)
	}
	asks := map[string]bool{"Torture": true, "WatcherAgainstARealAPIServer": true} // these have clusters of their own
	for _, f := range tree.Packages[0].Files {
		for _, d := range f.AST.Decls {
			if fn, is := d.(*ast.FuncDecl); is && strings.HasPrefix(fn.Name.Name, "Test") && names(fn, nil)["alone"] {
				asks[strings.TrimPrefix(fn.Name.Name, "Test")] = true
			}
		}
	}
	for _, name := range strings.Split(string(said[1]), "|") {
		if !asks[name] {
			t.Errorf("Test%s runs alone, and does not ask for it", name)
		}
		delete(asks, name)
	}
	for name := range asks {
		t.Errorf("Test%s asks to run alone, and the Makefile does not know", name)
	}
}
