package ptx

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// MaxSource is how many bytes of text Parse reads.
const MaxSource = 1 << 28

const (
	maxNesting = 64      // blocks in blocks, braces in braces, parentheses in parentheses
	maxSize    = 1 << 40 // bytes of one variable
)

// parser reads by recursive descent. After the first error in a statement (fail), every
// token reads as the end of the file, so that all loops and recursions stop without
// checking for errors. The loop over statements (body) or items (readModule) then calls
// resume and skips to the next statement or item.
// Its many methods are one a form of PTX (parse.go, parse_body.go), of a
// constant (constant.go) or of a name (scope.go).
type parser struct {
	file   string
	scan   scanner
	tok    token
	failed bool
	behind token // the token at the failure, which resume restores
	errors Errors

	module   *Module
	function *Function // the one being read
	scope    *scope
	loc      *Loc        // the latest .loc, which the next instructions belong to
	waiting  []reference // names that no scope of a function has, for resolveModule
	depth    int         // of nesting; see enter

	// Buffers that are reused for every instruction.
	pile  []Operand
	words []string
	types []Type
}

// Parse reads a module. The name is for error messages only. If anything is
// wrong the error is an Errors, and the module is nil. NUL bytes at the end
// are ignored: images in memory are terminated and padded with them.
func Parse(name, src string) (*Module, error) {
	given := len(src)
	src = strings.TrimRight(src, "\x00")
	p := &parser{file: name, scan: newScanner(src), module: &Module{AddressSize: 32, symbols: map[string]Symbol{}}}
	switch {
	case len(src) > MaxSource:
		p.report(Pos{1, 1}, "the text has %d bytes; the limit is %d", len(src), MaxSource)
		return nil, p.errors
	case src == "" && given > 0:
		p.report(Pos{1, 1}, "this is no PTX text: it is %d NUL bytes and nothing else", given)
		return nil, p.errors
	}
	p.next()
	p.readModule()
	p.resolveModule()
	if len(p.errors) > 0 {
		p.errors.sort()
		return nil, p.errors
	}
	return p.module, nil
}

// report records an error; parsing continues.
func (p *parser) report(pos Pos, format string, args ...any) {
	if len(p.errors) < maxErrors {
		p.errors = append(p.errors, &Error{p.file, pos, fmt.Sprintf(format, args...)})
	}
}

// fail records an error and ends the statement; see parser.
func (p *parser) fail(pos Pos, format string, args ...any) {
	if p.failed {
		return
	}
	p.report(pos, format, args...)
	p.failed = true
	p.behind = p.tok
	p.tok = token{kind: tokEnd, pos: p.tok.pos}
}

func (p *parser) expected(what string) {
	p.fail(p.tok.pos, "expected %s, found %s", what, p.tok.describe())
}

func (t token) describe() string {
	switch t.kind {
	case tokEnd:
		return "the end of the file"
	case tokDotted:
		return quote("." + t.text)
	case tokString:
		return "the string " + quote(t.text)
	}
	return quote(t.text)
}

func (p *parser) next() {
	if p.failed {
		return
	}
	p.tok = p.scan.next()
	if p.tok.kind == tokInvalid {
		p.fail(p.tok.pos, "%s", p.tok.text)
	}
}

// resume continues after a failure, at the token that failed. After maxErrors errors it goes to the
// end of the file instead.
func (p *parser) resume() {
	p.failed = false
	p.tok = p.behind
	if len(p.errors) >= maxErrors {
		p.tok = token{kind: tokEnd, pos: p.tok.pos}
		p.scan.at = len(p.scan.src)
	}
}

// advance is next while skipping to a place to continue: invalid text is no error then.
func (p *parser) advance() { p.tok = p.scan.next() }

func (p *parser) is(punct string) bool { return p.tok.kind == tokPunct && p.tok.text == punct }

func (p *parser) isDotted(word string) bool { return p.tok.kind == tokDotted && p.tok.text == word }

