package ptx

import (
	"fmt"
	"math"
	"strconv"
)

// String returns the constant as it is written in PTX.
func (l Literal) String() string {
	switch l.Kind {
	case IntLiteral:
		return strconv.FormatInt(int64(l.Bits), 10)
	case UintLiteral:
		return strconv.FormatUint(l.Bits, 10) + "U"
	case FloatLiteral:
		return fmt.Sprintf("0f%08X", l.Bits)
	}
	return fmt.Sprintf("0d%016X", l.Bits)
}

// Int returns the value of an integer constant; ok is false for the others.
func (l Literal) Int() (v int64, ok bool) { return int64(l.Bits), l.Kind <= UintLiteral }

// Float64 returns the value of any constant as a double.
func (l Literal) Float64() float64 {
	switch l.Kind {
	case IntLiteral:
		return float64(int64(l.Bits))
	case UintLiteral:
		return float64(l.Bits)
	case FloatLiteral:
		return float64(math.Float32frombits(uint32(l.Bits)))
	}
	return math.Float64frombits(l.Bits)
}

var precedence = map[string]int{
	"||": 1, "&&": 2, "|": 3, "^": 4, "&": 5, "==": 6, "!=": 6, "<": 7, "<=": 7, ">": 7, ">=": 7,
	"<<": 8, ">>": 8, "+": 9, "-": 9, "*": 10, "/": 10, "%": 10,
}

// constant reads a constant expression and folds it.
func (p *parser) constant() Literal { return p.constantFrom(p.unary()) }

// constantFrom reads the rest of an expression whose first operand was read. The operator
// c ? a : b binds loosest, and is right-associative.
func (p *parser) constantFrom(first Literal) Literal {
	c := p.binary(first, 1)
	pos := p.tok.pos
	if p.failed || !p.accept("?") {
		return c
	}
	p.enter()
	yes := p.constant()
	p.expect(":")
	no := p.constant()
	p.depth--
	if p.failed {
		return c
	}
	return p.choose(pos, c, yes, no)
}

// binary reads operators of this precedence and above, and their right operands, after left was
// read (precedence climbing). A right operand takes only operators that bind tighter, so operators
// of equal precedence associate to the left.
func (p *parser) binary(left Literal, level int) Literal {
	for p.tok.kind == tokPunct && !p.failed {
		op, pos := p.tok.text, p.tok.pos
		own := precedence[op]
		if own < level {
			break
		}
		p.next()
		p.enter()
		right := p.binary(p.unary(), own+1)
		p.depth--
		if !p.failed {
			left = p.fold(pos, op, left, right)
		}
	}
	return left
}

func (p *parser) unary() Literal {
	pos := p.tok.pos
	switch {
	case p.is("-"), p.is("+"), p.is("~"), p.is("!"):
		op := p.tok.text
		p.next()
		p.enter()
		v := p.unary()
		p.depth--
		return p.foldUnary(pos, op, v)
	case p.is("("):
		p.next()
		if p.isDotted("s64") || p.isDotted("u64") {
			return p.cast(pos)
		}
		p.enter()
		v := p.constant()
		p.depth--
		p.expect(")")
		return v
	case p.isName("WARP_SZ"):
		p.next()
		return Literal{IntLiteral, 32}
	case p.tok.kind == tokInt, p.tok.kind == tokDecimal:
		v, ok := number(p.tok)
		if !ok {
			p.fail(pos, "malformed number %s", quote(p.tok.text))
			return Literal{}
		}
		p.next()
		return v
	}
	p.expected("a constant")
	return Literal{}
}

// cast reads a cast, (.s64) or (.u64), and its operand. The opening parenthesis was read.
func (p *parser) cast(pos Pos) Literal {
	to, kind := p.tok.text, IntLiteral
	if to == "u64" {
		kind = UintLiteral
	}
	p.next()
	p.expect(")")
	p.enter()
	v := p.unary()
	p.depth--
	if !p.failed && v.Kind > UintLiteral {
		p.fail(pos, "expected an integer after (.%s), found %s", to, v)
	}
	return Literal{kind, v.Bits}
}

func number(t token) (Literal, bool) {
	text := t.text
	if t.kind == tokDecimal {
		v, err := strconv.ParseFloat(text, 64)
		return Literal{DoubleLiteral, math.Float64bits(v)}, err == nil
	}
	base, kind := 10, IntLiteral
	if len(text) > 1 && text[0] == '0' {
		switch text[1] {
		case 'f', 'F':
			v, err := strconv.ParseUint(text[2:], 16, 32)
			return Literal{FloatLiteral, v}, err == nil && len(text) == 10
		case 'd', 'D':
			v, err := strconv.ParseUint(text[2:], 16, 64)
			return Literal{DoubleLiteral, v}, err == nil && len(text) == 18
		case 'x', 'X':
			base, text = 16, text[2:]
		case 'b', 'B':
			base, text = 2, text[2:]
		default:
			base, text = 8, text[1:]
		}
	}
	if last := len(text) - 1; last > 0 && text[last] == 'U' {
		kind, text = UintLiteral, text[:last]
	} else if text == "U" && base == 8 {
		kind, text = UintLiteral, "0"
	}
	v, err := strconv.ParseUint(text, base, 64)
	if v > math.MaxInt64 {
		kind = UintLiteral
	}
	return Literal{kind, v}, err == nil
}

