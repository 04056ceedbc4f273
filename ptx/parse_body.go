package ptx

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

func (p *parser) functionItem(pos Pos, linkage Linkage) {
	f := &Function{Pos: pos, Linkage: linkage, Entry: p.tok.text == "entry"}
	p.function, p.scope, p.loc = f, newScope(nil), nil
	p.next()
	for p.isDotted("attribute") {
		p.next()
		f.Attributes = append(f.Attributes, p.attributes()...)
	}
	if !f.Entry && p.is("(") {
		f.Returns = p.parameters()
		layout(f.Returns)
	}
	f.Pos = p.tok.pos
	f.Name = p.name("a function name")
	if p.is("(") {
		f.Params = p.parameters()
		f.ParamSize = layout(f.Params)
	}
	p.checkParameters(f)
	f.NoReturn, f.Directives = p.functionDirectives()
	switch {
	case p.failed:
	case p.accept(";"):
	case p.is("{"):
		f.Defined = true
	default:
		p.expected(`"{" or ";" after the head of the function`)
	}
	if p.failed {
		return
	}
	p.module.Items = append(p.module.Items, f)
	p.module.Functions = append(p.module.Functions, f)
	p.declareModule(f.Name, f)
	if f.Defined {
		p.next()
		f.Body = p.body()
		p.expect("}")
	}
	for p.scope != nil {
		p.closeScope()
	}
	p.function = nil
}

// parameters reads a list in parentheses and enters its names in the scope.
func (p *parser) parameters() []*Variable {
	all := p.parameterList(p.function.Entry)
	if p.failed {
		return nil
	}
	for _, v := range all {
		if v.Space != RegSpace {
			p.declare(p.scope, v.Name, v)
			continue
		}
		v.Register = &Register{Name: v.Name, Index: len(p.function.Registers), Type: v.Type, Vector: v.Vector, Pos: v.Pos}
		p.function.Registers = append(p.function.Registers, v.Register)
		p.declare(p.scope, v.Name, v.Register)
	}
	return all
}

