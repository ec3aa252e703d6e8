package operator

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/cmd/internal/localcluster/binaries"
)

var update = flag.Bool("update", false, "write what is broken in the sample to testdata")

const sample = `package sample

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const most = 3

type box struct {
	sync.Mutex
	n     int
	notes map[string]string
}

func (b *box) decide(of []string, wait time.Duration, ok bool) (bool, error) {
	b.Lock()
	defer b.Unlock()
	if len(of) > 2 || !ok && b.n == 0 {
		slog.Info("decided", "n", b.n+1)
		return false, fmt.Errorf("decide on %d: %w", len(of)-1, errors.New("no"))
	}
	for _, name := range of {
		if name == "" {
			continue
		}
		switch name {
		case "a", "b":
			b.notes[name] = "seen"
		}
	}
	wait += 5 * time.Second
	b.n = len(of) - 1
	clear(b.notes)
	if wait > time.Minute {
		return true, nil
	}
	return b.n < 0755, nil
}

var errEmpty = errors.New("empty")

func measure(of string, sure bool) (int, bool, error) {
	n, err := fmt.Sscan(of)
	if err != nil {
		return 0, false, err
	}
	if err == nil {
		return 0, sure, err
	}
	if of == "" {
		return 0, true, errEmpty
	}
	if n > 4 {
		return 1, false, fmt.Errorf("measure %d", n)
	}
	return 0, false, nil
}
`

// The breaks in a sample, by operator, and what stays unbroken: locks, logs, the text of an error, a
// permission, an append whose result is dropped, a 0 or false beside an error.
func TestWhatIsBroken(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module sample\n\ngo 1.26\n", "sample.go": sample} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOWORK", "off")
	all, err := Load(t.Context(), root, "./...")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, m := range all[0].Mutants {
		fmt.Fprintf(&got, "%s: %s -> %s\n", strings.TrimPrefix(m.Name, "sample.go:"), m.Before, m.After)
	}
	golden := filepath.Join("testdata", "sample.txt")
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(text) {
		t.Errorf("broken:\n%s\nwant\n%s", got.String(), text)
	}
}

// imports are the packages that the code under test imports, by path.
type imports map[string]*types.Package

func (i imports) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if p := i[path]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("no package imports %s", path)
}

// Every package compiles with all of its mutants in it, and no two mutants have the same name.
func TestSwitchedPackagesCompile(t *testing.T) {
	root, err := binaries.Checkout()
	if err != nil {
		t.Fatal(err)
	}
	all, err := Load(t.Context(), root, "./pkg/events/...", "./services/watcher/...", "./services/reconcilers/...", "./services/writer/...")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range all {
		for _, m := range p.Mutants {
			if names[m.Name] {
				t.Errorf("two mutants are %s", m.Name)
			}
			names[m.Name] = true
		}
		if len(p.Mutants) > 0 {
			compile(t, p)
		}
	}
	if len(names) < 20000 {
		t.Errorf("%d mutants: not the whole repository", len(names))
	}
}

func compile(t *testing.T, p *Package) {
	of := p.sources[0].pkg
	fset, files := token.NewFileSet(), []*ast.File{}
	for name, text := range p.Switched() {
		if filepath.Base(name) == "mutant_switches.go" {
			text = []byte("package " + of.Name + "\n\nfunc mutantIs(int) bool\n")
		}
		file, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Error(err)
			return
		}
		files = append(files, file)
	}
	known := imports{}
	for _, i := range of.Types.Imports() {
		known[i.Path()] = i
	}
	config := types.Config{Importer: known, Error: func(err error) { t.Error(err) }}
	_, _ = config.Check(of.PkgPath, fset, files, nil)
}
