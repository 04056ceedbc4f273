package script

import (
	"math/big"

	"go.starlark.net/syntax"
)

// rewriter replaces the operations of a file whose cost depends on their operands by
// calls of guards. Guards have names that no script can write.
type rewriter struct {
	file  string
	err   *Error
	depth int
	parts int // of the statement at hand
	// inside counts the functions around.
	inside int
}

// Bounds of a file beyond its size.
const (
	maxSourceDepth = 64  // nested expressions and statements
	maxParts       = 400 // of a statement in a function
	maxLocals      = 100 // names that a function may have of its own
	maxNested      = 8   // functions in functions
)

// Names of guards. Methods have theirs in guardedMethods.
const (
	guardTuple    = "(tuple)"
	guardDict     = "(dict)"
	guardPairs    = "(pairs)"
	guardKey      = "(key)"
	guardAssign   = "(assign)"
	guardSlice    = "(slice)"
	guardMethod   = "(method)"
	guardArgs     = "(args)"
	guardNamed    = "(named)"
	guardSetIndex = "(set)"
	guardInPlace  = "=" // after the operator: (+=)
)

func guardOf(op syntax.Token) string { return "(" + op.String() + ")" }

func (r *rewriter) fail(pos syntax.Position, format string, args ...any) {
	if r.err == nil {
		r.err = errorAt(r.file, pos, format, args...)
	}
}

// rewrite makes a file safe, or says what is wrong with it.
func rewrite(f *syntax.File) *Error {
	r := &rewriter{file: f.Path}
	r.stmts(f.Stmts)
	return r.err
}

func (r *rewriter) stmts(list []syntax.Stmt) {
	for i, s := range list {
		if r.err != nil {
			return
		}
		list[i] = r.stmt(s)
	}
}

// enter counts a level; leave must follow.
func (r *rewriter) enter(n syntax.Node) bool {
	if r.depth++; r.depth > maxSourceDepth {
		start, _ := n.Span()
		r.fail(start, "this is nested more than %d levels deep", maxSourceDepth)
	}
	return r.err == nil
}

func (r *rewriter) leave() { r.depth-- }

func (r *rewriter) stmt(s syntax.Stmt) syntax.Stmt {
	defer r.leave()
	if !r.enter(s) {
		return s
	}
	r.parts = 0
	switch s := s.(type) {
	case *syntax.AssignStmt:
		return r.assign(s)
	case *syntax.DefStmt:
		r.fixed(s.Name)
		r.params(s.Params)
		r.inside++
		if r.inside > maxNested {
			r.fail(s.Def, "there are more than %d functions around this one", maxNested-1)
		}
		r.stmts(s.Body)
		r.inside--
	case *syntax.ExprStmt:
		if l, ok := s.X.(*syntax.Literal); ok && l.Token == syntax.STRING {
			return s // a doc string; no code can reach it
		}
		s.X = r.expr(s.X)
	case *syntax.ForStmt:
		s.Vars, s.X = r.target(s.Vars), r.expr(s.X)
		r.stmts(s.Body)
	case *syntax.IfStmt:
		s.Cond = r.expr(s.Cond)
		r.stmts(s.True)
		r.stmts(s.False)
	case *syntax.LoadStmt:
		r.fail(s.Load, "load: a policy is one file, and loads no others")
	case *syntax.ReturnStmt:
		if s.Result != nil {
			s.Result = r.expr(s.Result)
		}
	case *syntax.WhileStmt:
		r.fail(s.While, "while: a policy has no such loops; use for")
	}
	return s
}

// assign rewrites an assignment. x += y is x = guard(x, y), which changes lists and
// dictionaries in place; a[i] += y evaluates a and i once.
func (r *rewriter) assign(s *syntax.AssignStmt) syntax.Stmt {
	if e, ok := unparen(s.LHS).(*syntax.IndexExpr); ok {
		e.X, e.Y, s.RHS = r.expr(e.X), r.expr(e.Y), r.expr(s.RHS)
		if s.Op == syntax.EQ {
			return &syntax.ExprStmt{X: call(s.OpPos, guardAssign, e.X, e.Y, s.RHS)}
		}
	} else {
		s.LHS, s.RHS = r.target(s.LHS), r.expr(s.RHS)
	}
	if s.Op == syntax.EQ {
		return s
	}
	name := "(" + (s.Op - syntax.PLUS_EQ + syntax.PLUS).String() + guardInPlace + ")"
	switch lhs := unparen(s.LHS).(type) {
	case *syntax.Ident:
		s.Op, s.RHS = syntax.EQ, call(s.OpPos, name, &syntax.Ident{NamePos: lhs.NamePos, Name: lhs.Name}, s.RHS)
	case *syntax.IndexExpr:
		return &syntax.ExprStmt{X: call(s.OpPos, guardSetIndex, text(s.OpPos, name), lhs.X, lhs.Y, s.RHS)}
	default:
		r.fail(s.OpPos, "only names and elements can be changed with %s", s.Op)
	}
	return s
}

