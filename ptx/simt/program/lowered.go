package program

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/ptx"
)

// This file prints lowered code: the instructions that the interpreter runs and the
// compiler compiles, with their slots, basic blocks and the places where lanes meet.
// It is for people and for golden tests. The engine itself never reads the text.

// Lowered is the code of a kernel as the engine has it, the functions that the kernel
// may call included.
type Lowered struct {
	Kernel    string
	Slots     []LoweredSlots
	Constants []LoweredConstant
	Blocks    []LoweredBlock
}

// LoweredSlots says how the slots of one class are divided up. The numbers of the
// three parts follow each other.
type LoweredSlots struct {
	Class     string // as the names of slots begin: "r", "rd" or "p"
	Constants int    // filled in before the first instruction
	Carried   int    // they carry values between basic blocks
	Private   int    // their values end with the basic block
}

// LoweredConstant is a slot that no instruction writes.
type LoweredConstant struct{ Slot, Value string }

// LoweredBlock is a basic block. Blocks are numbered in the order of the code, from 0.
type LoweredBlock struct {
	Function     string // whose first block it is; empty for other blocks
	From         []int  // the blocks that may lead here, without calls and returns
	Returned     bool   // a called function returns here
	Instructions []LoweredInstruction
}

// Meets says whether lanes that have taken different ways may meet at the beginning of
// the block, and go on together.
func (b *LoweredBlock) Meets() bool { return len(b.From) > 1 || b.Returned }

// LoweredInstruction is an instruction of the engine.
type LoweredInstruction struct {
	At      int // index in the code
	Text    string
	Private bool // what it writes is private to the block, so it writes all lanes whatever the mask
	Affine  bool // there is a rule for registers that are linear over the lanes
	Pos     ptx.Pos
	For     string // the instruction of the PTX; empty for the end of a function
}

// Lowered returns the kernel's code. It assembles the code anew: what a launch keeps
// has no classes of registers any more.
// affine says whether there is a rule for a lane kernel on registers that are linear over the lanes.
func (k *Kernel) Lowered(affine func(name string) bool) *Lowered {
	var ops []Op
	a := k.program.assembly(k.unit, 0, func(o *Op) { ops = append(ops, *o) })
	for i := range ops {
		ops[i].Inst = a.image.Code[i] // with the targets of calls
	}
	p := &loweredPrinter{assembly: a, ops: ops, affine: affine, blockAt: map[int32]int{}}
	for i := range ops {
		if a.image.isHead(int32(i)) {
			p.blockAt[int32(i)] = len(p.blockAt)
		}
	}
	return &Lowered{Kernel: k.Name, Slots: p.slots(), Constants: p.constants(), Blocks: p.blocks()}
}

// loweredPrinter makes the printable form of an assembled kernel.
type loweredPrinter struct {
	*assembly
	ops     []Op
	affine  func(name string) bool
	blockAt map[int32]int // the number of the block that begins at an instruction
}

// slotPrefix begins the names of slots, by class.
var slotPrefix = [...]string{Bits32: "r", Bits64: "rd", Predicate: "p"}

// slotName names a slot; "_" stands for an operand that the instruction does not have.
func slotName(c Class, slot int32) string {
	if c == NoClass || slot < 0 {
		return "_"
	}
	return slotPrefix[c] + strconv.Itoa(int(slot))
}

func (p *loweredPrinter) slots() []LoweredSlots {
	m := p.image
	var all []LoweredSlots
	for c, n := range [...]int{Bits32: m.Count32, Bits64: m.Count64, Predicate: m.CountPredicates} {
		if n == 0 {
			continue
		}
		first, behind := int(m.Carried[c][0]), int(m.Carried[c][1])
		all = append(all, LoweredSlots{Class: slotPrefix[c], Constants: first, Carried: behind - first, Private: n - behind})
	}
	return all
}

