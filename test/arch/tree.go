package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Tree is the source of a repository, parsed.
type Tree struct {
	Root     string
	Fset     *token.FileSet
	Packages []*Package // sorted by directory
	Mods     []string   // go.mod files, slash-separated and relative to Root, sorted
}

// Package is the Go files of a directory.
type Package struct {
	// Dir is slash-separated and relative to the root; with the module's prefix
	// it is the import path.
	Dir   string
	Files []*File
}

// File is one Go file.
type File struct {
	Name  string // slash-separated and relative to the root
	AST   *ast.File
	Lines int
	Test  bool
	// Generated files obey only the rules of imports.
	Generated bool
}

// Load parses every Go file below root.
//
// Errors: a file cannot be read or is not Go.
func Load(root string) (*Tree, error) {
	t := &Tree{Root: root, Fset: token.NewFileSet()}
	byDir := map[string]*Package{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && (slices.Contains(skipped, d.Name()) || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "_")) {
				return fs.SkipDir
			}
			return nil
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		relative = filepath.ToSlash(relative)
		switch {
		case d.Name() == "go.mod":
			t.Mods = append(t.Mods, relative)
		case strings.HasSuffix(name, ".go"):
			return t.add(byDir, relative)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load the tree at %s: %w", root, err)
	}
	for _, p := range byDir {
		t.Packages = append(t.Packages, p)
	}
	slices.SortFunc(t.Packages, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return t, nil
}

func (t *Tree) add(byDir map[string]*Package, name string) error {
	text, err := os.ReadFile(filepath.Join(t.Root, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	file, err := parser.ParseFile(t.Fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	dir := path.Dir(name)
	p := byDir[dir]
	if p == nil {
		p = &Package{Dir: dir}
		byDir[dir] = p
	}
	p.Files = append(p.Files, &File{
		Name: name, AST: file, Lines: strings.Count(string(text), "\n"),
		Test: strings.HasSuffix(name, "_test.go"), Generated: ast.IsGenerated(file),
	})
	return nil
}

// exists reports whether a path is a file or directory of the tree.
func (t *Tree) exists(name string) bool {
	_, err := os.Stat(filepath.Join(t.Root, filepath.FromSlash(name)))
	return err == nil
}

// match reports whether an import path, ours without the module's prefix, fits one
// of the patterns.
func match(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if prefix, all := strings.CutSuffix(pattern, "/..."); all {
			return name == prefix || strings.HasPrefix(name, prefix+"/")
		}
		fits, err := path.Match(pattern, name)
		return err == nil && fits
	})
}
