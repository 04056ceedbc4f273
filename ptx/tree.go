// Package ptx reads PTX text, as nvcc and clang write it, into a typed tree
// with all names resolved, and writes such a tree back as text.
//
// It knows the grammar, the types, the state spaces and the scopes. It does
// not know what an instruction means: opcodes and their modifiers are kept as
// written, and the engine that lowers the tree decides which it accepts. The
// type of an operation is in the instruction's suffixes. The declared type of
// a register matters only for its width, since newer compilers keep floats in .b32.
package ptx

import (
	"fmt"
	"slices"
)

// Pos is a place in the text; both numbers start at 1, columns count bytes.
type Pos struct{ Line, Column int }

// Position returns p, so that types which embed a Pos have the method.
func (p Pos) Position() Pos { return p }

// Module is one PTX file.
type Module struct {
	Version     Version
	Targets     []string // "sm_90", then options such as "debug"
	AddressSize int      // 32 or 64; 32 when the file does not say

	// Items are all declarations in the order of the file. Variables and
	// Functions are the variables and functions among them, forward declarations included.
	Items     []Item
	Variables []*Variable
	Functions []*Function

	symbols map[string]Symbol
}

// Version is the version of the PTX ISA a file is written in.
type Version struct{ Major, Minor int }

// Lookup returns the variable, function or alias with a name: its definition
// where there is one, otherwise its first declaration; nil if there is none.
func (m *Module) Lookup(name string) Symbol { return m.symbols[name] }

// Function returns the function or kernel with a name or an alias, or nil.
func (m *Module) Function(name string) *Function {
	symbol := m.symbols[name]
	if a, ok := symbol.(*Alias); ok {
		symbol = a.Target
	}
	f, _ := symbol.(*Function)
	return f
}

// Item is a declaration of a module: *Variable, *Function, *Alias, *File, *Section or *Pragma.
type Item interface{ item() }

// Symbol is what a name can refer to: *Register, *Variable, *Function,
// *Alias, *Label, *TargetList or *Prototype.
type Symbol interface {
	Position() Pos
	SymbolName() string
}

// Alias gives a function a second name.
type Alias struct {
	Pos
	Name       string
	TargetName string
	Target     Symbol
}

// File is an entry of the table of source files, which .loc refers to.
type File struct {
	Pos
	Number int
	Name   string   // as written between the quotes
	Extra  []uint64 // time and size, where given
}

// Section is debugging information, kept as text.
type Section struct {
	Pos
	Name string
	Text string
}

// Pragma holds strings for the compiler that translates PTX to machine code. It may be in a module, a
// function's head or a body.
type Pragma struct {
	Pos
	Strings []string // as written between the quotes
}

// Variable is a named piece of a state space: global, shared, a parameter and so on.
type Variable struct {
	Pos
	Name       string // "_" in a prototype
	Linkage    Linkage
	Space      Space
	SpaceName  string // as written: "shared::cta"
	Type       Type
	Vector     int      // 2, 4 or 8 elements; 0 for a scalar
	Align      int      // as written; 0 if not
	Dims       []uint64 // of an array; a first dimension of 0 is open: []
	Attributes []Attribute
	Pointer    *Pointer // what a kernel's parameter points to, where said
	Hidden     bool     // a kernel's parameter that is no argument of a launch
	Init       *Value

	Function *Function // that declares it; nil for a variable of the module
	Offset   int       // of a parameter in its list, laid out as the ABI does
	Register *Register // of a parameter in the .reg space
}

// Attribute is an entry of .attribute(...): "managed".
type Attribute struct {
	Name   string
	Values []uint64
}

// Pointer describes a parameter with .ptr.
type Pointer struct {
	Space Space
	Align int
}

// Alignment returns the alignment in bytes, the natural one if none is declared.
func (v *Variable) Alignment() int {
	if v.Align != 0 {
		return v.Align
	}
	return max(1, v.ElementSize())
}

// ElementSize returns the bytes of one element of an array, or of a variable that is no array.
func (v *Variable) ElementSize() int { return v.Type.Size() * max(1, v.Vector) }

// Size returns the bytes of the whole; 0 for an open array.
func (v *Variable) Size() int {
	n := v.ElementSize()
	for _, d := range v.Dims {
		n *= int(d)
	}
	return n
}

// Open says whether the array's size is left to the launch: .extern .shared .b8 s[].
func (v *Variable) Open() bool { return len(v.Dims) > 0 && v.Dims[0] == 0 }