func (p *loweredPrinter) constants() []LoweredConstant {
	list := slices.Concat(p.image.Constants, p.image.PerBlock)
	slices.SortFunc(list, func(a, b Constant) int {
		if a.Class != b.Class {
			return int(a.Class) - int(b.Class)
		}
		return int(a.Slot - b.Slot)
	})
	all := make([]LoweredConstant, len(list))
	for i := range list {
		all[i] = LoweredConstant{slotName(list[i].Class, list[i].Slot), list[i].String()}
	}
	return all
}

// String says what the constant is: a number, a parameter, an address or a special
// register.
func (c *Constant) String() string {
	switch c.From {
	case FromLiteral:
		if c.Value < 10 {
			return strconv.FormatUint(c.Value, 10)
		}
		return fmt.Sprintf("%#x", c.Value)
	case FromParam:
		sign := ""
		if c.Sign {
			sign = ", signed"
		}
		return fmt.Sprintf("parameter at %d, %d bytes%s", c.Value, c.Size, sign)
	case DynamicAddress:
		return fmt.Sprintf("dynamic shared memory + %d", c.Value)
	}
	for name, from := range specials {
		if from == c.From {
			return name
		}
	}
	return fmt.Sprintf("source %d", c.From)
}

func (p *loweredPrinter) blocks() []LoweredBlock {
	blocks := make([]LoweredBlock, len(p.blockAt))
	for i, s := range p.sections {
		if len(s.ops) > 0 {
			b := &blocks[p.blockAt[p.begin[s.unit]]]
			if b.Function = s.unit.f.Name; i == 0 {
				b.Function = "" // the kernel
			}
		}
	}
	for i := range p.ops {
		o := &p.ops[i]
		at := int32(i)
		n := p.blockAt[p.image.blockAt(at)]
		line := LoweredInstruction{At: i, Text: p.text(o), Private: o.Private, Affine: p.affine(o.Name)}
		if o.Text != nil {
			line.Pos, line.For = o.Text.Pos, o.Text.String()
		}
		blocks[n].Instructions = append(blocks[n].Instructions, line)
		blocks[n].Returned = blocks[n].Returned || o.Returns
		if o.End == at {
			for _, next := range o.successors(at) {
				if to := &blocks[p.blockAt[next]]; !slices.Contains(to.From, n) {
					to.From = append(to.From, n)
				}
			}
		}
	}
	return blocks
}

// successors returns where the lanes of a group may be after the last instruction of a
// block, which stands at index at. Calls and returns lead out of the function, and are
// left out.
func (o *Op) successors(at int32) []int32 {
	var to []int32
	behind := o.conditional()
	switch o.Flow {
	case FlowJump:
		if !o.calls {
			to = append(to, o.Target)
		}
	case FlowBranch:
		to, behind = append(to, o.Target), true
	case FlowTable:
		to = append(to, o.Targets...)
	case FlowCall, FlowReturn, FlowExit, FlowTrap:
	default:
		behind = true
	}
	if behind {
		to = append(to, at+1)
	}
	return to
}

// flowNames are the names of instructions that end a basic block and have no function
// to run.
var flowNames = [...]string{
	FlowJump: "jump", FlowBranch: "branch", FlowTable: "table", FlowCall: "call", FlowReturn: "return",
	FlowExit: "exit", FlowTrap: "trap", FlowBarrier: "barrier", FlowWarpWait: "warpWait",
}

// engineName returns the name of an instruction: that of its lane kernel or of the
// access, or else that of its operation.
func (o *Op) engineName() string {
	switch {
	case (o.Name == "ld" || o.Name == "st") && o.Text != nil:
		return o.Name + spaceSuffix(o.Space) + "." + o.Text.Type(0).String()
	case o.Name != "":
		return o.Name
	case o.Do == NoOperation:
		return flowNames[o.Flow]
	}
	return operationNames[o.Do] + spaceSuffix(o.Space)
}

