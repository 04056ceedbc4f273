package program

import (
	"slices"
	"strings"

	"muster/ptx"
)

// accessHints are the modifiers of loads and stores that have no effect here: the
// accesses of a lane happen in order and at once, and there are no caches.
var accessHints = []string{
	"weak", "relaxed", "acquire", "release", "acq_rel", "volatile", "mmio", "cta", "cluster", "gpu", "sys",
	"ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc", "unified", "v2", "v4", "v8",
}

// orderedHints are those of them that synchronise threads: a loop with one probably
// waits for another thread (see loops).
var orderedHints = []string{"relaxed", "acquire", "release", "acq_rel", "volatile", "mmio"}

func (l *lowering) checkAccess(in *ptx.Instruction) (fence, sync bool) {
	for _, m := range in.Modifiers {
		switch {
		case ptx.TypeOf(m) != ptx.NoType:
		case ptx.SpaceOf(m) != ptx.NoSpace:
		case slices.Contains(accessHints, m):
			fence = fence || m == "acquire" || m == "release" || m == "acq_rel"
			sync = sync || slices.Contains(orderedHints, m)
		case strings.HasPrefix(m, "L1::") || strings.HasPrefix(m, "L2::"):
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if len(in.Types) != 1 {
		l.refuse("one type is wanted")
	}
	return fence, sync
}

// address lowers an operand in brackets. It returns a register that holds an
// address, and the offset to add to it.
func (l *lowering) address(o *ptx.Operand) (base reg, offset int64) {
	if o.Kind != ptx.AddressOperand {
		l.refuse("operand %s is not an address", o)
	}
	switch {
	case o.Register != nil:
		base = l.register(o.Register, o.Component)
		if base.class == Bits32 {
			base = l.widen(base)
		}
		if base.class != Bits64 {
			l.refuse("%s cannot hold an address", o.Name)
		}
		return base, o.Offset
	case o.Symbol != nil:
		v, ok := o.Symbol.(*ptx.Variable)
		if !ok {
			l.refuse("%s has no memory", o.Name)
		}
		base, at := l.variable(v)
		if base == noReg {
			base = l.literal(Bits64, 0)
		}
		return base, at + o.Offset
	}
	return l.literal(Bits64, 0), o.Offset
}

// widen extends a 32-bit address to 64 bits, once in each basic block. It extends
// the sign, since compilers count on -64 plus an offset of 128 being 64.
func (l *lowering) widen(r reg) reg {
	if w, ok := l.widened[r]; ok {
		return w
	}
	saved := l.guard
	l.guard = noReg // later instructions with other guards may use the result
	w := l.fresh(Bits64)
	l.do("cvt.s64.s32", w, r)
	l.guard = saved
	l.widened[r] = w
	return w
}

// spaceOf returns the state space of an access. Parameters of functions are in
// their frames, and so are those of calls.
func (l *lowering) spaceOf(in *ptx.Instruction, o *ptx.Operand) ptx.Space {
	space := in.Space()
	if space == ptx.ParamSpace {
		if v, ok := o.Symbol.(*ptx.Variable); ok && !l.kernelParam(v) || !l.fn.f.Entry {
			return ptx.LocalSpace
		}
	}
	return space
}

// elements returns the registers of a vector or of a single operand.
func (l *lowering) elements(o *ptx.Operand) []ptx.Operand {
	if o.Kind == ptx.VectorOperand {
		return o.Elements
	}
	n := 1
	if o.Kind == ptx.RegisterOperand {
		n = o.Register.Vector
	}
	if o.Kind == ptx.SpecialOperand {
		n = 4 // %tid, %ctaid and so on
	}
	if n <= 1 || o.Component != "" {
		return []ptx.Operand{*o}
	}
	all := make([]ptx.Operand, n)
	for i := range all {
		all[i] = *o
		all[i].Component = "xyzw"[i : i+1]
	}
	return all
}

func (l *lowering) load(in *ptx.Instruction) {
	fence, sync := l.checkAccess(in)
	t := in.Type(0)
	if len(in.Operands) < 2 {
		l.refuse("two operands are wanted")
	}
	d, from := l.elements(&in.Operands[0]), &in.Operands[1]
	if len(d) != in.Vector() {
		l.refuse("%d destinations where %d are wanted", len(d), in.Vector())
	}
	space := l.spaceOf(in, from)
	if v, ok := from.Symbol.(*ptx.Variable); ok && space == ptx.ParamSpace && l.kernelParam(v) {
		l.loadParam(d, t, v.Offset+int(from.Offset))
		return
	}
	base, offset := l.address(from)
	// All elements have one class; a sink takes that of the others.
	c := NoClass
	for i := range d {
		if d[i].Kind == ptx.RegisterOperand {
			if r := l.register(d[i].Register, d[i].Component); c != NoClass && c != r.class {
				l.refuse("destinations of different width")
			} else {
				c = r.class
			}
			if d[i].Register.Type.Bits() < t.Bits() {
				l.refuse("destination %s has fewer bits than .%v", &d[i], t)
			}
			if d[0].Kind == ptx.RegisterOperand && d[i].Register.Type.Bits() != d[0].Register.Type.Bits() {
				l.refuse("destinations of different width")
			}
		} else if d[i].Kind != ptx.SinkOperand {
			l.refuse("%s cannot be a destination", &d[i])
		}
	}
	o := newOp(OpLoad).named("ld")
	o.Space, o.Sync, o.Touch, o.Wide, o.listWritten = space, sync, TouchLoad, c == Bits64, true
	o.setAddress(base, offset)
	if !moves(t, c) {
		l.refuse("loads of type .%v into such registers are not supported", t)
	}
	var cut []reg
	for i := range d {
		if d[i].Kind == ptx.SinkOperand {
			o.addElement(noReg)
			continue
		}
		r := l.register(d[i].Register, d[i].Component)
		if t == ptx.S8 && d[i].Register.Type.Bits() == 16 {
			cut = append(cut, r)
		}
		if d[i].Register.Type.Bits() == 16 {
			o.Size = 2
		}
		o.addElement(r)
	}
	l.emit(o)
	for _, r := range cut {
		l.do("and.b32", r, r, l.literal(Bits32, 0xffff))
	}
	if fence {
		l.fence(in)
	}
}

// loadParam reads a kernel's parameter: a constant.
func (l *lowering) loadParam(d []ptx.Operand, t ptx.Type, at int) {
	for i := range d {
		if d[i].Kind != ptx.RegisterOperand {
			if d[i].Kind == ptx.SinkOperand {
				continue
			}
			l.refuse("%s cannot be a destination", &d[i])
		}
		r := l.register(d[i].Register, d[i].Component)
		off := at + i*t.Size()
		if r.class != Bits32 && r.class != Bits64 || d[i].Register.Type.Bits() < t.Bits() || classOf(t) == NoClass {
			l.refuse("loads of type .%v into %s are not supported", t, &d[i])
		}
		if off < 0 || off > l.fn.f.ParamSize-t.Size() {
			l.refuse("outside the parameters")
		}
		c := l.constant(Constant{Class: r.class, From: FromParam, Size: uint8(t.Size()), Sign: t.Signed(), Value: uint64(off)})
		if t.Signed() && d[i].Register.Type.Bits() == 16 {
			l.do("and.b32", r, c, l.literal(Bits32, 0xffff))
			continue
		}
		l.copyTo(r, c)
	}
}

func (l *lowering) store(in *ptx.Instruction) {
	switch {
	case in.Has("async"):
		l.storeAsync(in)
		return
	case in.Has("bulk"):
		l.storeBulk(in)
		return
	}
	fence, sync := l.checkAccess(in)
	t := in.Type(0)
	if len(in.Operands) < 2 {
		l.refuse("two operands are wanted")
	}
	to, s := &in.Operands[0], l.elements(&in.Operands[1])
	if len(s) != in.Vector() {
		l.refuse("%d values where %d are wanted", len(s), in.Vector())
	}
	if in.Space() == ptx.ConstSpace {
		l.refuse("constants cannot be written")
	}
	space := l.spaceOf(in, to)
	if space == ptx.ParamSpace {
		l.refuse("a kernel's parameters cannot be written")
	}
	c := classOf(t)
	for i := range s {
		if s[i].Kind == ptx.RegisterOperand {
			c = l.register(s[i].Register, s[i].Component).class
		}
	}
	o := newOp(OpStore).named("st")
	o.Space, o.Sync, o.Touch, o.Wide = space, sync, TouchStore, c == Bits64
	if !moves(t, c) {
		l.refuse("stores of type .%v from such registers are not supported", t)
	}
	for i := range s {
		var r reg
		if s[i].Kind == ptx.RegisterOperand {
			r = l.register(s[i].Register, s[i].Component)
			if s[i].Register.Type.Bits() < t.Bits() {
				l.refuse("operand %s has fewer bits than .%v", &s[i], t)
			}
		} else {
			et := t
			if t.Bits() < 16 {
				et = ptx.B16
			}
			if c == Bits64 && t.Bits() < 64 {
				et = ptx.B64
			}
			r = l.src(&s[i], et)
		}
		if r.class != c {
			l.refuse("values of different width")
		}
		o.addElement(r)
	}
	o.setAddress(l.address(to))
	if fence {
		l.fence(in)
	}
	l.emit(o)
}

// inMemory are the types that a load or store moves.
var inMemory = []ptx.Type{
	ptx.U8, ptx.B8, ptx.S8, ptx.U16, ptx.B16, ptx.F16, ptx.BF16, ptx.S16, ptx.U32, ptx.B32, ptx.F32, ptx.F16X2, ptx.BF16X2, ptx.S32,
	ptx.U64, ptx.S64, ptx.B64, ptx.F64,
}

// moves says whether a register of a class can take what has a type in memory.
func moves(t ptx.Type, c Class) bool {
	return slices.Contains(inMemory, t) && (c == Bits64 || c == Bits32 && t.Bits() <= 32)
}

// atom lowers atom and red.
func (l *lowering) atom(in *ptx.Instruction) {
	if in.Has("async") {
		l.reduceAsync(in)
		return
	}
	operation := ""
	fence := false
	for _, m := range in.Modifiers {
		switch {
		case ptx.TypeOf(m) != ptx.NoType:
		case ptx.SpaceOf(m) != ptx.NoSpace:
		case m == "v2" || m == "v4" || m == "v8":
		case m == "noftz" || slices.Contains([]string{"relaxed", "cta", "cluster", "gpu", "sys"}, m):
		case m == "acquire" || m == "release" || m == "acq_rel":
			fence = true
		case strings.HasPrefix(m, "L2::"):
		case operation == "":
			operation = m
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	t := in.Type(0)
	if len(in.Types) != 1 {
		l.refuse("one type is wanted")
	}
	k, ok := AtomicOps[operation+"."+t.String()]
	if !ok && (t == ptx.B16 || t == ptx.B32 || t == ptx.B64 || t == ptx.U32 || t == ptx.S32 || t == ptx.U64 || t == ptx.S64) {
		// exch, cas, and, or and xor do not care about signs.
		k, ok = AtomicOps[operation+".b"+t.String()[1:]]
	}
	if !ok {
		l.refuse("this operation is not supported")
	}
	ops := in.Operands
	space := in.Space()
	if space != ptx.NoSpace && space != ptx.GlobalSpace && space != ptx.SharedSpace {
		l.refuse("state space .%v is not supported", space)
	}
	o := newOp(OpAtomic)
	o.K, o.Touch, o.Size, o.Space = k, TouchAtomic, uint8(t.Size()), space
	if t == ptx.F32 && space != ptx.SharedSpace {
		// GPUs flush subnormal numbers to zero where they add to global memory, and there alone.
		o.Mode = FlushGlobal
	}
	if in.Vector() > 1 {
		l.atomVector(in, &o, operation, t, fence)
		return
	}
	if in.Opcode == "atom" {
		if len(ops) == 0 {
			l.refuse("operands are missing")
		}
		if ops[0].Kind != ptx.SinkOperand {
			o.setD(l.dst(&ops[0], t))
		}
		ops = ops[1:]
	}
	want := 2
	if operation == "cas" {
		want = 3
	}
	if len(ops) < want {
		l.refuse("operands are missing")
	}
	o.setAddress(l.address(&ops[0]))
	o.setB(l.src(&ops[1], t))
	if operation == "cas" {
		o.setC(l.src(&ops[2], t))
	}
	if fence {
		l.fence(in)
	}
	l.emit(o)
}

// atomVector lowers atom and red of vectors: each element is an atomic operation of its own,
// as PTX has it, in global memory. one has what they share.
func (l *lowering) atomVector(in *ptx.Instruction, one *Op, operation string, t ptx.Type, fence bool) {
	ops, n := in.Operands, in.Vector()
	var results []ptx.Operand
	if in.Opcode == "atom" {
		l.wants(in, 3)
		results, ops = l.elements(&ops[0]), ops[1:]
	}
	size := n * t.Size()
	if len(ops) != 2 || one.Space == ptx.SharedSpace || !t.Float() || t.Bits() > 32 || size > 16 || operation != "add" && t == ptx.F32 || t != ptx.F32 && !in.Has("noftz") {
		l.refuse("this form is not supported")
	}
	values := l.elements(&ops[1])
	if len(values) != n || results != nil && len(results) != n {
		l.refuse("%d values where %d are wanted", len(values), n)
	}
	// A result may have the place of a value that is still to come.
	sources := make([]reg, n)
	for i := range values {
		sources[i] = l.fresh(Bits32)
		l.copyTo(sources[i], l.src(&values[i], t))
	}
	base, offset := l.address(&ops[0])
	at := l.fresh(Bits64)
	l.copyTo(at, base)
	if fence {
		l.fence(in)
	}
	check := newOp(OpAligned)
	check.Space, check.Size = one.Space, uint8(size)
	check.setAddress(at, offset)
	l.emit(check)
	for i, value := range sources {
		o := *one
		if results != nil && results[i].Kind != ptx.SinkOperand {
			o.setD(l.dst(&results[i], t))
		}
		o.setAddress(at, offset+int64(i*t.Size()))
		o.setB(value)
		l.emit(o)
	}
}

// reduceAsync lowers red.async: an atomic operation without a result in the shared memory of a
// cluster, which tells an mbarrier.
func (l *lowering) reduceAsync(in *ptx.Instruction) {
	l.only(in, append([]string{"async", "relaxed", "cluster", "shared::cluster", "mbarrier::complete_tx::bytes"}, reductions...)...)
	l.wants(in, 3)
	t := in.Type(0)
	k, ok := AtomicOps[l.reductionName(in)+"."+t.String()]
	if !ok || len(in.Types) != 1 || t.Float() || t.Bits() == 64 && !in.Has("add") || !in.Has("mbarrier::complete_tx::bytes") {
		l.refuse("this form is not supported")
	}
	o := newOp(OpReduceAsync)
	o.K, o.Space, o.Size = k, ptx.SharedSpace, uint8(t.Size())
	o.setB(l.place(&in.Operands[2]))
	o.setC(l.src(&in.Operands[1], t))
	o.setAddress(l.address(&in.Operands[0]))
	l.emit(o)
}

func (l *lowering) fence(*ptx.Instruction) {
	o := newOp(OpFence)
	o.Touch = TouchFence
	l.emit(o)
}

func (l *lowering) isSpace(in *ptx.Instruction) {
	space := in.Space()
	if len(in.Operands) != 2 || space == ptx.NoSpace || space == ptx.ParamSpace && len(in.Modifiers) > 1 {
		l.refuse("this form is not supported")
	}
	d, a := l.dst(&in.Operands[0], ptx.Pred), l.src(&in.Operands[1], ptx.U64)
	o := newOp(OpIsSpace, a).pureTo(d)
	o.Space = space
	l.emit(o)
}

func (l *lowering) sleep(in *ptx.Instruction) { l.emit(newOp(OpSleep)) }

func (l *lowering) hint(in *ptx.Instruction) { l.emit(newOp(OpNothing)) }

// copyAsync lowers cp.async between global and shared memory: the copy is done
// at once, so groups of copies are always complete.
func (l *lowering) copyAsync(in *ptx.Instruction) {
	m := in.Modifiers
	switch {
	case in.Has("bulk"):
		l.copyBulk(in)
		return
	case in.Has("mbarrier"):
		l.copyArrives(in)
		return
	case len(m) < 2 || m[0] != "async":
		l.refuse("this instruction is not supported")
	}
	if m[1] == "commit_group" || m[1] == "wait_group" || m[1] == "wait_all" {
		l.emit(newOp(OpNothing))
		return
	}
	cacheHint := false
	for _, x := range m[1:] {
		switch x {
		case "ca", "cg", "shared", "shared::cta", "global", "L2::64B", "L2::128B", "L2::256B":
		case "L2::cache_hint":
			cacheHint = true
		default:
			l.refuse("modifier .%s is not supported", x)
		}
	}
	ops := in.Operands
	if cacheHint && len(ops) > 3 {
		l.src(&ops[len(ops)-1], ptx.B64) // a policy for caches, of which there are none
		ops = ops[:len(ops)-1]
	} else if cacheHint {
		l.refuse("the cache policy is missing")
	}
	if n := len(ops); n < 3 || n > 4 || !in.Has("global") {
		l.refuse("this form is not supported")
	}
	size, ok := ops[2].Literal.Int()
	if ops[2].Kind != ptx.ImmediateOperand || !ok || size != 4 && size != 8 && size != 16 {
		l.refuse("the size must be 4, 8 or 16")
	}
	if in.Has("cg") && size != 16 {
		l.refuse("with .cg the size must be 16")
	}
	to := l.place(&ops[0])
	o := newOp(OpCopyAsync)
	o.Touch, o.Size, o.Space = TouchCopy, uint8(size), ptx.GlobalSpace
	o.setAddress(l.address(&ops[1]))
	o.setB(to)
	if len(ops) == 4 {
		o.setC(l.copiedBytes(&ops[3], uint64(size)))
	}
	l.emit(o)
}

// copiedBytes returns how many bytes cp.async reads, the rest being zeros: a
// number, or none where a predicate says that the source is to be ignored.
func (l *lowering) copiedBytes(o *ptx.Operand, size uint64) reg {
	if o.Kind != ptx.RegisterOperand || o.Register.Type != ptx.Pred {
		return l.src(o, ptx.U32)
	}
	p, not := l.pred(o)
	n := l.fresh(Bits32)
	l.choose(n, l.literal(Bits32, 0), l.literal(Bits32, size), p, not)
	return n
}

// createPolicy lowers createpolicy. A policy tells caches what to keep. There are no
// caches here, so every policy is 0, and no instruction looks at it.
func (l *lowering) createPolicy(in *ptx.Instruction) {
	most := map[string]int{"fractional": 2, "range": 4, "cvt": 2}
	if len(in.Modifiers) == 0 || most[in.Modifiers[0]] == 0 || in.Type(0) != ptx.B64 {
		l.refuse("this form is not supported")
	}
	for _, m := range in.Modifiers[1:] {
		if m != "global" && m != "b64" && m != "L2" && !strings.HasPrefix(m, "L2::evict_") {
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if n := len(in.Operands); n < 1 || n > most[in.Modifiers[0]] {
		l.refuse("%d operands are not supported", n)
	}
	l.copyTo(l.dst(&in.Operands[0], ptx.B64), l.literal(Bits64, 0))
}