// ValueKind is the kind of an initial value.
type ValueKind uint8

// The kinds of initial values.
const (
	LiteralValue ValueKind = iota
	SymbolValue            // the address of Symbol, plus Offset
	ListValue              // { Elements }
	FieldValue             // Name = Text, or Name = Literal if Text is empty: a field of a texture, sampler or surface
)

// Value is the initial value of a variable or of a part of it.
type Value struct {
	Pos
	Kind     ValueKind
	Literal  Literal
	Name     string
	Text     string
	Symbol   Symbol
	Offset   int64
	Generic  bool   // generic(symbol): its generic address
	Mask     uint64 // mask(symbol): only these bits of the address, shifted down; 0 for all
	Elements []Value
}

// Function is a kernel (.entry) or a device function (.func).
type Function struct {
	Pos
	Name       string
	Linkage    Linkage
	Entry      bool
	Returns    []*Variable
	Params     []*Variable
	ParamSize  int // bytes of Params as laid out by their offsets
	NoReturn   bool
	Attributes []Attribute
	Directives []Directive // .maxntid, .reqntid and so on, and pragmas

	Defined bool // it has a body, maybe an empty one
	Body    []Statement

	// The following fields are derived from the body, over all its scopes.

	Code      []*Instruction // in order; labels point into it
	Registers []*Register    // those that are used, by index
	Variables []*Variable    // declared in the body
	Labels    []*Label
}

// Directive is a function's tuning directive, such as .maxntid 256, 1, 1.
type Directive struct {
	Pos
	Name    string // without the dot
	Values  []uint64
	Strings []string // of .pragma
}

// Directive returns the values of a directive such as "maxntid"; ok says whether it is there.
func (f *Function) Directive(name string) (values []uint64, ok bool) {
	for i := range f.Directives {
		if f.Directives[i].Name == name {
			return f.Directives[i].Values, true
		}
	}
	return nil, false
}

// Statement is a line of a body: *Instruction, *Label, *RegisterDecl,
// *Variable, *Block, *Loc, *Pragma, *TargetList or *Prototype.
type Statement interface{ statement() }

// Block is a nested scope in braces.
type Block struct {
	Pos
	Body []Statement
}

// RegisterDecl declares one register, or Count of them numbered from 0: %r<10>.
type RegisterDecl struct {
	Pos
	Name   string // without number for a family
	Type   Type
	Vector int
	Family bool
	Count  int
}

// Register is a register that some instruction uses. Two registers of the
// same name in different scopes are two registers.
type Register struct {
	Pos    // of the declaration
	Name   string
	Index  int // in Function.Registers
	Type   Type
	Vector int
	Decl   *RegisterDecl // nil for a parameter in the .reg space
}

// Label is a place in the code.
type Label struct {
	Pos
	Name   string
	Target int // index into Function.Code; its length for the end
}

// TargetList lists the possible targets of a brx.idx or an indirect call.
type TargetList struct {
	Pos
	Name    string
	Calls   bool      // .calltargets, else .branchtargets
	Targets []Operand // symbols
}

// Prototype describes the signature of the functions that an indirect call may reach.
type Prototype struct {
	Pos
	Name       string
	Returns    []*Variable
	Params     []*Variable
	NoReturn   bool
	Directives []Directive
}

// Loc says which source line the following instructions come from.
type Loc struct {
	Pos
	File, Line, Column int
	FunctionName       string // label of its name in the debugging strings
	FunctionOffset     int64
	Inlined            bool // at the place in InlinedAt: file, line, column
	InlinedAt          [3]int
}

// Instruction is an operation, with its guard.
type Instruction struct {
	Pos
	Guard     *Guard
	Opcode    string   // "ld"
	Modifiers []string // in order, without dots: "global", "v4", "f32"
	Types     []Type   // those modifiers that are types, in order
	Operands  []Operand
	Loc       *Loc // the source line, if known
}

// Guard is the predicate before an instruction.
type Guard struct {
	Pos
	Negated  bool
	Name     string
	Register *Register
}

// Has says whether the instruction carries a modifier.
func (i *Instruction) Has(modifier string) bool { return slices.Contains(i.Modifiers, modifier) }

// Type returns the n-th type among the modifiers, or NoType.
func (i *Instruction) Type(n int) Type {
	if n < len(i.Types) {
		return i.Types[n]
	}
	return NoType
}

