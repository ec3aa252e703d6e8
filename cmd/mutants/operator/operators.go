package operator

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// negate inverts a condition that decides something or is returned. It leaves comparisons for equality to
// "equal", and "a && b" to its parts.
func negate(s *source, n ast.Node, path []ast.Node) []change {
	e, ok := n.(ast.Expr)
	if !ok || !s.isBool(e) || !decided(e, path) {
		return nil
	}
	switch e := e.(type) {
	case *ast.ParenExpr, *ast.TypeAssertExpr:
		return nil
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return nil // its operand is inverted
		}
	case *ast.BinaryExpr:
		if slices.Contains([]token.Token{token.EQL, token.NEQ, token.LAND, token.LOR}, e.Op) {
			return nil
		}
	}
	return []change{s.replaced(e, condition, "!("+s.textOf(e)+")")}
}

// decided reports whether a decision depends on a condition at this place.
func decided(e ast.Expr, path []ast.Node) bool {
	for i := len(path) - 1; i >= 0; i-- {
		switch above := path[i].(type) {
		case *ast.ParenExpr:
			continue
		case *ast.IfStmt:
			return true
		case *ast.ForStmt:
			return true
		case *ast.ReturnStmt:
			return true
		case *ast.UnaryExpr:
			return above.Op == token.NOT
		case *ast.BinaryExpr:
			return above.Op == token.LAND || above.Op == token.LOR
		case *ast.CaseClause:
			return i >= 2 && tagless(path[i-2])
		}
		return false
	}
	return false
}

func tagless(n ast.Node) bool {
	s, ok := n.(*ast.SwitchStmt)
	return ok && s.Tag == nil
}

// swap returns an operator that replaces one comparison or connective by another.
func swap(to map[token.Token]token.Token) func(*source, ast.Node, []ast.Node) []change {
	return func(s *source, n ast.Node, _ []ast.Node) []change {
		e, ok := n.(*ast.BinaryExpr)
		if !ok || !s.isBool(e) || s.constant(e) {
			return nil
		}
		other, ok := to[e.Op]
		if !ok {
			return nil
		}
		return []change{s.replaced(e, condition, s.operand(e.X)+" "+other.String()+" "+s.operand(e.Y))}
	}
}

// operand is the text of an operand, in parentheses if it is a binary expression.
func (s *source) operand(e ast.Expr) string {
	if _, ok := e.(*ast.BinaryExpr); ok {
		return "(" + s.textOf(e) + ")"
	}
	return s.textOf(e)
}

// sum replaces addition by subtraction, and the other way round.
func sum(s *source, n ast.Node, path []ast.Node) []change {
	other := map[token.Token]string{
		token.ADD: "-", token.SUB: "+", token.ADD_ASSIGN: "-=", token.SUB_ASSIGN: "+=", token.INC: "--", token.DEC: "++",
	}
	switch n := n.(type) {
	case *ast.BinaryExpr:
		if (n.Op == token.ADD || n.Op == token.SUB) && s.isNumber(n) && !s.constant(n) {
			return s.valued(n, n, s.operand(n.X)+" "+other[n.Op]+" "+s.operand(n.Y))
		}
	case *ast.AssignStmt:
		if (n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN) && s.isNumber(n.Lhs[0]) && inBlock(n, path) {
			return []change{s.replaced(n, statement, s.textOf(n.Lhs[0])+" "+other[n.Tok]+" "+s.textOf(n.Rhs[0]))}
		}
	case *ast.IncDecStmt:
		if inBlock(n, path) {
			return []change{s.replaced(n, statement, s.textOf(n.X)+other[n.Tok])}
		}
	}
	return nil
}

// valued is a change of an expression that is not boolean. There is none if its type has no name in this
// file.
func (s *source) valued(e ast.Expr, n ast.Node, after string) []change {
	kind, ok := s.typeName(s.pkg.TypesInfo.TypeOf(e))
	if !ok {
		return nil
	}
	c := s.replaced(n, value, after)
	c.kind = kind
	return []change{c}
}

// number makes a whole number one larger. It skips file permissions, which are written with a leading zero.
func number(s *source, n ast.Node, path []ast.Node) (all []change) {
	e, ok := n.(ast.Expr)
	if !ok || !s.constant(e) {
		return nil
	}
	declared := slices.ContainsFunc(path, func(above ast.Node) bool {
		d, ok := above.(*ast.GenDecl)
		return ok && d.Tok == token.CONST
	}) || s.declaresConstant(path)
	ast.Inspect(e, func(n ast.Node) bool {
		digits, ok := n.(*ast.BasicLit)
		if !ok || digits.Kind != token.INT || permission.MatchString(digits.Value) {
			return true
		}
		of, err := strconv.ParseInt(digits.Value, 0, 64)
		if err != nil || of == 1<<63-1 {
			return true
		}
		more := strconv.FormatInt(of+1, 10)
		whole, from, to := s.textOf(e), s.offset(digits.Pos())-s.offset(e.Pos()), s.offset(digits.End())-s.offset(e.Pos())
		after := whole[:from] + more + whole[to:]
		switch {
		case declared:
			all = append(all, s.replaced(digits, alone, more))
		case s.isNumber(e) && s.fits(e, after):
			all = append(all, s.valued(e, e, after)...)
		}
		return true
	})
	return all
}

