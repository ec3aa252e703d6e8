package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Package is a package with all its mutants.
type Package struct {
	Dir     string // relative to the root of the repository
	Mutants []Mutant
	sources []*source
	files   []string // absolute paths, in the order of sources
}

// Load returns the packages that match patterns such as "./pkg/events/...", sorted by directory. It leaves
// out test kits, which import package testing, and generated files.
//
// Errors: a package cannot be loaded, or does not compile.
func Load(ctx context.Context, root string, patterns ...string) ([]*Package, error) {
	config := &packages.Config{
		Context: ctx, Dir: root,
		Mode: packages.NeedName | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo,
	}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load packages: %w", err)
	}
	var all []*Package
	for _, p := range loaded {
		for _, e := range p.Errors {
			err = errors.Join(err, fmt.Errorf("load %s: %w", p.PkgPath, e))
		}
		if err != nil || len(p.CompiledGoFiles) == 0 || isTestKit(p) {
			continue
		}
		made, readErr := newPackage(root, p)
		err = errors.Join(err, readErr)
		all = append(all, made)
	}
	slices.SortFunc(all, func(a, b *Package) int { return strings.Compare(a.Dir, b.Dir) })
	return all, err
}

// isTestKit reports whether a package exists for tests.
func isTestKit(p *packages.Package) bool {
	_, imports := p.Imports["testing"]
	return imports || strings.HasSuffix(p.PkgPath, "test")
}

func newPackage(root string, p *packages.Package) (*Package, error) {
	made := &Package{}
	for i, file := range p.CompiledGoFiles {
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return nil, fmt.Errorf("place a file: %w", err)
		}
		made.Dir = filepath.ToSlash(filepath.Dir(relative))
		if ast.IsGenerated(p.Syntax[i]) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read a file to break: %w", err)
		}
		s := &source{pkg: p, file: p.Syntax[i], text: text}
		made.sources, made.files = append(made.sources, s), append(made.files, file)
		for _, m := range s.mutants(made.Dir, filepath.ToSlash(relative)) {
			m.id = len(made.Mutants)
			made.Mutants = append(made.Mutants, m)
		}
	}
	return made, nil
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}

// left reports whether operators skip a node and all nodes below it: types, keys that must be constant, and
// calls that only report: logs, metrics, traces and error texts.
func (s *source) left(n ast.Node, path []ast.Node) bool {
	switch n := n.(type) {
	case *ast.ArrayType, *ast.StructType, *ast.FuncType, *ast.InterfaceType:
		return true
	case *ast.CallExpr:
		return s.tells(n)
	}
	if len(path) == 0 {
		return false
	}
	switch above := path[len(path)-1].(type) {
	case *ast.KeyValueExpr:
		return above.Key == n && len(path) > 1 && s.isArray(path[len(path)-2])
	case *ast.CallExpr:
		return s.isHint(above, n)
	}
	return false
}

func (s *source) isArray(n ast.Node) bool {
	e, ok := n.(*ast.CompositeLit)
	if !ok {
		return false
	}
	switch s.pkg.TypesInfo.TypeOf(e).Underlying().(type) {
	case *types.Array, *types.Slice:
		return true
	}
	return false
}

// isHint reports whether an argument of make is only a capacity hint.
func (s *source) isHint(call *ast.CallExpr, n ast.Node) bool {
	f, ok := call.Fun.(*ast.Ident)
	if !ok || f.Name != "make" || len(call.Args) < 2 || n == call.Fun || n == call.Args[0] {
		return false
	}
	_, slice := s.pkg.TypesInfo.TypeOf(call.Args[0]).Underlying().(*types.Slice)
	return !slice || n != call.Args[1]
}

// tellers are packages whose functions only report; "*" at the end stands for anything.
var tellers = []string{
	"log", "log/slog", "k8s.io/klog/v2", "github.com/go-logr/logr", "github.com/prometheus/*", "go.opentelemetry.io/*",
	"errors", "github.com/millrace/millrace/pkg/events/exemplar",
}

// tells reports whether a call only reports: no decision rests on its result.
func (s *source) tells(call *ast.CallExpr) bool {
	f := s.called(call)
	if f == nil {
		return false
	}
	if _, builtin := f.(*types.Builtin); builtin {
		return f.Name() == "panic"
	}
	if f.Pkg() == nil {
		return false
	}
	path := f.Pkg().Path()
	switch {
	case path == "fmt":
		return f.Name() == "Errorf" || strings.HasPrefix(f.Name(), "Print") || strings.HasPrefix(f.Name(), "Fprint")
	case path == "errors" && f.Name() != "New":
		return false
	case f.Pkg() == s.pkg.Types && strings.HasPrefix(filepath.Base(s.pkg.Fset.Position(f.Pos()).Filename), "metric"):
		return true
	}
	return slices.ContainsFunc(tellers, func(t string) bool {
		begin, open := strings.CutSuffix(t, "*")
		return path == t || open && strings.HasPrefix(path, begin)
	})
}