func (p *parser) foldUnary(pos Pos, op string, v Literal) Literal {
	switch {
	case p.failed || op == "+":
	case op == "-" && v.Kind == FloatLiteral:
		v.Bits ^= 1 << 31
	case op == "-" && v.Kind == DoubleLiteral:
		v.Bits ^= 1 << 63
	case v.Kind > UintLiteral:
		p.fail(pos, "expected an integer after %s, found %s", op, v)
	case op == "-":
		if v.Bits == 1<<63 { // -2^63 is signed, though 2^63 itself was read as unsigned
			v.Kind = IntLiteral
		}
		v.Bits = -v.Bits
	case op == "~":
		v.Bits = ^v.Bits
	default:
		v = truth(v.Bits == 0)
	}
	return v
}

func truth(yes bool) Literal {
	if yes {
		return Literal{IntLiteral, 1}
	}
	return Literal{IntLiteral, 0}
}

// choose computes c ? yes : no. If one of two integers is unsigned the result is, whichever
// is chosen.
func (p *parser) choose(pos Pos, c, yes, no Literal) Literal {
	integers := yes.Kind <= UintLiteral
	switch {
	case c.Kind > UintLiteral:
		p.fail(pos, "expected an integer before ?, found %s", c)
	case integers != (no.Kind <= UintLiteral):
		p.fail(pos, "expected two integers or two floating-point numbers after ?, found %s and %s", yes, no)
	}
	chosen := yes
	if c.Bits == 0 {
		chosen = no
	}
	if integers {
		chosen.Kind = max(yes.Kind, no.Kind)
	}
	return chosen
}

// fold computes a binary operator as C does: unsigned if one side is.
func (p *parser) fold(pos Pos, op string, a, b Literal) Literal {
	if a.Kind > UintLiteral || b.Kind > UintLiteral {
		p.fail(pos, "expected integers on both sides of %s, found %s and %s", op, a, b)
		return a
	}
	kind := max(a.Kind, b.Kind)
	signed := kind == IntLiteral
	x, y := int64(a.Bits), int64(b.Bits)
	if (op == "/" || op == "%") && y == 0 {
		p.fail(pos, "division by zero in a constant")
		return a
	}
	var bits uint64
	switch op {
	case "||":
		return truth(x != 0 || y != 0)
	case "&&":
		return truth(x != 0 && y != 0)
	case "==":
		return truth(x == y)
	case "!=":
		return truth(x != y)
	case "<":
		return truth(less(a.Bits, b.Bits, signed))
	case ">":
		return truth(less(b.Bits, a.Bits, signed))
	case "<=":
		return truth(!less(b.Bits, a.Bits, signed))
	case ">=":
		return truth(!less(a.Bits, b.Bits, signed))
	case "|":
		bits = a.Bits | b.Bits
	case "^":
		bits = a.Bits ^ b.Bits
	case "&":
		bits = a.Bits & b.Bits
	case "<<":
		return Literal{a.Kind, a.Bits << min(b.Bits, 64)}
	case ">>":
		if a.Kind == IntLiteral {
			return Literal{a.Kind, uint64(x >> min(b.Bits, 64))}
		}
		return Literal{a.Kind, a.Bits >> min(b.Bits, 64)}
	case "+":
		bits = a.Bits + b.Bits
	case "-":
		bits = a.Bits - b.Bits
	case "*":
		bits = a.Bits * b.Bits
	case "/":
		if bits = a.Bits / b.Bits; signed {
			bits = uint64(x / y)
		}
	case "%":
		if bits = a.Bits % b.Bits; signed {
			bits = uint64(x % y)
		}
	}
	return Literal{kind, bits}
}

func less(a, b uint64, signed bool) bool {
	if signed {
		return int64(a) < int64(b)
	}
	return a < b
}

// offset reads +8, +-8, -8 or nothing.
func (p *parser) offset() int64 {
	if !p.is("+") && !p.is("-") {
		return 0
	}
	pos := p.tok.pos
	v := p.binary(p.unary(), 1) // without ?: whose condition in a+1?2:3 would be the whole sum
	if v.Kind > UintLiteral {
		p.fail(pos, "expected an integer offset, found %s", v)
	}
	return int64(v.Bits)
}
