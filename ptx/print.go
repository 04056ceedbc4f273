package ptx

import (
	"io"
	"strconv"
	"strings"
)

// String returns the module as canonical text: what Parse makes of it is the
// same tree, apart from positions.
func (m *Module) String() string {
	p := &printer{}
	p.module(m)
	return p.out.String()
}

// Format writes the module as String returns it.
func (m *Module) Format(w io.Writer) error {
	_, err := io.WriteString(w, m.String())
	return err
}

// String returns the instruction on one line, without its semicolon.
func (i *Instruction) String() string {
	p := &printer{}
	p.instruction(i)
	return p.out.String()
}

// Name returns opcode and modifiers: "ld.global.f32".
func (i *Instruction) Name() string {
	if len(i.Modifiers) == 0 {
		return i.Opcode
	}
	return i.Opcode + "." + strings.Join(i.Modifiers, ".")
}

// String returns the operand as it is written.
func (o *Operand) String() string {
	p := &printer{}
	p.operand(o)
	return p.out.String()
}

type printer struct {
	out    strings.Builder
	indent int
}

func (p *printer) text(parts ...string) {
	for _, s := range parts {
		p.out.WriteString(s)
	}
}

func (p *printer) line(parts ...string) {
	p.tabs()
	p.text(parts...)
	p.text("\n")
}

func (p *printer) tabs() {
	for range p.indent {
		p.text("\t")
	}
}

func (p *printer) module(m *Module) {
	p.line(".version ", strconv.Itoa(m.Version.Major), ".", strconv.Itoa(m.Version.Minor))
	p.line(".target ", strings.Join(m.Targets, ", "))
	p.line(".address_size ", strconv.Itoa(m.AddressSize))
	for _, item := range m.Items {
		p.text("\n")
		switch item := item.(type) {
		case *Variable:
			p.variable(item)
			p.text(";\n")
		case *Function:
			p.function(item)
		case *Alias:
			p.line(".alias ", item.Name, ", ", item.TargetName, ";")
		case *File:
			p.text(".file ", strconv.Itoa(item.Number), ` "`, item.Name, `"`)
			for _, n := range item.Extra {
				p.text(", ", strconv.FormatUint(n, 10))
			}
			p.text("\n")
		case *Section:
			p.text(".section ", item.Name, "\n{\n", item.Text, "\n}\n")
		case *Pragma:
			p.pragma(item.Strings)
			p.text("\n")
		}
	}
}

func (p *printer) pragma(all []string) {
	p.text(".pragma ")
	for i, s := range all {
		if i > 0 {
			p.text(", ")
		}
		p.text(`"`, s, `"`)
	}
	p.text(";")
}

func (p *printer) numbers(all []uint64) {
	for i, n := range all {
		if i > 0 {
			p.text(", ")
		}
		p.text(strconv.FormatUint(n, 10))
	}
}

func (p *printer) attributes(all []Attribute) {
	if len(all) == 0 {
		return
	}
	p.text(".attribute(")
	for i, a := range all {
		if i > 0 {
			p.text(", ")
		}
		p.text(".", a.Name)
		if len(a.Values) > 0 {
			p.text("(")
			p.numbers(a.Values)
			p.text(")")
		}
	}
	p.text(") ")
}

func (p *printer) variable(v *Variable) {
	if v.Hidden {
		p.text(".hidden ")
	}
	if v.Linkage != Internal {
		p.text(".", v.Linkage.String(), " ")
	}
	p.text(".", v.SpaceName, " ")
	p.attributes(v.Attributes)
	if v.Align != 0 {
		p.text(".align ", strconv.Itoa(v.Align), " ")
	}
	if v.Vector != 0 {
		p.text(".v", strconv.Itoa(v.Vector), " ")
	}
	p.text(".", v.Type.String(), " ")
	if v.Pointer != nil {
		p.text(".ptr ")
		if v.Pointer.Space != NoSpace {
			p.text(".", v.Pointer.Space.String(), " ")
		}
		if v.Pointer.Align != 0 {
			p.text(".align ", strconv.Itoa(v.Pointer.Align), " ")
		}
	}
	p.text(v.Name)
	for i, d := range v.Dims {
		p.text("[")
		if d != 0 || i > 0 {
			p.text(strconv.FormatUint(d, 10))
		}
		p.text("]")
	}
	if v.Init != nil {
		p.text(" = ")
		p.value(v.Init)
	}
}

func (p *printer) value(v *Value) {
	switch v.Kind {
	case LiteralValue:
		p.text(v.Literal.String())
	case ListValue:
		p.text("{")
		for i := range v.Elements {
			if i > 0 {
				p.text(", ")
			}
			p.value(&v.Elements[i])
		}
		p.text("}")
	case FieldValue:
		if p.text(v.Name, " = "); v.Text != "" {
			p.text(v.Text)
		} else {
			p.text(v.Literal.String())
		}
	case SymbolValue:
		if v.Mask != 0 {
			p.text(strconv.FormatUint(v.Mask, 10), "(")
		}
		if v.Generic {
			p.text("generic(", v.Name, ")")
		} else {
			p.text(v.Name)
		}
		p.offset(v.Offset)
		if v.Mask != 0 {
			p.text(")")
		}
	}
}

func (p *printer) offset(n int64) {
	if n != 0 {
		p.text("+", strconv.FormatInt(n, 10))
	}
}