// Space returns the first state space among the modifiers, or NoSpace.
func (i *Instruction) Space() Space {
	for _, m := range i.Modifiers {
		if s := SpaceOf(m); s != NoSpace {
			return s
		}
	}
	return NoSpace
}

// Vector returns how many elements a load, store or texture access moves: 1, 2, 4 or 8.
func (i *Instruction) Vector() int {
	for _, m := range i.Modifiers {
		if n := vectorOf(m); n != 0 {
			return n
		}
	}
	return 1
}

func vectorOf(modifier string) int {
	switch modifier {
	case "v2":
		return 2
	case "v4":
		return 4
	case "v8":
		return 8
	}
	return 0
}

// Call is a call instruction with its operands sorted by meaning.
type Call struct {
	Returns []Operand
	Callee  Operand // a symbol, or a register for an indirect call
	Args    []Operand
	Targets Symbol // *Prototype, *TargetList, or nil for a direct call
}

// Call sorts the operands of a call instruction by meaning; ok is false for other instructions.
func (i *Instruction) Call() (c Call, ok bool) {
	if i.Opcode != "call" {
		return c, false
	}
	ops := i.Operands
	if ops[0].Kind == ListOperand {
		c.Returns, ops = ops[0].Elements, ops[1:]
	}
	c.Callee, ops = ops[0], ops[1:]
	if len(ops) > 0 && ops[0].Kind == ListOperand {
		c.Args, ops = ops[0].Elements, ops[1:]
	}
	if len(ops) > 0 {
		c.Targets = ops[0].Symbol
	}
	return c, true
}

// OperandKind is the kind of an operand.
type OperandKind uint8

// The kinds of operands, and the fields that each uses.
const (
	RegisterOperand  OperandKind = iota // Register, Name, Component, Negated
	SpecialOperand                      // Name, Component: %tid and .x
	ImmediateOperand                    // Literal
	SymbolOperand                       // Symbol, Name, Offset: a variable's address, a function, a label
	AddressOperand                      // [Register or Symbol or neither + Offset, Elements]
	VectorOperand                       // {Elements}
	PairOperand                         // Elements[0]|Elements[1]
	ListOperand                         // (Elements), in calls only
	SinkOperand                         // _
)

// Operand is an operand of an instruction, source or destination.
type Operand struct {
	Pos
	Kind      OperandKind
	Negated   bool   // !p
	Name      string // as written: "%r1", "%tid", "table"
	Component string // "x" of %tid.x
	Register  *Register
	Symbol    Symbol
	Literal   Literal
	Offset    int64
	Elements  []Operand
}

// LiteralKind is the kind of a constant.
type LiteralKind uint8

// The kinds of constants.
const (
	IntLiteral   LiteralKind = iota // signed, 64 bits
	UintLiteral                     // unsigned, 64 bits
	FloatLiteral                    // single precision: the low 32 bits
	DoubleLiteral
)

// Literal is a constant. Constant expressions are folded; WARP_SZ is 32.
type Literal struct {
	Kind LiteralKind
	Bits uint64
}

func (*Variable) item() {}
func (*Function) item() {}
func (*Alias) item()    {}
func (*File) item()     {}
func (*Section) item()  {}
func (*Pragma) item()   {}

func (*Instruction) statement()  {}
func (*Label) statement()        {}
func (*RegisterDecl) statement() {}
func (*Variable) statement()     {}
func (*Block) statement()        {}
func (*Loc) statement()          {}
func (*Pragma) statement()       {}
func (*TargetList) statement()   {}
func (*Prototype) statement()    {}

// SymbolName returns the name.
func (r *Register) SymbolName() string { return r.Name }

// SymbolName returns the name.
func (v *Variable) SymbolName() string { return v.Name }

// SymbolName returns the name.
func (f *Function) SymbolName() string { return f.Name }

// SymbolName returns the name.
func (a *Alias) SymbolName() string { return a.Name }

// SymbolName returns the name.
func (l *Label) SymbolName() string { return l.Name }

// SymbolName returns the name.
func (t *TargetList) SymbolName() string { return t.Name }

// SymbolName returns the name.
func (p *Prototype) SymbolName() string { return p.Name }

// TypeName names the type of a variable: "u64", "b8[16]".
func (v *Variable) TypeName() string {
	text := v.Type.String()
	if v.Vector > 1 {
		text = fmt.Sprintf("v%d.%s", v.Vector, text)
	}
	for _, d := range v.Dims {
		text += fmt.Sprintf("[%d]", d)
	}
	return text
}