func (p *parser) accept(punct string) bool {
	if p.is(punct) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(punct string) {
	if !p.accept(punct) {
		p.expected(`"` + punct + `"`)
	}
}

func (p *parser) name(what string) string {
	if p.tok.kind != tokName {
		p.expected(what)
		return ""
	}
	text := p.tok.text
	p.next()
	return text
}

func (p *parser) str(what string) string {
	if p.tok.kind != tokString {
		p.expected(what)
		return ""
	}
	text := p.tok.text
	p.next()
	return text
}

// integer reads a constant from 0 to most.
func (p *parser) integer(what string, most uint64) uint64 {
	pos := p.tok.pos
	if p.tok.kind != tokInt && !p.is("(") && !p.isName("WARP_SZ") {
		p.expected(what)
		return 0
	}
	v := p.constant()
	if p.failed {
		return 0
	}
	if v.Kind != UintLiteral && (v.Kind != IntLiteral || int64(v.Bits) < 0) || v.Bits > most {
		p.fail(pos, "expected %s of at most %d, found %s", what, most, v)
		return 0
	}
	return v.Bits
}

func (p *parser) isName(text string) bool { return p.tok.kind == tokName && p.tok.text == text }

func (p *parser) readModule() {
	if !p.isDotted("version") {
		p.expected(".version as the first directive")
	} else {
		p.next()
		p.version()
	}
	if p.failed {
		return
	}
	if !p.isDotted("target") {
		p.expected(".target after .version")
		return
	}
	for {
		start := p.tok.from
		if p.tok.kind == tokEnd {
			return
		}
		p.readItem()
		if p.failed {
			p.resume()
			p.recoverModule(start)
		}
	}
}

// recoverModule skips to the next line that begins with a directive of a module. start is where
// the failed item began; it skips at least one token, so that parsing makes progress.
func (p *parser) recoverModule(start int) {
	p.scope, p.function, p.loc, p.depth = nil, nil, nil, 0
	if p.tok.from == start {
		p.advance()
	}
	for p.tok.kind != tokEnd {
		if p.tok.first && p.tok.kind == tokDotted && p.tok.pos.Column == 1 && startsItem(p.tok.text) {
			return
		}
		p.advance()
	}
}

func startsItem(word string) bool {
	switch word {
	case "entry", "func", "global", "const", "visible", "extern", "weak", "common", "target", "address_size", "file", "section", "alias":
		return true
	}
	return false
}

func (p *parser) readItem() {
	if p.tok.kind != tokDotted {
		p.expected("a directive such as .visible, .entry or .global")
		return
	}
	pos := p.tok.pos
	switch p.tok.text {
	case "version":
		p.expected("only one .version")
	case "target":
		p.next()
		p.targets()
	case "address_size":
		p.next()
		size := p.integer("32 or 64", 64)
		if size != 32 && size != 64 {
			p.fail(pos, "expected .address_size 32 or 64, found %d", size)
		}
		p.module.AddressSize = int(size)
	case "file":
		p.next()
		p.fileItem(pos)
	case "section":
		p.next()
		p.section(pos)
	case "pragma":
		p.next()
		p.module.Items = append(p.module.Items, p.pragma(pos))
	case "alias":
		p.next()
		p.alias(pos)
	default:
		p.linked(pos)
	}
}

func (p *parser) version() {
	major, minor := 0, 0
	if p.tok.kind == tokDecimal {
		if n, err := fmt.Sscanf(p.tok.text, "%d.%d", &major, &minor); n != 2 || err != nil {
			major = 0
		}
	}
	if major < 1 || fmt.Sprintf("%d.%d", major, minor) != p.tok.text {
		p.expected("a version such as 8.5")
		return
	}
	switch {
	case major > 9:
		p.fail(p.tok.pos, "this is PTX %s, and PTX 2.3 to 9.x can be read: compile the source with an older nvcc or clang", p.tok.text)
		return
	case major < 2 || major == 2 && minor < 3:
		// Before 2.3 a text could not say how wide its addresses are.
		p.fail(p.tok.pos, "this is PTX %s, and PTX 2.3 to 9.x can be read: compile the source with nvcc 4.0 or later, or with clang", p.tok.text)
		return
	}
	p.module.Version = Version{major, minor}
	p.next()
}

func (p *parser) targets() {
	for {
		p.module.Targets = append(p.module.Targets, p.name("a target such as sm_70"))
		if !p.accept(",") {
			return
		}
	}
}

func (p *parser) fileItem(pos Pos) {
	f := &File{Pos: pos, Number: int(p.integer("a file number", math.MaxInt32))}
	f.Name = p.str("a file name in quotes")
	for p.accept(",") {
		f.Extra = append(f.Extra, p.integer("a number", math.MaxInt64))
	}
	if !p.failed {
		p.module.Items = append(p.module.Items, f)
	}
}

func (p *parser) section(pos Pos) {
	s := &Section{Pos: pos}
	if p.tok.kind != tokDotted && p.tok.kind != tokName {
		p.expected("a section name such as .debug_info")
		return
	}
	s.Name = p.scan.src[p.tok.from:p.tok.through]
	p.next()
	if !p.is("{") {
		p.expected(`"{"`)
		return
	}
	from := p.tok.through
	for depth := 1; depth > 0; {
		p.next()
		switch {
		case p.tok.kind == tokEnd:
			p.expected(`"}" at the end of the section`)
			return
		case p.is("{"):
			depth++
		case p.is("}"):
			depth--
		}
	}
	s.Text = trimSpace(p.scan.src[from:p.tok.from])
	p.module.Items = append(p.module.Items, s)
	p.next()
}

// trimSpace removes what the scanner counts as white space at both ends.
func trimSpace(text string) string {
	blank := func(c byte) bool { return c == '\n' || charClass[c]&isSpace != 0 }
	for text != "" && blank(text[0]) {
		text = text[1:]
	}
	for text != "" && blank(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return text
}

func (p *parser) pragma(pos Pos) *Pragma {
	g := &Pragma{Pos: pos, Strings: p.strings()}
	p.expect(";")
	return g
}

func (p *parser) strings() []string {
	all := []string{p.str("a string")}
	for p.accept(",") {
		all = append(all, p.str("a string"))
	}
	return all
}

func (p *parser) alias(pos Pos) {
	a := &Alias{Pos: pos, Name: p.name("a function name")}
	p.expect(",")
	target := p.tok.pos
	a.TargetName = p.name("the name of the function it stands for")
	p.expect(";")
	if p.failed {
		return
	}
	p.module.Items = append(p.module.Items, a)
	p.waiting = append(p.waiting, reference{a.TargetName, target, &a.Target})
	if f, ok := p.module.symbols[a.Name].(*Function); ok && !f.Defined {
		p.module.symbols[a.Name] = a
		return
	}
	p.declareModule(a.Name, a)
}

// linked reads an item that may begin with a linkage: variables or a function.
func (p *parser) linked(pos Pos) {
	linkage := Internal
	for p.tok.kind == tokDotted {
		l, ok := linkageOf(p.tok.text)
		if !ok {
			break
		}
		linkage = l
		p.next()
	}
	switch {
	case p.isDotted("entry"), p.isDotted("func"):
		p.functionItem(pos, linkage)
	case p.tok.kind == tokDotted && isModuleSpace(p.tok.text):
		for _, v := range p.variables(linkage) {
			p.module.Items = append(p.module.Items, v)
			p.module.Variables = append(p.module.Variables, v)
			p.declareModule(v.Name, v)
		}
	default:
		p.expected("a directive such as .entry, .func or .global")
	}
}

func isModuleSpace(word string) bool {
	switch SpaceOf(word) {
	case ConstSpace, GlobalSpace, SharedSpace, LocalSpace, TexSpace:
		return true
	}
	return false
}

// variables reads a whole declaration: .global .align 4 .u32 a, b[2] = {1, 2};
func (p *parser) variables(linkage Linkage) []*Variable {
	head := p.declarator(linkage)
	var all []*Variable
	for {
		v := new(Variable)
		*v = head
		p.named(v)
		if p.accept("=") {
			v.Init = p.initializer(v)
		}
		p.checkSize(v)
		all = append(all, v)
		if !p.accept(",") {
			break
		}
	}
	p.expect(";")
	if p.failed {
		return nil
	}
	for _, v := range all {
		if v.Init != nil {
			p.resolveValue(v.Init)
		}
	}
	return all
}

// declarator reads space, alignment, vector and type, in any order after the space.
func (p *parser) declarator(linkage Linkage) Variable {
	v := Variable{Linkage: linkage, Function: p.function, Space: SpaceOf(p.tok.text), SpaceName: p.tok.text}
	p.next()
	for p.tok.kind == tokDotted {
		word := p.tok.text
		switch {
		case word == "align":
			p.next()
			v.Align = p.alignment()
		case word == "attribute":
			p.next()
			v.Attributes = append(v.Attributes, p.attributes()...)
		case word == "ptr" && v.Space == ParamSpace:
			p.next()
			v.Pointer = p.pointer()
		case vectorOf(word) != 0 && v.Vector == 0:
			v.Vector = vectorOf(word)
			p.next()
		case TypeOf(word) != NoType && v.Type == NoType:
			v.Type = TypeOf(word)
			p.next()
		default:
			p.expected("a type, .align or a name")
		}
	}
	if v.Type == NoType {
		p.expected("a type such as .u32")
	}
	return v
}

func (p *parser) alignment() int {
	pos := p.tok.pos
	n := p.integer("an alignment", 1<<30)
	if !p.failed && (n == 0 || n&(n-1) != 0) {
		p.fail(pos, "expected a power of two as alignment, found %d", n)
	}
	return int(n)
}

func (p *parser) attributes() []Attribute {
	var all []Attribute
	p.expect("(")
	for {
		if p.tok.kind != tokDotted {
			p.expected("an attribute such as .managed")
			return nil
		}
		a := Attribute{Name: p.tok.text}
		p.next()
		if p.accept("(") {
			a.Values = p.integers()
			p.expect(")")
		}
		all = append(all, a)
		if !p.accept(",") {
			break
		}
	}
	p.expect(")")
	return all
}

func (p *parser) integers() []uint64 {
	all := []uint64{p.integer("a number", math.MaxUint64)}
	for p.accept(",") {
		all = append(all, p.integer("a number", math.MaxUint64))
	}
	return all
}

func (p *parser) pointer() *Pointer {
	ptr := &Pointer{}
	if p.tok.kind == tokDotted && SpaceOf(p.tok.text) != NoSpace {
		ptr.Space = SpaceOf(p.tok.text)
		p.next()
	}
	if p.isDotted("align") {
		p.next()
		ptr.Align = p.alignment()
	}
	return ptr
}

// named reads the name of a variable and its dimensions.
func (p *parser) named(v *Variable) {
	v.Pos = p.tok.pos
	v.Name = p.name("a name")
	for p.accept("[") {
		if p.accept("]") {
			if len(v.Dims) > 0 {
				p.fail(v.Pos, "only the first dimension of %s can be left open", quote(v.Name))
			}
			v.Dims = append(v.Dims, 0)
			continue
		}
		if len(v.Dims) == maxNesting {
			p.fail(p.tok.pos, "more than %d dimensions", maxNesting)
		}
		v.Dims = append(v.Dims, p.integer("a dimension", maxSize))
		p.expect("]")
	}
}

func (p *parser) checkSize(v *Variable) {
	if p.failed {
		return
	}
	size := uint64(max(1, v.ElementSize()))
	for _, d := range v.Dims {
		if d != 0 && size > maxSize/d {
			p.fail(v.Pos, "%s is larger than %d bytes", quote(v.Name), int64(maxSize))
			return
		}
		size *= max(1, d)
	}
}

func (p *parser) initializer(v *Variable) *Value {
	init := p.value()
	if p.failed {
		return nil
	}
	if v.Open() && init.Kind == ListValue {
		v.Dims = slices.Clone(v.Dims)
		v.Dims[0] = uint64(len(init.Elements))
	}
	return &init
}

func (p *parser) value() Value {
	v := Value{Pos: p.tok.pos}
	switch {
	case p.is("{"):
		v.Kind = ListValue
		v.Elements = p.values()
	case p.isName("generic"):
		p.next()
		p.expect("(")
		v.Kind, v.Generic = SymbolValue, true
		v.Name = p.name("a symbol")
		v.Offset = p.offset()
		p.expect(")")
		v.Offset += p.offset()
	case p.tok.kind == tokName && p.tok.text != "WARP_SZ":
		v.Kind = SymbolValue
		v.Name = p.name("a value")
		if p.accept("=") {
			p.field(&v)
			return v
		}
		v.Offset = p.offset()
	default:
		v.Literal = p.constant()
		if p.accept("(") {
			p.masked(&v)
		}
	}
	return v
}

func (p *parser) values() []Value {
	p.next()
	p.enter()
	var all []Value
	for !p.is("}") && !p.failed {
		all = append(all, p.value())
		if !p.accept(",") {
			break
		}
	}
	p.expect("}")
	p.depth--
	return all
}

// field reads the value of a sampler's field, after "addr_mode_0 =".
func (p *parser) field(v *Value) {
	v.Kind = FieldValue
	if p.tok.kind == tokName {
		v.Text = p.name("a value")
		return
	}
	v.Literal = p.constant()
}

// masked reads the symbol of 0xff(symbol), which stands for one byte of an address. The mask and the
// opening parenthesis were read.
func (p *parser) masked(v *Value) {
	if v.Literal.Kind > UintLiteral || v.Literal.Bits == 0 {
		p.fail(v.Pos, "expected a mask such as 0xff before the parenthesis, found %s", v.Literal)
	}
	inner := p.value()
	p.expect(")")
	if !p.failed && (inner.Kind != SymbolValue || inner.Mask != 0) {
		p.fail(inner.Pos, "expected a symbol under the mask")
	}
	inner.Pos, inner.Mask = v.Pos, v.Literal.Bits
	*v = inner
}

func (p *parser) resolveValue(v *Value) {
	for i := range v.Elements {
		p.resolveValue(&v.Elements[i])
	}
	if v.Kind == SymbolValue {
		p.waiting = append(p.waiting, reference{v.Name, v.Pos, &v.Symbol})
	}
}

// enter counts a level of nesting, and fails beyond maxNesting: hostile text could otherwise exhaust
// the stack. The caller lowers depth when it leaves the level.
func (p *parser) enter() {
	if p.depth++; p.depth > maxNesting {
		p.fail(p.tok.pos, "nested more than %d deep", maxNesting)
	}
}