// unnoticed reports whether a test can hardly notice that a call is missing: locks, and reserved capacity.
func (s *source) unnoticed(call *ast.CallExpr) bool {
	f := s.called(call)
	if f == nil || f.Pkg() == nil {
		return false
	}
	switch f.Name() {
	case "Lock", "Unlock", "RLock", "RUnlock":
		return f.Pkg().Path() == "sync"
	case "Grow":
		return true
	case "Exit":
		return f.Pkg().Path() == "os"
	}
	return false
}

// besideError reports whether an expression is the 0 or false that is returned beside a non-nil error. By
// convention no caller looks at it.
func (s *source) besideError(n ast.Node, path []ast.Node) bool {
	e, ok := n.(ast.Expr)
	if !ok || len(path) == 0 || !s.constant(e) {
		return false
	}
	if v := s.pkg.TypesInfo.Types[e].Value.ExactString(); v != "0" && v != "false" {
		return false
	}
	r, ok := path[len(path)-1].(*ast.ReturnStmt)
	return ok && s.isError(r.Results[len(r.Results)-1], path)
}

// isError reports whether an expression is certainly a non-nil error: one that is created here, a variable of
// a package, or a variable that an enclosing if compares with nil.
func (s *source) isError(e ast.Expr, path []ast.Node) bool {
	switch e := ast.Unparen(e).(type) {
	case *ast.CallExpr:
		f := s.called(e)
		return f != nil && f.Pkg() != nil && slices.Contains([]string{"fmt.Errorf", "errors.New"}, f.Pkg().Path()+"."+f.Name())
	case *ast.Ident:
		of := s.pkg.TypesInfo.Uses[e]
		if of == nil || !types.Identical(of.Type(), errorType) {
			return false
		}
		return of.Parent() == s.pkg.Types.Scope() || comparedWithNil(s.pkg.TypesInfo, of, path)
	}
	return false
}

var errorType = types.Universe.Lookup("error").Type()

// comparedWithNil reports whether the if around a return tests that a variable is not nil, and nothing else.
func comparedWithNil(info *types.Info, of types.Object, path []ast.Node) bool {
	if len(path) < 3 {
		return false
	}
	around, ok := path[len(path)-3].(*ast.IfStmt)
	if !ok || path[len(path)-2] != ast.Node(around.Body) {
		return false
	}
	c, ok := around.Cond.(*ast.BinaryExpr)
	if !ok || c.Op != token.NEQ {
		return false
	}
	x, ok := c.X.(*ast.Ident)
	return ok && info.Uses[x] == of && info.Types[c.Y].IsNil()
}

// called is the function that a call names.
func (s *source) called(call *ast.CallExpr) types.Object {
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.Ident:
		return s.pkg.TypesInfo.Uses[f]
	case *ast.SelectorExpr:
		return s.pkg.TypesInfo.Uses[f.Sel]
	}
	return nil
}

// isBool reports whether an expression has the type bool itself.
func (s *source) isBool(e ast.Expr) bool {
	t := s.pkg.TypesInfo.Types[e]
	return t.IsValue() && (t.Type == types.Typ[types.Bool] || t.Type == types.Typ[types.UntypedBool])
}

func (s *source) isNumber(e ast.Expr) bool {
	t := s.pkg.TypesInfo.TypeOf(e)
	if t == nil {
		return false
	}
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0 && b.Info()&types.IsUntyped == 0
}

func (s *source) constant(n ast.Node) bool {
	e, ok := n.(ast.Expr)
	return ok && s.pkg.TypesInfo.Types[e].Value != nil
}

// declaresConstant reports whether the outermost node declares constants of a package.
func (s *source) declaresConstant(path []ast.Node) bool {
	if len(path) == 0 {
		return false
	}
	v, ok := path[0].(*ast.ValueSpec)
	if !ok {
		return false
	}
	_, ok = s.pkg.TypesInfo.Defs[v.Names[0]].(*types.Const)
	return ok
}

// typeName is how this file writes a type.
func (s *source) typeName(t types.Type) (name string, ok bool) {
	ok = true
	name = types.TypeString(t, func(p *types.Package) string {
		if p == s.pkg.Types {
			return ""
		}
		for _, i := range s.file.Imports {
			if strings.Trim(i.Path.Value, `"`) != p.Path() {
				continue
			}
			if i.Name != nil {
				return i.Name.Name
			}
			return p.Name()
		}
		ok = false
		return p.Name()
	})
	if b, basic := t.(*types.Basic); basic && b.Info()&types.IsUntyped != 0 {
		ok = false
	}
	return name, ok
}
