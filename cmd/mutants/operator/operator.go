// Package operator breaks Go code by rule. Each operator knows one kind of slip (an inverted condition, a
// bound that is one off, a missing statement) and finds every place where it is possible.
//
// All mutants of a package are compiled at once. Each is behind a switch that an environment variable throws,
// so a package is built and linked once, and each trial of a mutant is one run of the test binary. Only a
// number in a constant declaration cannot be switched; such a mutant is a text that replaces the file.
package operator

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Mutant is one small break.
type Mutant struct {
	// Name is <file>:<function>:<operator>:<index of that operator in that function>. It is stable while the
	// function does not change.
	Name     string
	Dir      string // of its package, relative to the root of the repository
	File     string // relative to Dir
	Function string
	Line     int
	Before   string // the text that it replaces
	After    string // the replacement; empty: none
	// Sum is a hash of the text of the whole declaration.
	Sum string

	change change
	switched,
	id int
}

// Switched reports whether the switched text of its package has the mutant, under the number [Mutant.ID]; the
// others are built one by one.
func (m Mutant) Switched() bool { return m.change.form != alone }

// ID is the number that switches the mutant on.
func (m Mutant) ID() int { return m.id }

// form is how a change becomes switchable.
type form int

const (
	condition form = iota // a boolean expression
	value                 // an expression of a type that this file can name
	statement             // a statement in a block
	ending                // a return with other results
	alone                 // not switchable
)

// change is what an operator does to a text: it replaces the bytes between two offsets by after.
type change struct {
	operator string
	form     form
	from, to int
	after    string
	kind     string          // form value: the name of its type
	tag      *ast.SwitchStmt // form condition: the expression is one of its cases
	// unread says that no caller looks at the changed value. Such a change is counted, so that the names of
	// the other mutants stay stable, but not tried.
	unread bool
}

// source is one file that operators break.
type source struct {
	pkg  *packages.Package
	file *ast.File
	text []byte
}

func (s *source) offset(p token.Pos) int { return s.pkg.Fset.Position(p).Offset }

func (s *source) textOf(n ast.Node) string {
	return string(s.text[s.offset(n.Pos()):s.offset(n.End())])
}

// replaced is the change of a whole node.
func (s *source) replaced(n ast.Node, f form, after string) change {
	return change{form: f, from: s.offset(n.Pos()), to: s.offset(n.End()), after: after}
}

// operators by name. Each returns the changes that it can make to one node; path has the nodes around it, the
// outermost first.
var operators = []struct {
	name string
	of   func(s *source, n ast.Node, path []ast.Node) []change
}{
	{"negate", negate},
	{"equal", swap(map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL})},
	{"bound", swap(map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR})},
	{"logic", swap(map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND})},
	{"sum", sum},
	{"number", number},
	{"drop", drop},
	{"leave", leave},
	{"error", noError},
	{"case", noCase},
}

// mutants returns the mutants of a file, in the order of its text.
func (s *source) mutants(dir, file string) []Mutant {
	var all []Mutant
	for _, d := range s.file.Decls {
		for _, part := range parts(d) {
			all = append(all, s.mutantsOf(part.node, Mutant{Dir: dir, File: file, Function: part.name, Sum: sumOf(s.textOf(part.node))})...)
		}
	}
	counts := map[string]int{}
	for i := range all {
		m := &all[i]
		key := fmt.Sprintf("%s:%s:%s", m.File, m.Function, m.change.operator)
		counts[key]++
		m.Name = fmt.Sprintf("%s:%d", key, counts[key])
	}
	return slices.DeleteFunc(all, func(m Mutant) bool { return m.change.unread })
}

// part is a declaration with a name.
type part struct {
	name string
	node ast.Node
}

func parts(d ast.Decl) (all []part) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Body != nil {
			all = append(all, part{functionName(d), d})
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			if v, ok := spec.(*ast.ValueSpec); ok {
				all = append(all, part{v.Names[0].Name, v})
			}
		}
	}
	return all
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return d.Name.Name
	}
	t := d.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name + "." + d.Name.Name
		default:
			return d.Name.Name
		}
	}
}

// mutantsOf returns the mutants of a declaration; like has the fields that they share.
func (s *source) mutantsOf(root ast.Node, like Mutant) (all []Mutant) {
	ast.PreorderStack(root, nil, func(n ast.Node, path []ast.Node) bool {
		if s.left(n, path) {
			return false
		}
		for _, o := range operators {
			for _, c := range o.of(s, n, path) {
				m := like
				m.change = c
				m.change.operator, m.change.unread = o.name, s.besideError(n, path)
				m.Line = s.pkg.Fset.Position(n.Pos()).Line
				m.Before, m.After = strings.TrimSpace(string(s.text[c.from:c.to])), c.after
				all = append(all, m)
			}
		}
		return !s.constant(n)
	})
	return all
}
