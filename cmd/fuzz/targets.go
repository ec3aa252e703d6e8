package main

import (
	"bytes"
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// target is one fuzz test.
type target struct {
	dir  string // of its package, relative to the root of the repository
	name string
}

func (t target) String() string { return t.dir + ":" + t.name }

// targets returns the targets of all modules of the workspace, sorted by directory and name.
//
// Errors: the go command does not know the workspace; a test file cannot be read.
func targets(ctx context.Context, root string) ([]target, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	list.Dir = root
	modules, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the modules of the workspace: %w", err)
	}
	var all []target
	for _, module := range strings.Fields(string(modules)) {
		err := filepath.WalkDir(module, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case e.IsDir() && (e.Name() == "testdata" || path != module && there(path, "go.mod")):
				return fs.SkipDir
			case e.IsDir() || !strings.HasSuffix(path, "_test.go"):
				return nil
			}
			names, err := fuzzers(path)
			if err != nil {
				return err
			}
			dir, err := filepath.Rel(root, filepath.Dir(path))
			for _, name := range names {
				all = append(all, target{filepath.ToSlash(dir), name})
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("find the fuzz targets of %s: %w", module, err)
		}
	}
	slices.SortFunc(all, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

func there(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// fuzzers returns the names of the fuzz tests in a file.
func fuzzers(path string) (names []string, err error) {
	text, err := os.ReadFile(path)
	if err != nil || !bytes.Contains(text, []byte("func Fuzz")) {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Fuzz") {
			names = append(names, f.Name.Name)
		}
	}
	return names, nil
}

// choose returns the targets that match. If slice is not 0, it returns that many consecutive ones of them,
// and the next ones the next day; 0 means all.
func choose(all []target, only *regexp.Regexp, slice int, now time.Time) []target {
	var chosen []target
	for _, t := range all {
		if only.MatchString(t.String()) {
			chosen = append(chosen, t)
		}
	}
	if slice <= 0 || slice >= len(chosen) {
		return chosen
	}
	const day = 24 * 60 * 60
	first := int(now.Unix() / day * int64(slice) % int64(len(chosen)))
	chosen = append(chosen[first:], chosen[:first]...)[:slice]
	slices.SortFunc(chosen, func(a, b target) int { return strings.Compare(a.String(), b.String()) })
	return chosen
}