var permission = regexp.MustCompile("^0[oO0-9]")

// fits reports whether a text is a constant of the type of an expression.
func (s *source) fits(e ast.Expr, text string) bool {
	kind, ok := s.typeName(s.pkg.TypesInfo.TypeOf(e))
	if !ok {
		return false
	}
	_, err := types.Eval(s.pkg.Fset, s.pkg.Types, e.Pos(), kind+"("+text+")")
	return err == nil
}

// drop removes a call whose result is not used, or an assignment to a part of a value.
func drop(s *source, n ast.Node, path []ast.Node) []change {
	if !inBlock(n, path) {
		return nil
	}
	switch n := n.(type) {
	case *ast.ExprStmt:
		call, ok := n.X.(*ast.CallExpr)
		if !ok || s.tells(call) || s.unnoticed(call) {
			return nil
		}
		return []change{s.replaced(n, statement, "")}
	case *ast.AssignStmt:
		if n.Tok != token.ASSIGN || slices.ContainsFunc(n.Lhs, isVariable) {
			return nil
		}
		return []change{s.replaced(n, statement, "")}
	}
	return nil
}

func isVariable(e ast.Expr) bool {
	_, ok := e.(*ast.Ident)
	return ok
}

// leave removes a continue, a break, or a return that is not the last statement.
func leave(s *source, n ast.Node, path []ast.Node) []change {
	if !inBlock(n, path) {
		return nil
	}
	switch n := n.(type) {
	case *ast.BranchStmt:
		if n.Tok == token.CONTINUE || n.Tok == token.BREAK && (n.Label != nil || endsLoop(path)) {
			return []change{s.replaced(n, statement, "")}
		}
	case *ast.ReturnStmt:
		if early(s, path) {
			return []change{s.replaced(n, statement, "")}
		}
	}
	return nil
}

// endsLoop reports whether a break without a label here ends a loop.
func endsLoop(path []ast.Node) bool {
	for _, above := range slices.Backward(path) {
		switch above.(type) {
		case *ast.ForStmt, *ast.RangeStmt:
			return true
		case *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
			return false
		}
	}
	return false
}

// early reports whether a return can be removed: statements follow, and the function can end without it. That
// is so in an if without an else.
func early(s *source, path []ast.Node) bool {
	if len(path) < 3 {
		return false
	}
	body, ok := path[len(path)-1].(*ast.BlockStmt)
	if !ok {
		return false
	}
	around, ok := path[len(path)-2].(*ast.IfStmt)
	if !ok || around.Else != nil || around.Body != body {
		return false
	}
	block, ok := path[len(path)-3].(*ast.BlockStmt)
	if !ok {
		return true // of a case
	}
	return block.List[len(block.List)-1] != ast.Stmt(around)
}

// noError returns nil in place of an error.
func noError(s *source, n ast.Node, path []ast.Node) []change {
	r, ok := n.(*ast.ReturnStmt)
	if !ok || len(r.Results) == 0 || !inBlock(n, path) {
		return nil
	}
	last := r.Results[len(r.Results)-1]
	results := s.resultsOf(path)
	if results == nil || results.Len() != len(r.Results) || !types.Identical(results.At(results.Len()-1).Type(), errorType) {
		return nil
	}
	if s.pkg.TypesInfo.Types[last].IsNil() {
		return nil
	}
	var after []string
	for _, e := range r.Results[:len(r.Results)-1] {
		after = append(after, s.textOf(e))
	}
	return []change{s.replaced(r, ending, "return "+strings.Join(append(after, "nil"), ", "))}
}

// resultsOf are the results of the enclosing function.
func (s *source) resultsOf(path []ast.Node) *types.Tuple {
	for _, above := range slices.Backward(path) {
		var t types.Type
		switch f := above.(type) {
		case *ast.FuncLit:
			t = s.pkg.TypesInfo.TypeOf(f)
		case *ast.FuncDecl:
			t = s.pkg.TypesInfo.Defs[f.Name].Type()
		default:
			continue
		}
		return t.(*types.Signature).Results()
	}
	return nil
}

// noCase removes a value, or a condition, from the cases of a switch.
func noCase(s *source, n ast.Node, path []ast.Node) (all []change) {
	clause, ok := n.(*ast.CaseClause)
	if !ok || len(path) < 2 {
		return nil
	}
	around, ok := path[len(path)-2].(*ast.SwitchStmt)
	if !ok || around.Tag != nil && (around.Init != nil || s.constant(around.Tag)) {
		return nil
	}
	for _, e := range clause.List {
		c := s.replaced(e, condition, "false")
		if around.Tag != nil {
			c.tag = around
		}
		all = append(all, c)
	}
	return all
}

// inBlock reports whether a node is one of a list of statements.
func inBlock(n ast.Node, path []ast.Node) bool {
	if len(path) == 0 {
		return false
	}
	switch above := path[len(path)-1].(type) {
	case *ast.BlockStmt, *ast.CaseClause:
		return true
	case *ast.CommClause:
		return ast.Node(above.Comm) != n
	}
	return false
}