func (p *printer) parameters(all []*Variable) {
	p.text("(")
	for i, v := range all {
		if i > 0 {
			p.text(", ")
		}
		p.variable(v)
	}
	p.text(")")
}

func (p *printer) function(f *Function) {
	if f.Linkage != Internal {
		p.text(".", f.Linkage.String(), " ")
	}
	if f.Entry {
		p.text(".entry ")
	} else {
		p.text(".func ")
	}
	p.attributes(f.Attributes)
	if f.Returns != nil {
		p.parameters(f.Returns)
		p.text(" ")
	}
	p.text(f.Name)
	p.parameters(f.Params)
	p.directives(f.NoReturn, f.Directives, "\n")
	if !f.Defined {
		p.text(";\n")
		return
	}
	p.text("\n{\n")
	p.body(f.Body)
	p.text("}\n")
}

func (p *printer) directives(noReturn bool, all []Directive, separator string) {
	if noReturn {
		p.text(separator, ".noreturn")
	}
	for i := range all {
		d := &all[i]
		p.text(separator)
		if d.Name == "pragma" {
			p.pragma(d.Strings)
			continue
		}
		p.text(".", d.Name)
		if len(d.Values) > 0 {
			p.text(" ")
			p.numbers(d.Values)
		}
	}
}

func (p *printer) body(all []Statement) {
	p.indent++
	for _, s := range all {
		if l, ok := s.(*Label); ok {
			p.text(l.Name, ":\n")
			continue
		}
		p.tabs()
		p.statement(s)
		p.text("\n")
	}
	p.indent--
}

func (p *printer) statement(s Statement) {
	switch s := s.(type) {
	case *Instruction:
		p.instruction(s)
		p.text(";")
	case *RegisterDecl:
		p.registers(s)
	case *Variable:
		p.variable(s)
		p.text(";")
	case *Block:
		p.text("{\n")
		p.body(s.Body)
		p.tabs()
		p.text("}")
	case *Loc:
		p.location(s)
	case *Pragma:
		p.pragma(s.Strings)
	case *TargetList:
		p.targets(s)
	case *Prototype:
		p.text(s.Name, ": .callprototype ")
		if s.Returns != nil {
			p.parameters(s.Returns)
			p.text(" ")
		}
		p.text("_ ")
		p.parameters(s.Params)
		p.directives(s.NoReturn, s.Directives, " ")
		p.text(";")
	}
}

func (p *printer) registers(d *RegisterDecl) {
	p.text(".reg ")
	if d.Vector != 0 {
		p.text(".v", strconv.Itoa(d.Vector), " ")
	}
	p.text(".", d.Type.String(), " ", d.Name)
	if d.Family {
		p.text("<", strconv.Itoa(d.Count), ">")
	}
	p.text(";")
}

func (p *printer) location(l *Loc) {
	p.text(".loc ")
	p.place(l.File, l.Line, l.Column)
	if l.FunctionName != "" {
		p.text(", function_name ", l.FunctionName)
		p.offset(l.FunctionOffset)
	}
	if l.Inlined {
		p.text(", inlined_at ")
		p.place(l.InlinedAt[0], l.InlinedAt[1], l.InlinedAt[2])
	}
}

func (p *printer) place(file, line, column int) {
	p.text(strconv.Itoa(file), " ", strconv.Itoa(line), " ", strconv.Itoa(column))
}

func (p *printer) targets(t *TargetList) {
	kind := ".branchtargets "
	if t.Calls {
		kind = ".calltargets "
	}
	p.text(t.Name, ": ", kind)
	p.list(t.Targets)
	p.text(";")
}

func (p *printer) instruction(i *Instruction) {
	if g := i.Guard; g != nil {
		p.text("@")
		if g.Negated {
			p.text("!")
		}
		p.text(g.Name, " ")
	}
	p.text(i.Opcode)
	for _, m := range i.Modifiers {
		p.text(".", m)
	}
	if len(i.Operands) > 0 {
		p.text(" ")
		p.list(i.Operands)
	}
}

func (p *printer) list(all []Operand) {
	for i := range all {
		if i > 0 {
			p.text(", ")
		}
		p.operand(&all[i])
	}
}

func (p *printer) operand(o *Operand) {
	if o.Negated {
		p.text("!")
	}
	switch o.Kind {
	case RegisterOperand, SpecialOperand, SymbolOperand:
		p.text(o.Name)
		if o.Component != "" {
			p.text(".", o.Component)
		}
		p.offset(o.Offset)
	case ImmediateOperand:
		p.text(o.Literal.String())
	case AddressOperand:
		p.address(o)
	case VectorOperand:
		p.text("{")
		p.list(o.Elements)
		p.text("}")
	case PairOperand:
		p.operand(&o.Elements[0])
		p.text("|")
		p.operand(&o.Elements[1])
	case ListOperand:
		p.text("(")
		p.list(o.Elements)
		p.text(")")
	case SinkOperand:
		p.text("_")
	}
}

func (p *printer) address(o *Operand) {
	p.text("[")
	if o.Name == "" {
		p.text(strconv.FormatInt(o.Offset, 10))
	} else {
		p.text(o.Name)
		p.offset(o.Offset)
	}
	for i := range o.Elements {
		p.text(", ")
		p.operand(&o.Elements[i])
	}
	p.text("]")
}
