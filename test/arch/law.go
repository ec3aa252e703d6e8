package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// Violation is a place where the tree breaks a rule.
type Violation struct {
	File string
	Line int
	Text string // what is wrong, and why it matters
}

func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.Text) }

// Check returns every violation in the tree, sorted by place.
func Check(t *Tree) []Violation {
	c := &checker{tree: t}
	for _, p := range t.Packages {
		c.names(p)
		c.packageDoc(p)
		layer, found := layerOf(p.Dir)
		if !found {
			c.report(p.Files[0].AST.Name, "package %s belongs to no layer; name its layer in the rules", p.Dir)
		}
		for _, f := range p.Files {
			c.imports(p, f, layer)
			if layer.Pure && !f.Test {
				c.pure(f, layer)
			}
			c.style(f)
		}
	}
	c.catalogue()
	c.versions()
	c.chart()
	slices.SortStableFunc(c.found, func(a, b Violation) int {
		if order := strings.Compare(a.File, b.File); order != 0 {
			return order
		}
		return a.Line - b.Line
	})
	return c.found
}

type checker struct {
	tree  *Tree
	found []Violation
}

func (c *checker) report(at ast.Node, format string, args ...any) {
	place := c.tree.Fset.Position(at.Pos())
	c.found = append(c.found, Violation{File: place.Filename, Line: place.Line, Text: fmt.Sprintf(format, args...)})
}

func layerOf(dir string) (layer Layer, found bool) {
	for _, l := range layers {
		if match(l.Packages, dir) {
			return l, true
		}
	}
	return Layer{}, false
}

// imports checks which packages a file imports. Test files of closed layers may also import the
// test kit and their own package; the rules of doors apply to them too.
func (c *checker) imports(p *Package, f *File, layer Layer) {
	for _, spec := range f.AST.Imports {
		name := importPath(spec)
		ours := strings.TrimPrefix(name, module)
		if standard(name) {
			if reason, impure := impureImports[name]; impure && layer.Pure && !f.Test {
				c.report(spec, "%s must not import %s: %s", p.Dir, name, reason)
			}
			continue
		}
		for _, door := range doors {
			if match(door.Imports, ours) && !match(door.Except, ours) && !match(door.Keepers, p.Dir) {
				c.report(spec, "%s must not import %s: %s", p.Dir, ours, door.Because)
			}
		}
		if reason, impure := impureImports[name]; impure && layer.Pure && !f.Test {
			c.report(spec, "%s must not import %s: %s", p.Dir, name, reason)
			continue
		}
		allowed := layer.Open || match(layer.May, ours) || match([]string{p.Dir + "/..."}, ours) && p.Dir != controllers
		if f.Test {
			allowed = allowed || match(kit, ours)
		}
		if !allowed && len(layer.Packages) > 0 {
			c.report(spec, "%s must not import %s: %s", p.Dir, ours, layer.Because)
		}
	}
}

// pure looks for calls that pure code must not make.
func (c *checker) pure(f *File, layer Layer) {
	paths := map[string]string{} // local name to import path
	for _, spec := range f.AST.Imports {
		name := importPath(spec)
		local := name[strings.LastIndex(name, "/")+1:]
		if spec.Name != nil {
			local = spec.Name.Name
		}
		paths[local] = name
	}
	ast.Inspect(f.AST, func(n ast.Node) bool {
		what := ""
		switch n := n.(type) {
		case *ast.GoStmt:
			what = "starts a goroutine"
		case *ast.SelectStmt:
			what = "selects"
		case *ast.SendStmt:
			what = "sends on a channel"
		case *ast.ChanType:
			what = "has a channel"
		case *ast.UnaryExpr:
			if n.Op == token.ARROW {
				what = "receives from a channel"
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.Contains(impureCalls[paths[x.Name]], n.Sel.Name) {
				what = "uses " + x.Name + "." + n.Sel.Name
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "print" || f.Name == "println") {
				what = "prints"
			}
		}
		if what != "" {
			c.report(n, "pure code %s: %s", what, layer.Because)
		}
		return true
	})
}

func importPath(spec *ast.ImportSpec) string {
	name, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser has accepted it, so this cannot happen
	}
	return name
}

// standard is true for the standard library: no dot in the first element.
func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}
