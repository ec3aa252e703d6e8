// Package operator breaks Go code by rule: each operator knows one kind of slip (a
// condition the wrong way round, a bound one off, a statement left out) and finds every
// place where it can be made.
//
// All mutants of a package are compiled at once. Each is behind a switch that an
// environment variable throws, so a package is built and linked once, and to try a mutant
// is to run a test binary. Only a number in a constant declaration cannot be switched; such
// a mutant is a text that replaces the file.
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
	// Name is <file>:<function>:<operator>:<how many of that operator in that function>. It
	// stays while the function does.
	Name     string
	Dir      string // of its package, from the root of the repository
	File     string // from there
	Function string
	Line     int
	Before   string // what it replaces
	After    string // what comes in its place; empty: nothing
	// Sum is of the text of the whole declaration.
	Sum string

	change change
	switched,
	id int
}

// Switched says that the mutant is in the switched text of its package, under the number
// [Mutant.ID]; the others are built one by one.
func (m Mutant) Switched() bool { return m.change.form != alone }

// ID is the number by which the mutant is switched on.
func (m Mutant) ID() int { return m.id }

// form is how a change is made switchable.
type form int

const (
	condition form = iota // an expression that is true or false
	value                 // an expression of a type that has a name here
	statement             // a statement in a block
	ending                // a return with other results
	alone                 // not switchable
)

// change is what an operator does to a text: after replaces what is from one offset to
// another.
type change struct {
	operator string
	form     form
	from, to int
	after    string
	kind     string          // form value: the name of its type
	tag      *ast.SwitchStmt // form condition: the expression is one of its cases
	// unread says that a caller does not look at what is changed. Such a change is counted,
	// so that the names of the others stay, and is not tried.
	unread bool
}

// source is one file while operators look at it.
type source struct {
	pkg  *packages.Package
	file *ast.File
	text []byte
}

func (s *source) offset(p token.Pos) int { return s.pkg.Fset.Position(p).Offset }

func (s *source) textOf(n ast.Node) string {
	return string(s.text[s.offset(n.Pos()):s.offset(n.End())])
}

// replaced is a change of a whole node.
func (s *source) replaced(n ast.Node, f form, after string) change {
	return change{form: f, from: s.offset(n.Pos()), to: s.offset(n.End()), after: after}
}

// operators by name. Each gives what it can do to one node; path has the nodes around it,
// the outermost first.
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

// mutants are those of a file, in the order of the text.
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

// mutantsOf are those of a declaration; like has what they have in common.
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