func unparen(e syntax.Expr) syntax.Expr {
	for {
		p, ok := e.(*syntax.ParenExpr)
		if !ok {
			return e
		}
		e = p.X
	}
}

// target rewrites what is assigned to.
func (r *rewriter) target(e syntax.Expr) syntax.Expr {
	defer r.leave()
	if !r.enter(e) {
		return e
	}
	switch e := e.(type) {
	case *syntax.Ident:
		r.fixed(e)
	case *syntax.TupleExpr:
		r.targets(e.List)
	case *syntax.ListExpr:
		r.targets(e.List)
	case *syntax.ParenExpr:
		e.X = r.target(e.X)
	case *syntax.IndexExpr: // one of several
		x, ok := unparen(e.X).(*syntax.Ident)
		if !ok {
			r.fail(e.Lbrack, "give what this is an element of a name, to change it together with others")
			break
		}
		again := &syntax.Ident{NamePos: x.NamePos, Name: x.Name}
		e.Y = call(e.Lbrack, guardKey, again, r.expr(e.Y))
	case *syntax.DotExpr:
		r.fail(e.Dot, "nothing has fields that can be set: use a dictionary")
	}
	r.part(e)
	return e
}

func (r *rewriter) targets(list []syntax.Expr) {
	for i := range list {
		list[i] = r.target(list[i])
	}
}

// fixed refuses to give a constant another meaning: that comparing with one is cheap
// is taken for granted.
func (r *rewriter) fixed(e *syntax.Ident) {
	if constant(e) {
		r.fail(e.NamePos, "%s is a constant", e.Name)
	}
}

func (r *rewriter) params(list []syntax.Expr) {
	for _, p := range list {
		switch p := p.(type) {
		case *syntax.Ident:
			r.fixed(p)
		case *syntax.UnaryExpr:
			if p.X != nil {
				r.fail(p.OpPos, "functions of a policy have no %s parameters: pass a list or a dictionary", p.Op)
			}
		case *syntax.BinaryExpr:
			r.params([]syntax.Expr{p.X})
			p.Y = r.expr(p.Y)
		}
	}
}

// part counts the parts of a statement: a function has room on its stack for them,
// each time that it is called.
func (r *rewriter) part(e syntax.Expr) {
	if r.parts++; r.parts > maxParts && r.inside > 0 {
		start, _ := e.Span()
		r.fail(start, "this statement has more than %d parts: split it, or move what is constant out of the function", maxParts)
	}
}

func (r *rewriter) exprs(list []syntax.Expr) {
	for i := range list {
		if r.err != nil {
			return
		}
		list[i] = r.expr(list[i])
	}
}

func (r *rewriter) optional(e syntax.Expr) syntax.Expr {
	if e == nil {
		return nil
	}
	return r.expr(e)
}

func (r *rewriter) expr(e syntax.Expr) syntax.Expr {
	defer r.leave()
	if !r.enter(e) {
		return e
	}
	r.part(e)
	switch e := e.(type) {
	case *syntax.BinaryExpr:
		return r.binary(e)
	case *syntax.CallExpr:
		return r.callExpr(e)
	case *syntax.Comprehension:
		return r.comprehension(e)
	case *syntax.CondExpr:
		e.Cond, e.True, e.False = r.expr(e.Cond), r.expr(e.True), r.expr(e.False)
	case *syntax.DictExpr:
		pairs := &syntax.ListExpr{Lbrack: e.Lbrace, Rbrack: e.Rbrace}
		for _, entry := range e.List {
			d := entry.(*syntax.DictEntry)
			d.Key, d.Value = r.expr(d.Key), r.expr(d.Value)
			pairs.List = append(pairs.List, pair(d))
		}
		if len(pairs.List) > fewPairs {
			return call(e.Lbrace, guardPairs, pairs)
		}
		return call(e.Lbrace, guardDict, e)
	case *syntax.DotExpr:
		e.X = r.expr(e.X)
		if guardedMethods[e.Name.Name] != nil {
			return call(e.NamePos, guardMethod, e.X, text(e.NamePos, e.Name.Name))
		}
	case *syntax.IndexExpr:
		e.X, e.Y = r.expr(e.X), r.expr(e.Y)
	case *syntax.LambdaExpr:
		r.params(e.Params)
		r.inside++
		e.Body = r.expr(e.Body)
		r.inside--
	case *syntax.ListExpr:
		r.exprs(e.List)
	case *syntax.Literal:
		r.literal(e)
	case *syntax.ParenExpr:
		e.X = r.expr(e.X)
	case *syntax.SliceExpr:
		e.X = call(e.Lbrack, guardSlice, r.expr(e.X))
		e.Lo, e.Hi, e.Step = r.optional(e.Lo), r.optional(e.Hi), r.optional(e.Step)
	case *syntax.TupleExpr:
		return r.tuple(e)
	case *syntax.UnaryExpr:
		e.X = r.optional(e.X)
	}
	return e
}