func spaceSuffix(s ptx.Space) string {
	if s == ptx.NoSpace {
		return ""
	}
	return "." + s.String()
}

// text writes an instruction: destinations, name, sources, and what else it holds.
func (p *loweredPrinter) text(o *Op) string {
	var b strings.Builder
	if o.conditional() {
		not := ""
		if o.GuardNot {
			not = "!"
		}
		fmt.Fprintf(&b, "@%s%s ", not, slotName(Predicate, o.Inst.Guard))
	}
	if d := o.destinations(); len(d) > 0 {
		b.WriteString(strings.Join(d, ", ") + " = ")
	}
	b.WriteString(o.engineName())
	if s := o.readOperands(); len(s) > 0 {
		b.WriteString(" " + strings.Join(s, ", "))
	}
	p.rest(&b, o)
	return b.String()
}

// registerList writes the registers of a list in braces, or a single one without.
func registerList(c Class, list []int32) string {
	names := make([]string, len(list))
	for i, slot := range list {
		names[i] = slotName(c, slot)
	}
	if len(names) == 1 {
		return names[0]
	}
	return "{" + strings.Join(names, ", ") + "}"
}

// saved writes the registers, of several classes, that a recursive call saves.
func (o *Op) saved() string {
	names := make([]string, len(o.lists))
	for i, r := range o.lists {
		names[i] = slotName(r.class, r.id)
	}
	return "{" + strings.Join(names, ", ") + "}"
}

func (o *Op) destinations() []string {
	var all []string
	if o.ClassList != NoClass && o.listWritten {
		all = append(all, registerList(o.ClassList, o.List))
	}
	if len(o.lists) > 0 && o.listWritten {
		all = append(all, o.saved())
	}
	if o.ClassD != NoClass || o.ClassD2 != NoClass {
		all = append(all, slotName(o.ClassD, o.D))
	}
	if o.ClassD2 != NoClass {
		all = append(all, slotName(o.ClassD2, o.D2))
	}
	return all
}

// readOperands writes the sources a, b, c and e in order, "_" for one that is missing
// before another, then the lists.
func (o *Op) readOperands() []string {
	sources := []struct {
		c    Class
		slot int32
	}{{o.ClassA, o.A}, {o.ClassB, o.B}, {o.ClassC, o.C}, {o.ClassE, o.E}}
	if o.waitsForLanes() {
		sources = sources[:3] // rest writes the mask
	}
	for len(sources) > 0 && sources[len(sources)-1].c == NoClass {
		sources = sources[:len(sources)-1]
	}
	var all []string
	for i, s := range sources {
		name := slotName(s.c, s.slot)
		inverted := s.c == Predicate && (o.Negated || i == 0 && o.Mode&InvertA != 0 && o.onPredicates() || i == 1 && o.Mode&InvertB != 0 && o.onPredicates())
		switch {
		case inverted:
			name = "!" + name
		case i == 0 && o.addresses():
			name = fmt.Sprintf("[%s%s]", name, offsetSuffix(o.Imm))
		}
		all = append(all, name)
	}
	if o.ClassList != NoClass && !o.listWritten {
		all = append(all, registerList(o.ClassList, o.List))
	}
	if len(o.lists) > 0 && !o.listWritten {
		all = append(all, o.saved())
	}
	if len(o.Sources) > 0 {
		all = append(all, registerList(o.cs, o.Sources))
	}
	return all
}

// addresses says whether operand a is an address to which imm is added.
func (o *Op) addresses() bool {
	return o.ClassA == Bits64 && !o.pure && (o.Touch != TouchNothing || o.Space != ptx.NoSpace)
}

// onPredicates says whether the mode says which sources are inverted.
func (o *Op) onPredicates() bool { return strings.HasSuffix(o.Name, ".pred") }

// waitsForLanes says whether e is a mask of lanes that the instruction waits for.
func (o *Op) waitsForLanes() bool { return o.Flow == FlowWarp || o.Flow == FlowWarpWait }

