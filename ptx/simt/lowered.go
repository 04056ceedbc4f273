package simt

import (
	"fmt"
	"reflect"
	"runtime"
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
func (k *Kernel) Lowered() *Lowered {
	var ops []op
	a := k.program.assembly(k.unit, 0, func(o *op) { ops = append(ops, *o) })
	for i := range ops {
		ops[i].inst = a.image.code[i] // with the targets of calls
	}
	p := &loweredPrinter{assembly: a, ops: ops, blockAt: map[int32]int{}}
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
	ops     []op
	blockAt map[int32]int // the number of the block that begins at an instruction
}

// slotPrefix begins the names of slots, by class.
var slotPrefix = [...]string{bits32: "r", bits64: "rd", predicate: "p"}

// slotName names a slot; "_" stands for an operand that the instruction does not have.
func slotName(c class, slot int32) string {
	if c == none || slot < 0 {
		return "_"
	}
	return slotPrefix[c] + strconv.Itoa(int(slot))
}

func (p *loweredPrinter) slots() []LoweredSlots {
	m := p.image
	var all []LoweredSlots
	for c, n := range [...]int{bits32: m.n32, bits64: m.n64, predicate: m.np} {
		if n == 0 {
			continue
		}
		first, behind := int(m.carried[c][0]), int(m.carried[c][1])
		all = append(all, LoweredSlots{Class: slotPrefix[c], Constants: first, Carried: behind - first, Private: n - behind})
	}
	return all
}

func (p *loweredPrinter) constants() []LoweredConstant {
	list := slices.Concat(p.image.constants, p.image.perBlock)
	slices.SortFunc(list, func(a, b constant) int {
		if a.class != b.class {
			return int(a.class) - int(b.class)
		}
		return int(a.slot - b.slot)
	})
	all := make([]LoweredConstant, len(list))
	for i := range list {
		all[i] = LoweredConstant{slotName(list[i].class, list[i].slot), list[i].String()}
	}
	return all
}

// String says what the constant is: a number, a parameter, an address or a special
// register.
func (c *constant) String() string {
	switch c.from {
	case fromLiteral:
		if c.value < 10 {
			return strconv.FormatUint(c.value, 10)
		}
		return fmt.Sprintf("%#x", c.value)
	case fromParam:
		sign := ""
		if c.sign {
			sign = ", signed"
		}
		return fmt.Sprintf("parameter at %d, %d bytes%s", c.value, c.size, sign)
	case dynamicAddress:
		return fmt.Sprintf("dynamic shared memory + %d", c.value)
	}
	for name, from := range specials {
		if from == c.from {
			return name
		}
	}
	return fmt.Sprintf("source %d", c.from)
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
		line := LoweredInstruction{At: i, Text: p.text(o), Private: o.private, Affine: o.affine != nil}
		if o.text != nil {
			line.Pos, line.For = o.text.Pos, o.text.String()
		}
		blocks[n].Instructions = append(blocks[n].Instructions, line)
		blocks[n].Returned = blocks[n].Returned || o.returns
		if o.end == at {
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
func (o *op) successors(at int32) []int32 {
	var to []int32
	behind := o.conditional()
	switch o.flow {
	case flowJump:
		if !o.calls {
			to = append(to, o.target)
		}
	case flowBranch:
		to, behind = append(to, o.target), true
	case flowTable:
		to = append(to, o.targets...)
	case flowCall, flowReturn, flowExit, flowTrap:
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
	flowJump: "jump", flowBranch: "branch", flowTable: "table", flowCall: "call", flowReturn: "return",
	flowExit: "exit", flowTrap: "trap", flowBarrier: "barrier", flowWarpWait: "warpWait",
}

// engineName returns the name of an instruction: that of its lane kernel or of the
// access, or else that of the Go function that runs it, without "run".
func (o *op) engineName() string {
	run := o.run
	if o.inner != nil {
		run = o.inner
	}
	switch {
	case (o.name == "ld" || o.name == "st") && o.text != nil:
		return o.name + spaceSuffix(o.space) + "." + o.text.Type(0).String()
	case o.name != "":
		return o.name
	case run == nil:
		return flowNames[o.flow]
	}
	name, _, _ := strings.Cut(runtime.FuncForPC(reflect.ValueOf(run).Pointer()).Name(), "[")
	name = strings.TrimPrefix(name[strings.LastIndexByte(name, '.')+1:], "run")
	return strings.ToLower(name[:1]) + name[1:] + spaceSuffix(o.space)
}

func spaceSuffix(s ptx.Space) string {
	if s == ptx.NoSpace {
		return ""
	}
	return "." + s.String()
}

// text writes an instruction: destinations, name, sources, and what else it holds.
func (p *loweredPrinter) text(o *op) string {
	var b strings.Builder
	if o.conditional() {
		not := ""
		if o.guardNot {
			not = "!"
		}
		fmt.Fprintf(&b, "@%s%s ", not, slotName(predicate, o.inst.guard))
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
func registerList(c class, list []int32) string {
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
func (o *op) saved() string {
	names := make([]string, len(o.lists))
	for i, r := range o.lists {
		names[i] = slotName(r.class, r.id)
	}
	return "{" + strings.Join(names, ", ") + "}"
}

func (o *op) destinations() []string {
	var all []string
	if o.cl != none && o.listWritten {
		all = append(all, registerList(o.cl, o.list))
	}
	if len(o.lists) > 0 && o.listWritten {
		all = append(all, o.saved())
	}
	if o.cd != none || o.cd2 != none {
		all = append(all, slotName(o.cd, o.d))
	}
	if o.cd2 != none {
		all = append(all, slotName(o.cd2, o.d2))
	}
	return all
}

// readOperands writes the sources a, b, c and e in order, "_" for one that is missing
// before another, then the lists.
func (o *op) readOperands() []string {
	sources := []struct {
		c    class
		slot int32
	}{{o.ca, o.a}, {o.cb, o.b}, {o.cc, o.c}, {o.ce, o.e}}
	if o.waitsForLanes() {
		sources = sources[:3] // rest writes the mask
	}
	for len(sources) > 0 && sources[len(sources)-1].c == none {
		sources = sources[:len(sources)-1]
	}
	var all []string
	for i, s := range sources {
		name := slotName(s.c, s.slot)
		inverted := s.c == predicate && (o.negated || i == 0 && o.mode&invertA != 0 && o.onPredicates() || i == 1 && o.mode&invertB != 0 && o.onPredicates())
		switch {
		case inverted:
			name = "!" + name
		case i == 0 && o.addresses():
			name = fmt.Sprintf("[%s%s]", name, offsetSuffix(o.imm))
		}
		all = append(all, name)
	}
	if o.cl != none && !o.listWritten {
		all = append(all, registerList(o.cl, o.list))
	}
	if len(o.lists) > 0 && !o.listWritten {
		all = append(all, o.saved())
	}
	if len(o.sources) > 0 {
		all = append(all, registerList(o.cs, o.sources))
	}
	return all
}

// addresses says whether operand a is an address to which imm is added.
func (o *op) addresses() bool {
	return o.ca == bits64 && !o.pure && (o.touch != touchNothing || o.space != ptx.NoSpace)
}

// onPredicates says whether the mode says which sources are inverted.
func (o *op) onPredicates() bool { return strings.HasSuffix(o.name, ".pred") }

// waitsForLanes says whether e is a mask of lanes that the instruction waits for.
func (o *op) waitsForLanes() bool { return o.flow == flowWarp || o.flow == flowWarpWait }

func offsetSuffix(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%+d", n)
}

// rest writes where an instruction leads, and those of its numbers that are not zero.
func (p *loweredPrinter) rest(b *strings.Builder, o *op) {
	switch o.flow {
	case flowJump, flowBranch:
		fmt.Fprintf(b, " -> B%d", p.blockAt[o.target])
	case flowTable:
		for i, t := range o.targets {
			fmt.Fprintf(b, "%s B%d", [...]string{" ->", ","}[min(i, 1)], p.blockAt[t])
		}
	}
	switch {
	case o.flow == flowNone, o.flow == flowReturn, o.flow == flowExit, o.flow == flowTrap, o.flow == flowCall:
	case o.calls:
		b.WriteString(" (call)")
	case o.back:
		b.WriteString(" (back)")
	}
	if o.waitsForLanes() {
		fmt.Fprintf(b, " lanes=%s", slotName(o.ce, o.e))
	}
	if o.links {
		fmt.Fprintf(b, " B%d", p.blockAt[o.x])
	}
	if o.cl == none && len(o.lists) == 0 && len(o.list) > 0 {
		fmt.Fprintf(b, " places=%d", o.list)
	}
	if o.mode != 0 && !o.onPredicates() {
		fmt.Fprintf(b, " mode=%d", o.mode)
	}
	for _, n := range []struct {
		name  string
		value int64
		shown bool
	}{{"size", int64(o.size), true}, {"imm", o.imm, !o.addresses()}, {"x", int64(o.x), !o.links}, {"y", int64(o.y), true}} {
		if n.shown && n.value != 0 {
			fmt.Fprintf(b, " %s=%d", n.name, n.value)
		}
	}
	if o.sync {
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