func (r *rewriter) literal(e *syntax.Literal) {
	switch v := e.Value.(type) {
	case string:
		if len(v) > maxString {
			r.fail(e.TokenPos, "this string has %d bytes: at most %d", len(v), maxString)
		}
	case *big.Int:
		if v.BitLen() > maxBits {
			r.fail(e.TokenPos, "this number has more than %d bits", maxBits)
		}
	}
}

func (r *rewriter) tuple(e *syntax.TupleExpr) syntax.Expr {
	weight := 0
	for i := range e.List {
		e.List[i] = r.expr(e.List[i])
		weight += constantWeight(e.List[i])
	}
	if weight <= maxTuple {
		return e
	}
	return call(syntax.Start(e), guardTuple, e)
}

func (r *rewriter) comprehension(e *syntax.Comprehension) syntax.Expr {
	for _, c := range e.Clauses {
		switch c := c.(type) {
		case *syntax.ForClause:
			c.Vars, c.X = r.target(c.Vars), r.expr(c.X)
		case *syntax.IfClause:
			c.Cond = r.expr(c.Cond)
		}
	}
	if d, ok := e.Body.(*syntax.DictEntry); ok {
		d.Key, d.Value = r.expr(d.Key), r.expr(d.Value)
		e.Curly, e.Body = false, pair(d)
		return call(e.Lbrack, guardPairs, e)
	}
	e.Body = r.expr(e.Body)
	return e
}

// fewPairs is how many entries a dictionary may have whose keys are not looked at.
const fewPairs = 16

// pair is an entry of a dictionary as a tuple.
func pair(d *syntax.DictEntry) *syntax.TupleExpr {
	return &syntax.TupleExpr{List: []syntax.Expr{d.Key, d.Value}}
}

func (r *rewriter) callExpr(e *syntax.CallExpr) syntax.Expr {
	e.Fn = r.expr(e.Fn)
	for i, a := range e.Args {
		switch a := a.(type) {
		case *syntax.UnaryExpr:
			switch a.Op {
			case syntax.STAR:
				a.X = call(a.OpPos, guardArgs, r.expr(a.X))
				continue
			case syntax.STARSTAR:
				a.X = call(a.OpPos, guardNamed, r.expr(a.X))
				continue
			}
		case *syntax.BinaryExpr:
			if a.Op == syntax.EQ { // a named argument
				a.Y = r.expr(a.Y)
				continue
			}
		}
		e.Args[i] = r.expr(a)
	}
	return e
}

// binary rewrites an operation, unless its cost is plain from what is written.
func (r *rewriter) binary(e *syntax.BinaryExpr) syntax.Expr {
	e.X, e.Y = r.expr(e.X), r.expr(e.Y)
	switch e.Op {
	case syntax.AND, syntax.OR:
		return e
	case syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE:
		// Comparing anything with a constant looks at no more than the constant.
		if constant(e.X) || constant(e.Y) {
			return e
		}
	case syntax.PLUS, syntax.MINUS, syntax.SLASH, syntax.SLASHSLASH:
		if number(e.X) || number(e.Y) {
			return e
		}
	case syntax.NOT_IN:
		return &syntax.UnaryExpr{OpPos: e.OpPos, Op: syntax.NOT, X: call(e.OpPos, guardOf(syntax.IN), e.X, e.Y)}
	}
	return call(e.OpPos, guardOf(e.Op), e.X, e.Y)
}

func constant(e syntax.Expr) bool {
	switch e := unparen(e).(type) {
	case *syntax.Literal:
		return true
	case *syntax.Ident:
		return e.Name == "None" || e.Name == "True" || e.Name == "False"
	}
	return false
}

// constantWeight is what weigh says of a constant; of anything else, too much.
func constantWeight(e syntax.Expr) int {
	if !constant(e) {
		return maxTuple + 1
	}
	if l, ok := unparen(e).(*syntax.Literal); ok {
		return 1 + len(l.Raw)
	}
	return 1
}

func number(e syntax.Expr) bool {
	l, ok := unparen(e).(*syntax.Literal)
	if !ok {
		return false
	}
	switch l.Value.(type) {
	case int64, float64:
		return true
	}
	return false
}

func call(pos syntax.Position, guard string, args ...syntax.Expr) *syntax.CallExpr {
	return &syntax.CallExpr{Fn: &syntax.Ident{NamePos: pos, Name: guard}, Lparen: pos, Args: args, Rparen: pos}
}

func text(pos syntax.Position, s string) *syntax.Literal {
	return &syntax.Literal{Token: syntax.STRING, TokenPos: pos, Raw: s, Value: s}
}