// parameterList reads a list in parentheses; a kernel's parameters may be hidden.
func (p *parser) parameterList(kernel bool) []*Variable {
	var all []*Variable
	p.expect("(")
	for !p.is(")") && !p.failed {
		hidden := kernel && p.isDotted("hidden")
		if hidden {
			p.next()
		}
		if !p.isDotted("param") && !p.isDotted("reg") {
			p.expected(".param")
			return nil
		}
		v := p.declarator(Internal)
		v.Hidden = hidden
		p.named(&v)
		p.checkSize(&v)
		all = append(all, &v)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return all
}

// checkParameters refuses parameters of a kernel that no launch could pass.
func (p *parser) checkParameters(f *Function) {
	if !f.Entry || p.failed {
		return
	}
	most := p.module.maxParameters()
	for _, v := range f.Params {
		if v.Size() == 0 {
			p.report(v.Pos, "parameter %s of kernel %s has no bytes: say how long the array is", quote(v.Name), quote(f.Name))
			return
		}
		if v.Offset+v.Size() > most {
			p.report(v.Pos, "the parameters of kernel %s take %d bytes up to %s; in PTX %d.%d for %s they may take %d",
				quote(f.Name), v.Offset+v.Size(), quote(v.Name), p.module.Version.Major, p.module.Version.Minor, strings.Join(p.module.Targets, ", "), most)
			return
		}
	}
}

// maxParameters returns how many bytes of parameters a kernel may have: the
// limits of the PTX manual (the directive .entry), and for GPUs before sm_70
// always the old one.
func (m *Module) maxParameters() int {
	const before, since = 4352, 32764
	if m.Version.Major < 8 || m.Version == (Version{8, 0}) {
		return before
	}
	for _, t := range m.Targets {
		var sm int
		if n, _ := fmt.Sscanf(t, "sm_%d", &sm); n == 1 && sm < 70 {
			return before
		}
	}
	return since
}

// layout assigns the parameters' offsets and returns their total size.
func layout(all []*Variable) int {
	at := 0
	for _, v := range all {
		align := v.Alignment()
		at = (at + align - 1) / align * align
		v.Offset = at
		at += min(v.Size(), math.MaxInt32)
	}
	return at
}

// functionDirectives reads the directives between the head of a function and its body.
func (p *parser) functionDirectives() (noReturn bool, all []Directive) {
	for p.tok.kind == tokDotted {
		d := Directive{Pos: p.tok.pos, Name: p.tok.text}
		switch d.Name {
		case "noreturn":
			noReturn = true
			p.next()
			continue
		case "pragma":
			p.next()
			d.Strings = p.strings()
			p.expect(";")
		case "maxntid", "reqntid", "minnctapersm", "maxnctapersm", "maxnreg", "reqnctapercluster", "maxclusterrank", "abi_preserve", "abi_preserve_control":
			p.next()
			d.Values = p.integers()
		case "explicitcluster", "blocksareclusters", "unique":
			p.next()
		default:
			p.expected("a directive such as .maxntid, or the body")
		}
		all = append(all, d)
	}
	return noReturn, all
}

// body reads statements up to the closing brace, which it does not read. After a bad statement it
// continues with the next.
func (p *parser) body() []Statement {
	var all []Statement
	for !p.is("}") && p.tok.kind != tokEnd {
		start := p.tok.from
		all = p.statement(all)
		if p.failed {
			p.resume()
			p.recoverStatement(start)
		}
	}
	return all
}

// recoverStatement skips past the next semicolon, or to a closing brace at the beginning of a line.
// start is where the failed statement began.
func (p *parser) recoverStatement(start int) {
	for p.tok.kind != tokEnd {
		if p.is("}") && p.tok.first && p.tok.from != start {
			return
		}
		end := p.is(";")
		p.advance()
		if end {
			break
		}
	}
	if p.tok.kind == tokInvalid {
		p.fail(p.tok.pos, "%s", p.tok.text)
		p.resume()
		p.recoverStatement(p.tok.from)
	}
}

func (p *parser) statement(all []Statement) []Statement {
	pos := p.tok.pos
	switch {
	case p.tok.kind == tokName:
		word := p.tok.text
		p.next()
		if p.accept(":") {
			return append(all, p.labelled(pos, word))
		}
		return p.instruction(all, pos, nil, word)
	case p.is("@"):
		guard := p.guard()
		return p.instruction(all, pos, guard, p.name("an instruction"))
	case p.is("{"):
		return append(all, p.block())
	case p.accept(";"):
		return all
	case p.tok.kind == tokDotted:
		return p.bodyDirective(all)
	}
	p.expected("an instruction, a directive or a label")
	return all
}

func (p *parser) block() *Block {
	b := &Block{Pos: p.tok.pos}
	p.enter()
	if p.failed {
		p.depth--
		return b
	}
	p.next()
	p.scope = newScope(p.scope)
	b.Body = p.body()
	p.closeScope()
	p.depth--
	p.expect("}")
	return b
}

func (p *parser) bodyDirective(all []Statement) []Statement {
	pos := p.tok.pos
	switch word := p.tok.text; {
	case word == "reg":
		for _, d := range p.registers() {
			p.declareRegister(p.scope, d)
			all = append(all, d)
		}
	case word == "loc":
		p.next()
		if l := p.location(pos); !p.failed {
			p.loc = l
			all = append(all, l)
		}
	case word == "pragma":
		p.next()
		all = append(all, p.pragma(pos))
	case isModuleSpace(word), SpaceOf(word) == ParamSpace:
		for _, v := range p.variables(Internal) {
			p.declare(p.scope, v.Name, v)
			p.function.Variables = append(p.function.Variables, v)
			all = append(all, v)
		}
	case word == "extern":
		p.next()
		if p.tok.kind != tokDotted || !isModuleSpace(p.tok.text) {
			p.expected("a state space such as .shared")
			return all
		}
		for _, v := range p.variables(Extern) {
			p.declare(p.scope, v.Name, v)
			p.function.Variables = append(p.function.Variables, v)
			all = append(all, v)
		}
	default:
		p.expected("a directive such as .reg, .local or .loc")
	}
	return all
}

// registers reads .reg .b32 %a, %r<10>;
func (p *parser) registers() []*RegisterDecl {
	head := p.declarator(Internal)
	var all []*RegisterDecl
	for {
		d := &RegisterDecl{Pos: p.tok.pos, Type: head.Type, Vector: head.Vector, Count: 1}
		d.Name = p.name("a register name")
		if p.accept("<") {
			d.Family = true
			d.Count = p.count()
			p.expect(">")
		}
		all = append(all, d)
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
	if p.failed {
		return nil
	}
	return all
}

// count reads the number in %r<10>. It does not read an expression, in which > would be an operator.
func (p *parser) count() int {
	if p.tok.kind != tokInt {
		p.expected("a number of registers")
		return 0
	}
	v, ok := number(p.tok)
	if !ok || v.Kind > UintLiteral || v.Bits > math.MaxInt32 {
		p.expected("a number of registers below 2147483648")
		return 0
	}
	p.next()
	return int(v.Bits)
}

func (p *parser) location(pos Pos) *Loc {
	l := &Loc{Pos: pos}
	l.File, l.Line, l.Column = p.place()
	for p.is(",") && !p.failed {
		p.next()
		switch {
		case p.isName("function_name"):
			p.next()
			l.FunctionName = p.name("a label")
			l.FunctionOffset = p.offset()
		case p.isName("inlined_at"):
			p.next()
			l.Inlined = true
			l.InlinedAt[0], l.InlinedAt[1], l.InlinedAt[2] = p.place()
		default:
			p.expected("function_name or inlined_at")
		}
	}
	return l
}

func (p *parser) place() (file, line, column int) {
	file = int(p.integer("a file number", math.MaxInt32))
	line = int(p.integer("a line number", math.MaxInt32))
	column = int(p.integer("a column number", math.MaxInt32))
	return file, line, column
}

// labelled reads what a label names: a list of targets, a prototype, or the place of the next
// instruction.
func (p *parser) labelled(pos Pos, name string) Statement {
	switch {
	case p.isDotted("branchtargets"), p.isDotted("calltargets"):
		t := &TargetList{Pos: pos, Name: name, Calls: p.tok.text == "calltargets"}
		p.next()
		for {
			t.Targets = append(t.Targets, Operand{Pos: p.tok.pos, Kind: SymbolOperand, Name: p.name("a target")})
			if !p.accept(",") {
				break
			}
		}
		p.expect(";")
		if !p.failed {
			p.resolveOperands(t.Targets)
			p.declare(p.scope, name, t)
		}
		return t
	case p.isDotted("callprototype"):
		t := &Prototype{Pos: pos, Name: name}
		p.next()
		if p.is("(") {
			t.Returns = p.parameterList(false)
			layout(t.Returns)
		}
		p.name("_ for the function's name")
		if p.is("(") {
			t.Params = p.parameterList(false)
			layout(t.Params)
		}
		t.NoReturn, t.Directives = p.functionDirectives()
		p.expect(";")
		if !p.failed {
			p.declare(p.scope, name, t)
		}
		return t
	}
	l := &Label{Pos: pos, Name: name, Target: len(p.function.Code)}
	p.function.Labels = append(p.function.Labels, l)
	if name == "_" {
		p.fail(pos, "a label cannot be called _")
	}
	p.declare(p.scope, name, l)
	return l
}

func (p *parser) guard() *Guard {
	p.next()
	g := &Guard{Negated: p.accept("!"), Pos: p.tok.pos}
	g.Name = p.name("a predicate")
	if p.failed {
		return g
	}
	switch found := p.lookup(g.Name).(type) {
	case *Register:
		g.Register = found
		if found.Type != Pred || found.Vector != 0 {
			p.report(g.Pos, "expected a .pred register as guard, found %s of type .%s", quote(g.Name), found.Type)
		}
	case nil:
		p.report(g.Pos, "the guard %s is not declared as a .pred register", quote(g.Name))
	default:
		p.report(g.Pos, "expected a .pred register as guard, found %s", quote(g.Name))
	}
	return g
}

func (p *parser) instruction(all []Statement, pos Pos, guard *Guard, opcode string) []Statement {
	if p.failed {
		return all
	}
	if c := opcode[0]; c < 'a' || c > 'z' {
		p.fail(pos, "expected an instruction, a directive or a label with its colon, found %s", quote(opcode))
		return all
	}
	i := &Instruction{Pos: pos, Guard: guard, Opcode: opcode, Loc: p.loc}
	i.Modifiers, i.Types = p.modifiers()
	call := opcode == "call"
	if !p.is(";") {
		base := len(p.pile)
		p.push(p.operand(call))
		for p.accept(",") {
			p.push(p.operand(call))
		}
		i.Operands = p.unpile(base)
	}
	if !p.is(";") {
		p.expected(`"," or ";"`)
	}
	p.accept(";")
	if p.failed {
		return all
	}
	p.resolveOperands(i.Operands)
	if call {
		p.checkCall(i)
	}
	p.function.Code = append(p.function.Code, i)
	return append(all, i)
}

func (p *parser) modifiers() ([]string, []Type) {
	p.words, p.types = p.words[:0], p.types[:0]
	for p.tok.kind == tokDotted {
		p.words = append(p.words, p.tok.text)
		if t := TypeOf(p.tok.text); t != NoType {
			p.types = append(p.types, t)
		}
		p.next()
	}
	return slices.Clone(p.words), slices.Clone(p.types)
}

func (p *parser) push(o Operand) { p.pile = append(p.pile, o) }

// unpile pops the operands above base off the pile. They are collected there so that the
// slice in the tree is allocated once, with the right size.
func (p *parser) unpile(base int) []Operand {
	if len(p.pile) == base {
		return nil
	}
	all := slices.Clone(p.pile[base:])
	p.pile = p.pile[:base]
	return all
}

// checkCall checks that the operands have the form that Instruction.Call expects.
func (p *parser) checkCall(i *Instruction) {
	ops := i.Operands
	if len(ops) > 0 && ops[0].Kind == ListOperand {
		ops = ops[1:]
	}
	if len(ops) == 0 || ops[0].Kind != SymbolOperand && ops[0].Kind != RegisterOperand {
		p.report(i.Pos, "expected call (results), function, (arguments); found no function")
		return
	}
	ops = ops[1:]
	if len(ops) > 0 && ops[0].Kind == ListOperand {
		ops = ops[1:]
	}
	if len(ops) > 1 || len(ops) == 1 && ops[0].Kind != SymbolOperand {
		p.report(ops[0].Pos, "expected a prototype or a list of targets after the arguments of the call")
	}
}

// operand reads one operand; in a call, parentheses are a list and not an expression.
func (p *parser) operand(call bool) Operand {
	o := Operand{Pos: p.tok.pos}
	switch {
	case p.is("("):
		if !call {
			o.Kind, o.Literal = ImmediateOperand, p.constant()
			return o
		}
		o.Kind = ListOperand
		o.Elements = p.operands("(", ")")
	case p.is("{"):
		o.Kind = VectorOperand
		o.Elements = p.operands("{", "}")
	case p.is("["):
		p.address(&o)
	case p.is("!"):
		p.next()
		if p.tok.kind == tokInt || p.is("(") {
			o.Kind = ImmediateOperand
			o.Literal = p.constantFrom(p.foldUnary(o.Pos, "!", p.unary()))
			return o
		}
		o = p.nameOperand(o)
		o.Negated = true
	case p.tok.kind == tokName && p.tok.text != "WARP_SZ":
		o = p.nameOperand(o)
		if p.is("|") {
			return p.pair(o)
		}
	case p.tok.kind == tokInt, p.tok.kind == tokDecimal, p.tok.kind == tokName, p.is("-"), p.is("+"), p.is("~"):
		o.Kind, o.Literal = ImmediateOperand, p.constant()
	default:
		p.expected("an operand")
	}
	return o
}

// nameOperand reads a name and a component or an offset that may follow it.
func (p *parser) nameOperand(o Operand) Operand {
	if p.isName("_") {
		o.Kind = SinkOperand
		p.next()
		return o
	}
	o.Kind = SymbolOperand
	o.Name = p.name("a register")
	if p.tok.kind == tokDotted {
		o.Component = p.tok.text
		p.next()
	}
	o.Offset = p.offset()
	return o
}

func (p *parser) pair(first Operand) Operand {
	p.next()
	second := p.nameOperand(Operand{Pos: p.tok.pos})
	return Operand{Pos: first.Pos, Kind: PairOperand, Elements: []Operand{first, second}}
}

func (p *parser) operands(open, closing string) []Operand {
	p.expect(open)
	p.enter()
	base := len(p.pile)
	for !p.is(closing) && !p.failed {
		p.push(p.operand(false))
		if !p.accept(",") {
			break
		}
	}
	p.depth--
	p.expect(closing)
	return p.unpile(base)
}

// address reads [base+offset] and, for textures and tensors, [base, more...].
func (p *parser) address(o *Operand) {
	o.Kind = AddressOperand
	p.next()
	p.enter()
	switch {
	case p.tok.kind == tokName && p.tok.text != "WARP_SZ":
		o.Name = p.name("an address")
		o.Offset = p.offset()
	default:
		pos := p.tok.pos
		v := p.constant()
		if v.Kind > UintLiteral {
			p.fail(pos, "expected an integer address, found %s", v)
		}
		o.Offset = int64(v.Bits)
	}
	base := len(p.pile)
	for p.accept(",") {
		p.push(p.operand(false))
	}
	o.Elements = p.unpile(base)
	p.depth--
	p.expect("]")
}
