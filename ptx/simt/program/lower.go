package program

import (
	"fmt"
	"slices"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// Lowering turns a function into a list of instructions over virtual registers.
// assign.go then finds slots for these, and image.go appends the functions that a
// kernel may call to the kernel's code. The lowered code of a function does not depend
// on the kernel. Each function has its own registers, so a call saves nothing, unless
// the function may be called again before it has returned.
//
// A function that finds something unsupported calls refuse, which panics;
// instruction recovers and records the error, so that one pass reports all.

// reg is a virtual register.
type reg struct {
	class Class
	id    int32
}

var noReg = reg{id: -1}

// Op is an instruction whose operands are virtual registers, later slots. The Inst has
// their numbers alone, since the functions that run it know the classes. While it is
// lowered, passes over all operands must know them, too: each number has its class
// beside it. newOp, newFlow and the methods below set both together.
type Op struct {
	Inst
	ClassD, ClassD2, ClassA, ClassB, ClassC, ClassE Class // classes of the operands; none if not used
	ClassList                                       Class // class of the list
	cs                                              Class // class of the sources
	lists                                           []reg // of instructions that save registers: registers of all classes
	listWritten                                     bool
	pure                                            bool // writes d and does nothing else: dropped if no instruction reads d
	copies                                          bool // d = a, nothing else
	head                                            bool // begins a basic block
	links                                           bool // x is the place of an instruction, which moves with the code
	calls                                           bool // a jump to another function, whose target image.go fills in
}

// newOp returns an instruction that does something, with the sources a, b, c and e in
// this order. Operands that it does not have are -1.
func newOp(do Operation, sources ...reg) Op {
	o := Op{Inst: Inst{Do: do, D: -1, D2: -1, A: -1, B: -1, C: -1, E: -1}}
	for i, r := range sources {
		switch i {
		case 0:
			o.setA(r)
		case 1:
			o.setB(r)
		case 2:
			o.setC(r)
		case 3:
			o.setE(r)
		}
	}
	return o
}

// newFlow returns an instruction that ends its basic block, with the sources a, b, c
// and e.
func newFlow(f Flow, sources ...reg) Op {
	o := newOp(NoOperation, sources...)
	o.Flow = f
	return o
}

func (o *Op) setA(r reg)  { o.A, o.ClassA = r.id, r.class }
func (o *Op) setB(r reg)  { o.B, o.ClassB = r.id, r.class }
func (o *Op) setC(r reg)  { o.C, o.ClassC = r.id, r.class }
func (o *Op) setE(r reg)  { o.E, o.ClassE = r.id, r.class }
func (o *Op) setD(r reg)  { o.D, o.ClassD = r.id, r.class }
func (o *Op) setD2(r reg) { o.D2, o.ClassD2 = r.id, r.class }

// to returns the instruction with the destination d.
func (o Op) to(d reg) Op {
	o.setD(d)
	return o
}

// pureTo is to for an instruction that does nothing else than write d.
func (o Op) pureTo(d reg) Op {
	o.pure = true
	return o.to(d)
}

// named sets the name by which package native knows the instruction.
func (o Op) named(name string) Op {
	o.Name = name
	return o
}

// setAddress makes base plus offset the address of an access.
func (o *Op) setAddress(base reg, offset int64) {
	o.setA(base)
	o.Imm = offset
}

// addElement appends a register to the list; noReg stands for an element that the
// program does not want. All registers of a list have one class.
func (o *Op) addElement(r reg) {
	o.List = append(o.List, r.id)
	if r != noReg {
		o.ClassList = r.class
	}
}

// addSource appends a register to the sources, which all have one class.
func (o *Op) addSource(r reg) {
	o.Sources, o.cs = append(o.Sources, r.id), r.class
}

// destination returns d with its class, and source returns a with its class.
func (o *Op) destination() reg { return reg{o.ClassD, o.D} }
func (o *Op) source() reg      { return reg{o.ClassA, o.A} }

// lowFunction is a function while it is lowered.
type lowFunction struct {
	f         *ptx.Function
	link      reg // holds the return address
	frame     int // bytes of its frame
	places    map[*ptx.Variable]int
	params    map[*ptx.Variable]bool // if it is a kernel
	start     []int32
	callSites []callSite
}

// callSite has the indices of a call's instructions. finishCalls fills in what
// depends on the finished function: its frame size and the registers to save.
type callSite struct {
	save, enter, leave, restore int32
	copies                      []int32
	callee                      *unit // nil: indirect
}

// lowering is a function of the text while it becomes instructions. It has a method for each family
// of instructions, which lowerers finds by the name of the instruction; they share the methods of this
// file: operands to registers, constants, addresses of variables, emit, refuse.
type lowering struct {
	program *Program
	module  *ptx.Module
	unit    *unit
	errs    ptx.Errors

	ops       []Op
	count     slotCount  // virtual registers
	constants []Constant // with virtual registers as slots
	known     map[Constant]reg
	shared    []*ptx.Variable // static variables that its instructions name
	isShared  map[*ptx.Variable]bool
	threads   blockLimit // of a kernel's block

	// Of the function and the instruction that is being lowered:
	fn       *lowFunction
	regs     map[registerKey]reg
	text     *ptx.Instruction
	guard    reg
	guardNot bool
	widened  map[reg]reg // 32-bit addresses that this basic block has extended to 64 bits

	frame reg // address of the running function's frame
	link  reg // return address, from the call to the callee's first instruction
}

type registerKey struct {
	register  *ptx.Register
	component string
}

// unsupported is what refuse panics with; instruction recovers and records it.
type unsupported string

func (l *lowering) refuse(format string, args ...any) {
	panic(unsupported(fmt.Sprintf(format, args...)))
}

// wants refuses an instruction that does not have n operands.
func (l *lowering) wants(in *ptx.Instruction, n int) {
	if len(in.Operands) != n {
		l.refuse("%d operands where %d are wanted", len(in.Operands), n)
	}
}

// lowerUnit lowers a function, or returns what is not supported in it. It builds
// the list in room, which grows and may be reused for the next function: the section
// has its own copy.
func lowerUnit(p *Program, u *unit, room *[]Op) (*section, ptx.Errors) {
	l := &lowering{
		program: p, module: p.module, unit: u, ops: (*room)[:0],
		known:    map[Constant]reg{},
		isShared: map[*ptx.Variable]bool{},
		regs:     map[registerKey]reg{},
		widened:  map[reg]reg{},
		fn:       &lowFunction{f: u.f, places: map[*ptx.Variable]int{}},
		threads:  blockLimit{most: shape.MaxThreads},
	}
	if u.f.Entry {
		l.blockSize(u.f)
	}
	l.frame, l.link = l.fresh(Bits64), l.fresh(Bits32)
	l.function(l.fn)
	*room = l.ops
	if len(l.errs) > 0 {
		return nil, l.errs
	}
	l.finishCalls()
	return l.assign(), nil
}

func (l *lowering) fresh(c Class) reg {
	l.count[c]++
	return reg{c, l.count[c] - 1}
}

// constant returns the register that holds a constant; equal ones share it.
func (l *lowering) constant(c Constant) reg {
	c.Slot = 0
	if r, ok := l.known[c]; ok {
		return r
	}
	r := l.fresh(c.Class)
	l.known[c] = r
	c.Slot = r.id
	l.constants = append(l.constants, c)
	return r
}

func (l *lowering) literal(c Class, v uint64) reg {
	if c == Bits32 {
		v = uint64(uint32(v))
	}
	return l.constant(Constant{Class: c, Value: v})
}

// place assigns a variable its offset in the function's frame.
func (fn *lowFunction) place(v *ptx.Variable) int {
	if at, ok := fn.places[v]; ok {
		return at
	}
	at := shape.Round(fn.frame, max(4, v.Alignment()))
	fn.places[v] = at
	fn.frame = at + shape.Round(v.Size(), 4)
	return at
}

// function lowers one function.
func (l *lowering) function(fn *lowFunction) {
	l.guard = noReg
	f := fn.f
	if !f.Entry {
		fn.link = l.fresh(Bits32)
		// The frame begins with results and parameters, which the caller reads and writes.
		for _, v := range append(slices.Clone(f.Returns), f.Params...) {
			if v.Space == ptx.RegSpace || v.Register != nil {
				l.fail(v.Pos, "parameter %s of function %s: parameters in registers are not supported", v.Name, f.Name)
			}
			fn.place(v)
		}
		l.emit(newOp(OpCopy, l.link).named("mov.b32").pureTo(fn.link))
	}
	fn.start = make([]int32, len(f.Code)+1)
	labelled := make([]bool, len(f.Code)+1)
	for _, label := range f.Labels {
		labelled[label.Target] = true
	}
	for i, in := range f.Code {
		fn.start[i] = int32(len(l.ops))
		if labelled[i] {
			clear(l.widened)
		}
		l.instruction(in)
	}
	fn.start[len(f.Code)] = int32(len(l.ops))
	// Falling off the end is a return.
	l.text, l.guard = nil, noReg
	l.ret()
	for i, is := range labelled {
		if is {
			l.ops[fn.start[i]].head = true
		}
	}
	l.ops[0].head = true
	for i := range l.ops {
		o := &l.ops[i]
		switch o.Flow {
		case FlowJump, FlowBranch:
			if o.Target < 0 {
				o.Target = fn.start[-o.Target-1]
			}
		case FlowTable:
			for j, t := range o.Targets {
				o.Targets[j] = fn.start[-t-1]
			}
		}
	}
}

func (l *lowering) fail(pos ptx.Pos, format string, args ...any) {
	if len(l.errs) < maxErrors {
		l.errs = append(l.errs, &ptx.Error{File: l.program.file, Pos: pos, Msg: fmt.Sprintf(format, args...)})
	}
}

// instruction lowers one instruction, or records why it is not supported.
func (l *lowering) instruction(in *ptx.Instruction) {
	defer func() {
		if r := recover(); r != nil {
			u, ok := r.(unsupported)
			if !ok {
				panic(r)
			}
			l.fail(in.Pos, "%s: %s", in.Name(), string(u))
		}
	}()
	l.text, l.guard, l.guardNot = in, noReg, false
	if in.Guard != nil {
		l.guard = l.register(in.Guard.Register, "")
		l.guardNot = in.Guard.Negated
		if len(in.Operands) > 0 && in.Operands[0].Kind == ptx.PairOperand {
			l.keepGuard(&in.Operands[0])
		}
	}
	if lower, ok := lowerers[in.Opcode]; ok {
		lower(l, in)
		return
	}
	l.arithmetic(in)
}

// keepGuard copies the guard if the instruction writes it: if it becomes several
// instructions, the first must not change the guard of the others.
func (l *lowering) keepGuard(destinations *ptx.Operand) {
	for i := range destinations.Elements {
		if destinations.Elements[i].Register == l.text.Guard.Register {
			guard, copied := l.guard, l.fresh(Predicate)
			l.guard = noReg
			l.copyTo(copied, guard)
			l.guard = copied
			return
		}
	}
}

// emit appends an instruction, under the guard of the PTX instruction that is being
// lowered, and returns its index. If the instruction overwrites the source of an extended
// address, it forgets the extension.
func (l *lowering) emit(o Op) int32 {
	o.Text = l.text
	o.Long = o.Long || o.Touch == TouchBulk || o.Touch == TouchBulkZero
	o.Inst.Guard = -1
	if l.guard.id >= 0 && o.Flow != FlowBranch {
		o.Inst.Guard, o.GuardNot = l.guard.id, l.guardNot
	}
	if o.ClassD == Bits32 {
		delete(l.widened, reg{Bits32, o.D})
	}
	if o.ClassList == Bits32 && o.listWritten {
		for _, id := range o.List {
			delete(l.widened, reg{Bits32, id})
		}
	}
	if o.Flow != FlowNone {
		clear(l.widened)
	}
	l.ops = append(l.ops, o)
	return int32(len(l.ops) - 1)
}

// register returns the virtual register for a register of the text.
func (l *lowering) register(r *ptx.Register, component string) reg {
	if r.Vector > 1 && component == "" {
		l.refuse("%s is a vector: name one of its elements", r.Name)
	}
	key := registerKey{r, component}
	if v, ok := l.regs[key]; ok {
		return v
	}
	v := l.fresh(classOf(r.Type))
	if v.class == NoClass {
		l.refuse("registers of type .%v are not supported", r.Type)
	}
	l.regs[key] = v
	return v
}

func classOf(t ptx.Type) Class {
	switch {
	case t == ptx.Pred:
		return Predicate
	case t.Bits() == 64:
		return Bits64
	case t.Bits() <= 32 && t != ptx.NoType:
		return Bits32
	}
	return NoClass
}

// src returns the register that holds an operand of a type.
func (l *lowering) src(o *ptx.Operand, t ptx.Type) reg {
	want := classOf(t)
	switch o.Kind {
	case ptx.RegisterOperand:
		r := l.register(o.Register, o.Component)
		if o.Negated {
			l.refuse("%s cannot be negated here", o.Name)
		}
		if r.class != want || want != Predicate && o.Register.Type.Bits() < t.Bits() {
			l.refuse("operand %s is a register of type .%v where .%v is wanted", o, o.Register.Type, t)
		}
		return r
	case ptx.ImmediateOperand:
		if want == Predicate {
			break
		}
		v, err := o.Literal.Encode(t)
		if err != nil {
			l.refuse("operand %s: %v", o, err)
		}
		return l.literal(want, v)
	case ptx.SpecialOperand:
		return l.special(o, want)
	case ptx.SymbolOperand:
		return l.symbol(o, want)
	}
	l.refuse("operand %s is not supported here", o)
	return noReg
}

// dst returns the register that an operand of a type names as destination.
func (l *lowering) dst(o *ptx.Operand, t ptx.Type) reg {
	if o.Kind == ptx.SinkOperand {
		return l.fresh(classOf(t))
	}
	if o.Kind != ptx.RegisterOperand {
		l.refuse("%s cannot be a destination", o)
	}
	r := l.register(o.Register, o.Component)
	if r.class != classOf(t) || r.class != Predicate && o.Register.Type.Bits() < t.Bits() {
		l.refuse("destination %s is a register of type .%v where .%v is wanted", o, o.Register.Type, t)
	}
	return r
}

// pred returns a predicate operand and whether it is negated.
func (l *lowering) pred(o *ptx.Operand) (reg, bool) {
	if o.Kind == ptx.SpecialOperand && o.Name == "%is_explicit_cluster" {
		r := l.fresh(Predicate)
		l.emit(newOp(OpExplicitCluster).pureTo(r))
		return r, false
	}
	if o.Kind == ptx.ImmediateOperand {
		v, _ := o.Literal.Int()
		r := l.fresh(Predicate)
		constant := newOp(OpPredConst).pureTo(r)
		constant.Imm = v
		l.emit(constant)
		return r, false
	}
	if o.Kind != ptx.RegisterOperand || o.Register.Type != ptx.Pred {
		l.refuse("operand %s is not a predicate", o)
	}
	return l.register(o.Register, o.Component), o.Negated
}

var specials = map[string]Source{
	"%tid.x": TidX, "%tid.y": TidY, "%tid.z": TidZ, "%ntid.x": NtidX, "%ntid.y": NtidY, "%ntid.z": NtidZ,
	"%ctaid.x": CtaidX, "%ctaid.y": CtaidY, "%ctaid.z": CtaidZ, "%nctaid.x": NctaidX, "%nctaid.y": NctaidY, "%nctaid.z": NctaidZ,
	"%laneid": LaneID, "%warpid": WarpID, "%nwarpid": NwarpID,
	"%lanemask_eq": LaneMaskEq, "%lanemask_le": LaneMaskLe, "%lanemask_lt": LaneMaskLt, "%lanemask_ge": LaneMaskGe, "%lanemask_gt": LaneMaskGt,
	"%clusterid.x": ClusterIDX, "%clusterid.y": ClusterIDY, "%clusterid.z": ClusterIDZ, "%nclusterid.x": ClustersX, "%nclusterid.y": ClustersY, "%nclusterid.z": ClustersZ,
	"%cluster_ctaid.x": ClusterCtaX, "%cluster_ctaid.y": ClusterCtaY, "%cluster_ctaid.z": ClusterCtaZ, "%cluster_ctarank": ClusterRank,
	"%cluster_nctaid.x": ClusterSizeX, "%cluster_nctaid.y": ClusterSizeY, "%cluster_nctaid.z": ClusterSizeZ, "%cluster_nctarank": ClusterSize,
	"%dynamic_smem_size": DynamicShared, "%total_smem_size": TotalShared, "WARP_SZ": WarpWidth,
}

// zeroSpecials are special registers that read as 0, with their width: there is one
// multiprocessor, one grid, and no environment.
var zeroSpecials = map[string]Class{
	"%tid.w": Bits32, "%ctaid.w": Bits32, "%smid": Bits32, "%gridid": Bits64, "%reserved_smem_offset_begin": Bits32,
	"%reserved_smem_offset_end": Bits32, "%reserved_smem_offset_cap": Bits32,
	"%cluster_ctaid.w": Bits32, "%clusterid.w": Bits32,
}

// oneSpecials read as 1.
var oneSpecials = []string{
	"%nsmid", "%ntid.w", "%nctaid.w", "%cluster_nctaid.w", "%nclusterid.w",
}

var clocks = map[string]Class{
	"%clock": Bits32, "%clock_hi": Bits32, "%clock64": Bits64,
	"%globaltimer": Bits64, "%globaltimer_lo": Bits32, "%globaltimer_hi": Bits32,
}

// special returns the register for a special register of the text. Clocks change, so an
// instruction reads them, without the guard; the others are filled in before the first
// instruction, like constants.
func (l *lowering) special(o *ptx.Operand, want Class) reg {
	name := o.Name
	if o.Component != "" {
		name += "." + o.Component
	}
	var r reg
	switch c := clocks[name]; {
	case c != NoClass:
		r = l.fresh(c)
		clock := newOp(OpClock).to(r)
		if clock.Size = 4; c == Bits64 {
			clock.Size = 8
		}
		saved := l.guard
		l.guard = noReg
		l.emit(clock)
		l.guard = saved
	case zeroSpecials[name] != NoClass:
		r = l.literal(zeroSpecials[name], 0)
		if want == Bits32 {
			r = l.literal(Bits32, 0) // %gridid may be read as 32 bits
		}
	case slices.Contains(oneSpecials, name):
		r = l.literal(Bits32, 1)
	case len(name) > 7 && name[:7] == "%envreg":
		r = l.literal(Bits32, 0)
	default:
		from, ok := specials[name]
		if !ok {
			l.refuse("special register %s is not supported", name)
		}
		r = l.constant(Constant{Class: Bits32, From: from})
	}
	if r.class != want {
		l.refuse("special register %s does not have the width of the instruction", name)
	}
	return r
}

// symbol returns the register that holds the address of a variable or of a
// function, in its own state space.
func (l *lowering) symbol(o *ptx.Operand, want Class) reg {
	if want != Bits32 && want != Bits64 {
		l.refuse("%s is an address", o.Name)
	}
	v, _ := o.Symbol.(*ptx.Variable)
	if v == nil {
		if fn := l.module.Function(o.Name); fn != nil && fn.Entry {
			l.refuse("the address of kernel %s is not supported", o.Name)
		}
		at, err := l.program.address(l.module, o.Symbol)
		if err != nil {
			l.refuse("%v", err)
		}
		return l.literal(want, at)
	}
	base, at := l.variable(v)
	at += o.Offset
	if base == noReg {
		return l.literal(want, uint64(at))
	}
	if v.Open() {
		return l.constant(Constant{Class: want, From: DynamicAddress, Value: uint64(at)})
	}
	if v.Space == ptx.SharedSpace {
		return l.constant(Constant{Class: want, From: staticAddress, of: l.staticShared(v), Value: uint64(at)})
	}
	// A place in the frame of a function.
	sum := l.fresh(Bits64)
	l.do("add.b64", sum, base, l.literal(Bits64, uint64(at)))
	if want == Bits32 {
		narrow := l.fresh(Bits32)
		l.do("cvt.u32.u64", narrow, sum)
		return narrow
	}
	return sum
}

// variable returns where a variable lies: at an offset from the register base, or
// at a fixed address of its state space if base is noReg.
func (l *lowering) variable(v *ptx.Variable) (base reg, at int64) {
	v = l.definition(v)
	switch v.Space {
	case ptx.GlobalSpace, ptx.ConstSpace:
		a, ok := l.program.addresses[v]
		if !ok {
			if v.Function != nil {
				l.refuse("variable %s: variables of functions in %v memory are not supported", v.Name, v.Space)
			}
			l.refuse("%s is declared but not defined in this module", v.Name)
		}
		return noReg, int64(a)
	case ptx.SharedSpace:
		if v.Open() { // dynamic shared memory: all such variables begin at the same address
			return l.constant(Constant{Class: Bits64, From: DynamicAddress}), 0
		}
		return l.constant(Constant{Class: Bits64, From: staticAddress, of: l.staticShared(v)}), 0
	case ptx.LocalSpace:
		if v.Function == nil {
			l.refuse("variable %s: local memory outside functions is not supported", v.Name)
		}
		return l.base(), int64(l.fn.place(v))
	case ptx.ParamSpace:
		if l.kernelParam(v) {
			return noReg, int64(v.Offset)
		}
		return l.base(), int64(l.fn.place(v))
	}
	l.refuse("variable %s: state space .%v is not supported", v.Name, v.Space)
	return noReg, 0
}

// definition returns the variable that a declaration refers to.
func (l *lowering) definition(v *ptx.Variable) *ptx.Variable {
	if v.Function == nil {
		if def, ok := l.module.Lookup(v.Name).(*ptx.Variable); ok {
			return def
		}
	}
	return v
}

func (l *lowering) kernelParam(v *ptx.Variable) bool {
	if !l.fn.f.Entry || v.Space != ptx.ParamSpace {
		return false
	}
	if l.fn.params == nil {
		l.fn.params = map[*ptx.Variable]bool{}
		for _, v := range l.fn.f.Params {
			l.fn.params[v] = true
		}
	}
	return l.fn.params[v]
}

// base returns the register to which offsets in the frame are relative; noReg in a
// kernel, whose frame is at address 0.
func (l *lowering) base() reg {
	if l.fn.f.Entry {
		return noReg
	}
	return l.frame
}

// staticShared records that the function names a variable in static shared memory,
// and returns its definition. The kernel's image decides where it lies.
func (l *lowering) staticShared(v *ptx.Variable) *ptx.Variable {
	v = l.definition(v)
	if !l.isShared[v] {
		l.isShared[v] = true
		l.shared = append(l.shared, v)
	}
	return v
}