func offsetSuffix(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", n)
}

// rest writes where an instruction leads, and those of its numbers that are not zero.
func (p *loweredPrinter) rest(b *strings.Builder, o *Op) {
	switch o.Flow {
	case FlowJump, FlowBranch:
		fmt.Fprintf(b, " -> B%d", p.blockAt[o.Target])
	case FlowTable:
		for i, t := range o.Targets {
			fmt.Fprintf(b, "%s B%d", [...]string{" ->", ","}[min(i, 1)], p.blockAt[t])
		}
	}
	switch {
	case o.Flow == FlowNone, o.Flow == FlowReturn, o.Flow == FlowExit, o.Flow == FlowTrap, o.Flow == FlowCall:
	case o.calls:
		b.WriteString(" (call)")
	case o.Back:
		b.WriteString(" (back)")
	}
	if o.waitsForLanes() {
		fmt.Fprintf(b, " lanes=%s", slotName(o.ClassE, o.E))
	}
	if o.links {
		fmt.Fprintf(b, " B%d", p.blockAt[o.X])
	}
	if o.ClassList == NoClass && len(o.lists) == 0 && len(o.List) > 0 {
		fmt.Fprintf(b, " places=%d", o.List)
	}
	if o.Mode != 0 && !o.onPredicates() {
		fmt.Fprintf(b, " mode=%d", o.Mode)
	}
	for _, n := range []struct {
		name  string
		value int64
		shown bool
	}{{"size", int64(o.Size), true}, {"imm", o.Imm, !o.addresses()}, {"x", int64(o.X), !o.links}, {"y", int64(o.Y), true}} {
		if n.shown && n.value != 0 {
			fmt.Fprintf(b, " %s=%d", n.name, n.value)
		}
	}
	if o.Sync {
		b.WriteString(" sync")
	}
}

// String writes the code as muster ptx run --lowered prints it.
func (l *Lowered) String() string {
	var b strings.Builder
	instructions := 0
	for i := range l.Blocks {
		instructions += len(l.Blocks[i].Instructions)
	}
	fmt.Fprintf(&b, "lowered code of %s: %d instructions in %d blocks\n", l.Kernel, instructions, len(l.Blocks))
	for _, s := range l.Slots {
		fmt.Fprintf(&b, "slots %s: %d constant, %d carried, %d private\n", s.Class, s.Constants, s.Carried, s.Private)
	}
	for _, c := range l.Constants {
		fmt.Fprintf(&b, "%-4s = %s\n", c.Slot, c.Value)
	}
	for i := range l.Blocks {
		l.Blocks[i].write(&b, i)
	}
	return b.String()
}

// write prints a block: a headline, then its instructions with those of the PTX that
// they are for. A PTX instruction that becomes several is named at the first.
func (l *LoweredBlock) write(b *strings.Builder, number int) {
	if l.Function != "" {
		fmt.Fprintf(b, "function %s\n", l.Function)
	}
	fmt.Fprintf(b, "B%d:", number)
	for i, from := range l.From {
		fmt.Fprintf(b, "%s B%d", [...]string{" from", ","}[min(i, 1)], from)
	}
	if l.Returned {
		b.WriteString(" returned to")
	}
	if l.Meets() {
		b.WriteString(", lanes meet")
	}
	b.WriteByte('\n')
	before := ptx.Pos{}
	for _, in := range l.Instructions {
		flags := []byte("  ")
		if in.Private {
			flags[0] = 'p'
		}
		if in.Affine {
			flags[1] = 'a'
		}
		line := fmt.Sprintf("%4d %s  %s", in.At, flags, in.Text)
		if in.For != "" && in.Pos != before {
			before = in.Pos
			line = fmt.Sprintf("%-50s  ; %d  %s", line, in.Pos.Line, in.For)
		}
		b.WriteString(line + "\n")
	}
}
