package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// names checks the name of a package.
func (c *checker) names(p *Package) {
	name := strings.TrimSuffix(p.Files[0].AST.Name.Name, "_test")
	for _, n := range []string{name, path.Base(p.Dir)} {
		if slices.Contains(banned, n) {
			c.report(p.Files[0].AST.Name, "package %s is called %q: a package is a noun that one would say aloud", p.Dir, n)
			return
		}
	}
}

// packageDoc checks that a package has a package comment. In a directory with only test files,
// one of them has it.
func (c *checker) packageDoc(p *Package) {
	for _, f := range p.Files {
		if f.AST.Doc != nil && strings.TrimSpace(f.AST.Doc.Text()) != "" {
			return
		}
	}
	c.report(p.Files[0].AST.Name, "package %s has no package comment: a reader starts there", p.Dir)
}

// style checks sizes, comments and initialisers of one file.
func (c *checker) style(f *File) {
	if f.Generated {
		return
	}
	if f.Lines >= fileLines {
		c.report(f.AST.Name, "file has %d lines, not less than %d: a file is a paragraph of the story", f.Lines, fileLines)
	}
	c.words(f)
	if f.Test {
		return
	}
	for _, decl := range f.AST.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			c.function(d)
		case *ast.GenDecl:
			if f.AST.Name.Name != "main" {
				c.declaration(d)
			}
		}
	}
}

// words looks for tests that skip themselves, and for error texts without information.
func (c *checker) words(f *File) {
	ast.Inspect(f.AST, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && f.Test && (x.Name == "t" || x.Name == "b") && slices.Contains(skips, n.Sel.Name) {
				c.report(n, "%s.%s: a test that does not run proves nothing; make it run, or take it out", x.Name, n.Sel.Name)
			}
		case *ast.CallExpr:
			c.errorText(n)
		}
		return true
	})
}

func (c *checker) errorText(call *ast.CallExpr) {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || len(call.Args) == 0 || f.Sel.Name != "Errorf" && f.Sel.Name != "New" {
		return
	}
	of, named := f.X.(*ast.Ident)
	text, literal := call.Args[0].(*ast.BasicLit)
	if !named || !literal || of.Name != "fmt" && of.Name != "errors" {
		return
	}
	for _, phrase := range empty {
		if strings.HasPrefix(strings.Trim(text.Value, "\"`"), phrase) {
			c.report(text, "%q says nothing: verb, object, cause", phrase)
		}
	}
}

func (c *checker) function(d *ast.FuncDecl) {
	first, last := c.tree.Fset.Position(d.Pos()).Line, c.tree.Fset.Position(d.End()).Line
	if lines := last - first + 1; lines >= functionLines {
		c.report(d.Name, "function %s has %d lines, not less than %d: give its parts names", d.Name.Name, lines, functionLines)
	}
	if d.Recv == nil && d.Name.Name == "init" {
		c.report(d.Name, "function init: nothing happens by being imported; wire it visibly")
	}
	if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil && !evident(d) {
		c.report(d.Name, "exported %s has no comment", d.Name.Name)
	}
}

// evident is true for the methods of standard interfaces, whose name is their whole contract.
func evident(d *ast.FuncDecl) bool {
	return d.Recv != nil && slices.Contains([]string{"String", "Error", "Unwrap", "MarshalJSON", "UnmarshalJSON", "Len", "Less", "Swap"}, d.Name.Name)
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	t := d.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}

// declaration checks that each type, constant and variable has a comment of its own, beside it,
// or on its group.
func (c *checker) declaration(d *ast.GenDecl) {
	if d.Tok == token.IMPORT {
		return
	}
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
				c.report(s.Name, "exported %s has no comment", s.Name.Name)
			}
		case *ast.ValueSpec:
			if s.Doc != nil || s.Comment != nil || d.Doc != nil {
				continue
			}
			for _, name := range s.Names {
				if name.IsExported() {
					c.report(name, "exported %s has no comment", name.Name)
				}
			}
		}
	}
}

// catalogue checks that every controller is in the catalogue: no flag can select a missing one,
// and no test would notice.
func (c *checker) catalogue() {
	listed := map[string]bool{}
	for _, p := range c.tree.Packages {
		if p.Dir != controllers {
			continue
		}
		for _, f := range p.Files {
			for _, spec := range f.AST.Imports {
				listed[strings.TrimPrefix(importPath(spec), module)] = !f.Test
			}
		}
	}
	for _, p := range c.tree.Packages {
		if path.Dir(p.Dir) == controllers && !listed[p.Dir] {
			c.report(p.Files[0].AST.Name, "controller %s is not in the catalogue: no flag can ask for it", p.Dir)
		}
	}
}

// staging finds requirements of Kubernetes' own modules: v0.36.3 of the libraries is v1.36.3 of
// Kubernetes. Modules with versions of their own (klog, utils, kube-openapi) have other
// patterns.
var staging = regexp.MustCompile(`(?m)^\s*(?:require\s+|replace\s.*=>\s*)?(k8s\.io/[a-z-]+)\s+v[01]\.([1-9]\d*\.\d+)\b`)

// versions checks that all modules use the same version of Kubernetes.
func (c *checker) versions() {
	type place struct{ file, module, version string }
	var first place
	for _, mod := range c.tree.Mods {
		if slices.Contains(foreign, mod) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(c.tree.Root, filepath.FromSlash(mod)))
		if err != nil {
			c.found = append(c.found, Violation{File: mod, Text: err.Error()})
			continue
		}
		for _, m := range staging.FindAllSubmatchIndex(text, -1) {
			here := place{mod, string(text[m[2]:m[3]]), string(text[m[4]:m[5]])}
			if first.file == "" {
				first = here
			}
			if here.version != first.version {
				line := 1 + strings.Count(string(text[:m[2]]), "\n")
				c.found = append(c.found, Violation{File: mod, Line: line, Text: fmt.Sprintf(
					"%s is of Kubernetes %s, but %s in %s of %s: one binary speaks one version of the API", here.module, here.version, first.module, first.file, first.version)})
			}
		}
	}
}

// chartFile is the map of the repository.
const chartFile = "ARCHITECTURE.md"

// place finds what looks like a path in the repository, in code quotes or as the target of a
// link.
var place = regexp.MustCompile("(?:`|\\]\\()((?:pkg|services|cmd|test|tools|deployments|docs)/[A-Za-z0-9_./-]*)(?:`|\\))")

// chart checks that the map of the repository names only existing paths.
func (c *checker) chart() {
	text, err := os.ReadFile(filepath.Join(c.tree.Root, chartFile))
	if err != nil {
		c.found = append(c.found, Violation{File: chartFile, Text: "missing: the repository has a map"})
		return
	}
	for i, line := range strings.Split(string(text), "\n") {
		for _, m := range place.FindAllStringSubmatch(line, -1) {
			name := strings.TrimSuffix(strings.TrimSuffix(m[1], "/..."), "/")
			if !c.tree.exists(name) {
				c.found = append(c.found, Violation{File: chartFile, Line: i + 1, Text: name + " does not exist: a map with wrong names is worse than none"})
			}
		}
	}
}
