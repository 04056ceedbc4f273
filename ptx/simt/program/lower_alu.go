package program

import (
	"slices"
	"strings"

	"muster/ptx"
	"muster/ptx/simt/vec"
)

// lowerers are the instructions that need more than one lane kernel, by opcode.
var lowerers map[string]func(*lowering, *ptx.Instruction)

func init() {
	lowerers = map[string]func(*lowering, *ptx.Instruction){
		"mov": (*lowering).mov, "cvta": (*lowering).cvta, "cvt": (*lowering).cvt,
		"setp": (*lowering).setp, "set": (*lowering).set, "selp": (*lowering).selp, "testp": (*lowering).testp,
		"ld": (*lowering).load, "ldu": (*lowering).load, "st": (*lowering).store,
		"atom": (*lowering).atom, "red": (*lowering).atom,
		"bra": (*lowering).bra, "brx": (*lowering).brx, "call": (*lowering).call,
		"ret": (*lowering).retInstruction, "exit": (*lowering).exit, "trap": (*lowering).trap, "brkpt": (*lowering).trap,
		"bar": (*lowering).bar, "barrier": (*lowering).bar,
		"membar": (*lowering).fence, "fence": (*lowering).fence,
		"shfl": (*lowering).shfl, "vote": (*lowering).vote, "match": (*lowering).match, "redux": (*lowering).redux,
		"activemask": (*lowering).activeMask, "elect": (*lowering).elect,
		"isspacep": (*lowering).isSpace, "nanosleep": (*lowering).sleep,
		"prefetch": (*lowering).hint, "prefetchu": (*lowering).hint, "discard": (*lowering).hint,
		"applypriority": (*lowering).hint, "pmevent": (*lowering).hint, "griddepcontrol": (*lowering).hint,
		"cp": (*lowering).copyAsync, "lop3": (*lowering).lop3, "min": (*lowering).extreme, "max": (*lowering).extreme,
		"movmatrix": (*lowering).moveMatrix, "stmatrix": (*lowering).storeMatrix, "ldmatrix": (*lowering).loadMatrix,
		"mma": (*lowering).mma, "wmma": (*lowering).wmma, "wgmma": (*lowering).wgmma,
		"mbarrier": (*lowering).mbarrier, "mapa": (*lowering).mapAddress, "getctarank": (*lowering).blockRank,
		"tex": (*lowering).tex, "tld4": (*lowering).tex, "suld": (*lowering).surface, "sust": (*lowering).surface,
		"txq": (*lowering).textureQuery, "suq": (*lowering).textureQuery,
		"setmaxnreg": (*lowering).setMaxRegisters, "multimem": (*lowering).multicast, "createpolicy": (*lowering).createPolicy,
		"tensormap": (*lowering).tensorMap,
	}
}

// do emits a lane kernel; the kernel's type determines the classes of its operands.
func (l *lowering) do(name string, d reg, sources ...reg) {
	k := vec.Kernel(name)
	if k == nil {
		l.refuse("not supported (no arithmetic named %s)", name)
	}
	want := shapes(k)
	if len(sources) != len(want)-1 || d.class != want[0] {
		l.refuse("not supported with these operands")
	}
	for i, s := range sources {
		if s.class != want[i+1] {
			l.refuse("not supported with these operands")
		}
	}
	o := newOp(OpArithmetic, sources...).named(name).pureTo(d)
	o.K = k
	if d.class == Predicate {
		o.Ordered = orderOf(name)
	}
	l.emit(o)
}

// orderOf returns how a comparison of integers orders them; 0 for others.
func orderOf(name string) uint8 {
	f := strings.Split(name, ".")
	kind := map[string]uint8{"lt": OrderLess, "le": OrderLessEqual, "gt": OrderGreater, "ge": OrderGreaterEqual}[f[1]]
	switch f[len(f)-1] {
	case "s32", "s64":
		kind |= OrderSigned
	case "u32", "u64":
	default:
		return 0
	}
	return kind
}

// shapes returns the classes of a kernel's operands, destination first.
func shapes(k any) []Class {
	const s, w, p = Bits32, Bits64, Predicate
	switch k.(type) {
	case vec.Unary32:
		return []Class{s, s}
	case vec.Binary32:
		return []Class{s, s, s}
	case vec.Ternary32:
		return []Class{s, s, s, s}
	case vec.Quad32:
		return []Class{s, s, s, s, s}
	case vec.Unary64:
		return []Class{w, w}
	case vec.Binary64:
		return []Class{w, w, w}
	case vec.Ternary64:
		return []Class{w, w, w, w}
	case vec.Widen:
		return []Class{w, s}
	case vec.Narrow:
		return []Class{s, w}
	case vec.WidenBinary:
		return []Class{w, s, s}
	case vec.WidenAdd:
		return []Class{w, s, s, w}
	case vec.Shift64:
		return []Class{w, w, s}
	case vec.Extract64:
		return []Class{w, w, s, s}
	case vec.Insert64:
		return []Class{w, w, w, s, s}
	case vec.Choose64:
		return []Class{w, w, w, s}
	case vec.Compare32:
		return []Class{p, s, s}
	case vec.Compare64:
		return []Class{p, w, w}
	case vec.Test32:
		return []Class{p, s}
	case vec.Test64:
		return []Class{p, w}
	case vec.Carry32:
		return []Class{s, s, s, s}
	case vec.Carry64:
		return []Class{w, w, w, w}
	}
	return nil
}

// The modifiers that select arithmetic, in the order in which the names of
// kernels have them.
var arithmeticOrder = [][]string{
	{"l", "r"}, {"wrap", "clamp"}, {"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}, {"shiftamt"},
	{"lo", "hi", "wide"}, {"rn", "rz", "rm", "rp", "approx", "full"}, {"ftz"}, {"sat"}, {"NaN"}, {"xorsign"}, {"abs"}, {"relu"}, {"cc"},
}

// allowed says which modifiers an opcode may have besides types. All others are
// refused, so that no modifier is ever ignored.
var allowed = map[string]string{
	"add": "rn rz rm rp ftz sat cc", "sub": "rn rz rm rp ftz sat cc", "addc": "cc", "subc": "cc",
	"mul": "lo hi wide rn rz rm rp ftz sat", "mad": "lo hi wide rn rz rm rp ftz sat cc", "madc": "lo hi cc",
	"mul24": "lo hi", "mad24": "lo hi sat",
	"div": "rn rz rm rp approx full ftz", "rem": "", "abs": "ftz", "neg": "ftz",
	"min": "ftz NaN xorsign abs relu", "max": "ftz NaN xorsign abs relu", "sad": "",
	"and": "", "or": "", "xor": "", "not": "", "cnot": "", "shl": "", "shr": "", "shf": "l r wrap clamp",
	"bfe": "", "bfi": "", "bfind": "shiftamt", "brev": "", "clz": "", "popc": "", "prmt": "f4e b4e rc8 ecl ecr rc16",
	"bmsk": "clamp wrap", "szext": "clamp wrap", "fns": "",
	"lop3": "", "dp4a": "", "dp2a": "lo hi",
	"fma": "rn rz rm rp ftz sat relu", "rcp": "rn rz rm rp approx ftz", "sqrt": "rn rz rm rp approx ftz",
	"rsqrt": "approx ftz", "sin": "approx ftz", "cos": "approx ftz", "ex2": "approx ftz", "lg2": "approx ftz", "tanh": "approx",
	"copysign": "", "slct": "ftz",
}

// kernelName returns the name of the kernel for an instruction.
func (l *lowering) kernelName(in *ptx.Instruction) string {
	may, ok := allowed[in.Opcode]
	if !ok {
		l.refuse("this instruction is not supported")
	}
	has := map[string]bool{}
	for _, m := range in.Modifiers {
		if ptx.TypeOf(m) != ptx.NoType {
			continue
		}
		if !slices.Contains(strings.Fields(may), m) {
			l.refuse("modifier .%s is not supported", m)
		}
		has[m] = true
	}
	t := in.Type(0)
	opcode := in.Opcode
	if t.Float() {
		switch {
		case opcode == "mad":
			opcode = "fma" // of the same meaning since sm_20
		case (opcode == "add" || opcode == "sub" || opcode == "mul") && !has["rz"] && !has["rm"] && !has["rp"]:
			has["rn"] = true
		}
	}
	name := opcode
	for _, group := range arithmeticOrder {
		for _, m := range group {
			if has[m] {
				name += "." + m
			}
		}
	}
	types := make([]string, len(in.Types))
	for i, t := range in.Types {
		types[i] = t.String()
	}
	if len(types) > 0 {
		types[0] = plainType(in, has, types[0])
	}
	return name + "." + strings.Join(types, ".")
}

// plainType drops the sign from the type where it does not matter.
func plainType(in *ptx.Instruction, has map[string]bool, t string) string {
	width := strings.TrimLeft(t, "usb")
	switch in.Opcode {
	case "add", "sub", "addc", "subc":
		if !in.Type(0).Float() && !has["sat"] {
			return "b" + width
		}
	case "mul", "mad", "madc":
		if has["lo"] && !in.Type(0).Float() {
			return "b" + width
		}
	case "and", "or", "xor":
		if width == "16" {
			return "b32" // values of 16 bits have zeros above
		}
		return "b" + width
	case "not", "cnot", "shl", "brev", "clz", "popc", "bfi", "shf", "prmt", "lop3":
		return "b" + width
	case "slct":
		if width = strings.TrimLeft(t, "usbf"); width == "16" {
			return "b32"
		}
		return "b" + width
	case "shr":
		if t[0] == 'b' {
			return "u" + width
		}
	}
	return t
}

// arithmetic lowers an instruction that is one lane kernel.
func (l *lowering) arithmetic(in *ptx.Instruction) {
	if in.Type(0) == ptx.Pred {
		l.predicateLogic(in)
		return
	}
	if in.Type(0) == ptx.F32X2 {
		l.pairs(in)
		return
	}
	name := l.kernelName(in)
	k := vec.Kernel(name)
	if k == nil {
		l.refuse("this combination is not supported")
	}
	want := shapes(k)
	ops := in.Operands
	_, carry32 := k.(vec.Carry32)
	_, carry64 := k.(vec.Carry64)
	carry := carry32 || carry64
	n := len(want)
	if carry && in.Opcode[0] != 'm' {
		n-- // add and sub have two sources
	}
	if len(ops) != n {
		l.refuse("%d operands where %d are wanted", len(ops), n)
	}
	t := in.Type(0)
	sources := make([]reg, 0, 4)
	for i := 1; i < n; i++ {
		sources = append(sources, l.src(&ops[i], operandType(in, t, want, i)))
	}
	if carry && n < len(want) {
		sources = append(sources, l.literal(want[0], 0))
	}
	dt := t
	if classOf(t) != want[0] {
		dt = ptx.U32
		if want[0] == Bits64 {
			dt = ptx.U64
		}
	}
	if t == ptx.U16 || t == ptx.S16 {
		if strings.Contains(name, ".wide.") {
			dt = ptx.U32
		}
	}
	d := l.dst(&ops[0], dt)
	if carry {
		o := newOp(OpArithmetic, sources...).to(d) // it also writes the carry, so it is not pure
		o.K = k
		l.emit(o)
		return
	}
	l.do(name, d, sources...)
}

// pairs lowers arithmetic on two f32 in a register of 64 bits.
func (l *lowering) pairs(in *ptx.Instruction) {
	sources := map[string]int{"add": 2, "sub": 2, "mul": 2, "fma": 3}[in.Opcode]
	if sources == 0 || len(in.Types) != 1 || in.Has("sat") || in.Has("relu") || in.Has("cc") {
		l.refuse("this combination is not supported")
	}
	l.wants(in, sources+1)
	name := strings.TrimSuffix(l.kernelName(in), "x2")
	var halves [2][]reg
	for i := range sources {
		a := l.src(&in.Operands[i+1], ptx.B64)
		low, high, shifted := l.fresh(Bits32), l.fresh(Bits32), l.fresh(Bits64)
		l.do("cvt.u32.u64", low, a)
		l.do("shr.u64", shifted, a, l.literal(Bits32, 32))
		l.do("cvt.u32.u64", high, shifted)
		halves[0], halves[1] = append(halves[0], low), append(halves[1], high)
	}
	var wide [2]reg
	for i := range wide {
		result := l.fresh(Bits32)
		wide[i] = l.fresh(Bits64)
		l.do(name, result, halves[i]...)
		l.do("cvt.u64.u32", wide[i], result)
	}
	upper := l.fresh(Bits64)
	l.do("shl.b64", upper, wide[1], l.literal(Bits32, 32))
	l.do("or.b64", l.dst(&in.Operands[0], ptx.B64), wide[0], upper)
}

// lop3 lowers lop3, which may also return a predicate: whether the result is not
// zero, combined with another predicate. The destination may be a sink then.
func (l *lowering) lop3(in *ptx.Instruction) {
	how := ""
	for _, m := range in.Modifiers {
		if m == "and" || m == "or" {
			how = m
		}
	}
	if how == "" {
		l.arithmetic(in)
		return
	}
	l.wants(in, 6)
	pair := &in.Operands[0]
	if len(in.Modifiers) != 2 || in.Type(0) != ptx.B32 || pair.Kind != ptx.PairOperand {
		l.refuse("this form is not supported")
	}
	sources := make([]reg, 4)
	for i := range sources {
		sources[i] = l.src(&in.Operands[i+1], ptx.B32)
	}
	q, notQ := l.pred(&in.Operands[5])
	result, some := l.fresh(Bits32), l.fresh(Predicate)
	l.do("lop3.b32", result, sources...)
	l.do("setp.ne.b32", some, result, l.literal(Bits32, 0))
	l.combine(l.dst(&pair.Elements[1], ptx.Pred), some, false, how, q, notQ)
	if d := &pair.Elements[0]; d.Kind != ptx.SinkOperand {
		l.copyTo(l.dst(d, ptx.B32), result)
	}
}

// extreme lowers min and max. PTX defines those of three f32 as two of two.
func (l *lowering) extreme(in *ptx.Instruction) {
	if in.Type(0) != ptx.F32 || len(in.Operands) != 4 {
		l.arithmetic(in)
		return
	}
	l.only(in, "ftz", "NaN", "abs")
	name := in.Opcode
	for _, m := range []string{"ftz", "NaN"} {
		if in.Has(m) {
			name += "." + m
		}
	}
	var sources [3]reg
	for i := range sources {
		sources[i] = l.src(&in.Operands[i+1], ptx.F32)
		if in.Has("abs") {
			a := l.fresh(Bits32)
			l.do("abs.f32", a, sources[i])
			sources[i] = a
		}
	}
	two := l.fresh(Bits32)
	l.do(name+".f32", two, sources[0], sources[1])
	l.do(name+".f32", l.dst(&in.Operands[0], ptx.F32), two, sources[2])
}

// setMaxRegisters checks setmaxnreg. On a GPU it moves registers between the warps
// of a block; here every warp has enough.
func (l *lowering) setMaxRegisters(in *ptx.Instruction) {
	l.only(in, "inc", "dec", "sync", "aligned")
	l.wants(in, 1)
	if len(in.Modifiers) != 4 || in.Has("inc") == in.Has("dec") || !in.Has("sync") || !in.Has("aligned") || in.Type(0) != ptx.U32 {
		l.refuse("this form is not supported")
	}
	n, ok := in.Operands[0].Literal.Int()
	if in.Operands[0].Kind != ptx.ImmediateOperand || !ok || n < 24 || n > 256 || n%8 != 0 {
		l.refuse("%s is no number of registers: a constant multiple of 8 from 24 to 256 is wanted", &in.Operands[0])
	}
	l.hint(in)
}

// multicast refuses multimem with the reason.
func (l *lowering) multicast(*ptx.Instruction) {
	l.refuse("not supported: multimem needs memory that several GPUs share by multicast, and the software GPU is one")
}

// operandType returns the type that source i of an instruction has.
func operandType(in *ptx.Instruction, t ptx.Type, want []Class, i int) ptx.Type {
	switch in.Opcode {
	case "shl", "shr":
		if i == 2 {
			return ptx.U32
		}
	case "slct":
		if i == 3 {
			return in.Type(1)
		}
	case "bfe", "bfi":
		if want[i] == Bits32 && i >= len(want)-2 {
			return ptx.U32
		}
	case "dp4a", "dp2a":
		return ptx.U32
	case "mad":
		if i == 3 && in.Has("wide") && t.Bits() == 16 {
			return ptx.U32
		}
	case "lop3":
		return ptx.U32
	}
	if classOf(t) == want[i] {
		return t
	}
	if want[i] == Bits64 {
		if t.Signed() {
			return ptx.S64
		}
		return ptx.U64
	}
	return ptx.U32
}

// onPredicates are the operations on predicates.
var onPredicates = map[string]Operation{"and": OpPredAnd, "or": OpPredOr, "xor": OpPredXor, "not": OpPredCopy}

// predicateLogic lowers and, or, xor and not of predicates.
func (l *lowering) predicateLogic(in *ptx.Instruction) {
	do, ok := onPredicates[in.Opcode]
	if !ok {
		l.refuse("not supported on predicates")
	}
	if in.Opcode == "not" {
		l.wants(in, 2)
	} else {
		l.wants(in, 3)
	}
	d := l.dst(&in.Operands[0], ptx.Pred)
	a, inverted := l.pred(&in.Operands[1])
	o := newOp(do, a).named(in.Opcode + ".pred").pureTo(d)
	if inverted != (in.Opcode == "not") {
		o.Mode |= InvertA
	}
	if in.Opcode != "not" {
		b, inverted := l.pred(&in.Operands[2])
		if inverted {
			o.Mode |= InvertB
		}
		o.setB(b)
	}
	l.emit(o)
}

// copyTo emits d = a.
func (l *lowering) copyTo(d, a reg) {
	if d.class == Predicate {
		l.copyPredicate(d, a, false)
		return
	}
	o := newOp(OpCopy, a).named(suffix("mov.b", d)).pureTo(d)
	o.Wide = d.class == Bits64
	o.copies = true
	l.emit(o)
}

// copyPredicate emits d = a for predicates, or d = not a.
func (l *lowering) copyPredicate(d, a reg, invert bool) {
	o := newOp(OpPredCopy, a).named("mov.pred").pureTo(d)
	if invert {
		o.Mode = InvertA
	}
	l.emit(o)
}

// mov lowers copies, addresses, and packing and unpacking of vectors.
func (l *lowering) mov(in *ptx.Instruction) {
	t := in.Type(0)
	if len(in.Operands) == 2 && len(in.Modifiers) == 2 && in.Vector() > 1 {
		l.movVector(in)
		return
	}
	if len(in.Modifiers) != 1 || t == ptx.NoType || len(in.Operands) != 2 {
		l.refuse("this form is not supported")
	}
	d, s := &in.Operands[0], &in.Operands[1]
	switch {
	case t == ptx.Pred:
		a, inverted := l.pred(s)
		l.copyPredicate(l.dst(d, t), a, inverted)
	case classOf(t) == NoClass:
		l.refuse("type .%v is not supported", t)
	case s.Kind == ptx.VectorOperand:
		l.pack(l.dst(d, t), s.Elements, t)
	case d.Kind == ptx.VectorOperand:
		l.unpack(d.Elements, l.src(s, t), t)
	default:
		l.copyTo(l.dst(d, t), l.src(s, t))
	}
}

// movVector copies whole vectors: mov.v4.u32 %v, %tid.
func (l *lowering) movVector(in *ptx.Instruction) {
	t := in.Type(0)
	d, s := l.elements(&in.Operands[0]), l.elements(&in.Operands[1])
	if len(d) != in.Vector() || len(s) != in.Vector() {
		l.refuse("%d elements where %d are wanted", min(len(d), len(s)), in.Vector())
	}
	values := make([]reg, len(s))
	for i := range s {
		values[i] = l.fresh(classOf(t))
		l.copyTo(values[i], l.src(&s[i], t))
	}
	for i := range d {
		if d[i].Kind != ptx.SinkOperand {
			l.copyTo(l.dst(&d[i], t), values[i])
		}
	}
}

// pack lowers mov.b64 d, {lo, hi} and similar: the first element becomes the lowest
// bits.
func (l *lowering) pack(d reg, elements []ptx.Operand, t ptx.Type) {
	width := t.Bits() / len(elements)
	part := map[int]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32}[width]
	if part == ptx.NoType {
		l.refuse("packing %d values is not supported", len(elements))
	}
	sum := noReg
	for i := range elements {
		r := l.src(&elements[i], part)
		if d.class == Bits64 {
			w := l.fresh(Bits64)
			l.do("cvt.u64.u"+map[int]string{8: "8", 16: "16", 32: "32"}[width], w, r)
			r = w
		} else if width < 32 {
			w := l.fresh(Bits32)
			l.do("and.b32", w, r, l.literal(Bits32, 1<<width-1))
			r = w
		}
		if i > 0 {
			shifted := l.fresh(d.class)
			l.do(suffix("shl.b", d), shifted, r, l.literal(Bits32, uint64(i*width)))
			r = shifted
		}
		if sum != noReg {
			or := l.fresh(d.class)
			l.do(suffix("or.b", d), or, sum, r)
			r = or
		}
		sum = r
	}
	l.copyTo(d, sum)
}

func suffix(name string, r reg) string {
	if r.class == Bits64 {
		return name + "64"
	}
	return name + "32"
}

// unpack lowers mov.b64 {lo, hi}, a.
func (l *lowering) unpack(elements []ptx.Operand, a reg, t ptx.Type) {
	width := t.Bits() / len(elements)
	part := map[int]ptx.Type{8: ptx.B8, 16: ptx.B16, 32: ptx.B32}[width]
	if part == ptx.NoType {
		l.refuse("unpacking %d values is not supported", len(elements))
	}
	// A destination may be the source: all parts are taken before any is
	// written.
	parts := make([]reg, len(elements))
	for i := range elements {
		if elements[i].Kind == ptx.SinkOperand {
			continue
		}
		r := a
		if i > 0 {
			r = l.fresh(a.class)
			name := "shr.u32"
			if a.class == Bits64 {
				name = "shr.u64"
			}
			l.do(name, r, a, l.literal(Bits32, uint64(i*width)))
		}
		if a.class == Bits64 {
			n := l.fresh(Bits32)
			l.do("cvt.u32.u64", n, r)
			r = n
		}
		if width < 32 {
			n := l.fresh(Bits32)
			l.do("and.b32", n, r, l.literal(Bits32, 1<<width-1))
			r = n
		}
		parts[i] = r
	}
	for i := range elements {
		if elements[i].Kind != ptx.SinkOperand {
			l.copyTo(l.dst(&elements[i], part), parts[i])
		}
	}
}

// cvta converts between a state space's address and a generic one.
func (l *lowering) cvta(in *ptx.Instruction) {
	to := in.Has("to")
	space := ptx.NoSpace
	for _, m := range in.Modifiers {
		switch s := ptx.SpaceOf(m); {
		case s != ptx.NoSpace:
			space = s
		case m != "to" && m != "u64":
			l.refuse("modifier .%s is not supported", m)
		}
	}
	l.wants(in, 2)
	d := l.dst(&in.Operands[0], ptx.U64)
	a := l.src(&in.Operands[1], ptx.U64)
	offset := map[ptx.Space]uint64{
		ptx.GlobalSpace: 0, ptx.ConstSpace: 0, ptx.SharedSpace: sharedWindow, ptx.LocalSpace: localWindow, ptx.ParamSpace: paramWindow,
	}
	by, ok := offset[space]
	if !ok {
		l.refuse("state space .%v is not supported", space)
	}
	if space == ptx.ParamSpace && !l.fn.f.Entry {
		by = localWindow // parameters of functions are in their frames
	}
	switch {
	case by == 0:
		l.copyTo(d, a)
	case to:
		l.do("sub.b64", d, a, l.literal(Bits64, by))
	default:
		l.do("add.b64", d, a, l.literal(Bits64, by))
	}
}

// cvt converts between types. The registers may be wider than the types.
func (l *lowering) cvt(in *ptx.Instruction) {
	if in.Has("pack") {
		l.convertAndPack(in)
		return
	}
	if len(in.Types) != 2 {
		l.refuse("this form is not supported")
	}
	name := "cvt"
	may := []string{"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "ftz", "sat", "satfinite", "relu"}
	for _, m := range in.Modifiers {
		if ptx.TypeOf(m) == ptx.NoType && !slices.Contains(may, m) {
			l.refuse("modifier .%s is not supported", m)
		}
	}
	dt, at := in.Type(0), in.Type(1)
	for _, m := range may {
		if in.Has(m) && (m != "ftz" || at.Float()) { // integers are never subnormal
			name += "." + m
		}
	}
	name += "." + dt.String() + "." + at.String()
	k := vec.Kernel(name)
	if k == nil {
		l.refuse("this conversion is not supported")
	}
	want := shapes(k)
	if len(in.Operands) != len(want) {
		l.refuse("%d operands where %d are wanted", len(in.Operands), len(want))
	}
	var sources []reg
	for i := 1; i < len(want); i++ {
		o := &in.Operands[i]
		if o.Kind == ptx.RegisterOperand && l.register(o.Register, o.Component).class == Bits64 && want[i] == Bits32 {
			low := l.fresh(Bits32)
			l.do("cvt.u32.u64", low, l.register(o.Register, o.Component))
			sources = append(sources, low)
			continue
		}
		if o.Kind == ptx.RegisterOperand && o.Register.Type.Bits() < at.Bits() {
			l.refuse("operand %s has fewer bits than .%v", o, at)
		}
		st := at
		if at.Bits() < 16 {
			st = ptx.B16
			if o.Kind == ptx.RegisterOperand {
				st = ptx.B8 // any register is wide enough
			}
		}
		sources = append(sources, l.src(o, st))
	}
	d := &in.Operands[0]
	if d.Kind != ptx.RegisterOperand {
		l.refuse("%s cannot be a destination", d)
	}
	dr := l.register(d.Register, d.Component)
	if d.Register.Type.Bits() < dt.Bits() {
		l.refuse("destination %s has fewer bits than .%v", d, dt)
	}
	result := dr
	if dr.class != want[0] || d.Register.Type.Bits() == 16 && dt.Signed() {
		result = l.fresh(want[0])
	}
	l.do(name, result, sources...)
	switch {
	case result == dr:
	case dr.class == want[0]:
		l.do("and.b32", dr, result, l.literal(Bits32, 0xffff))
	case dr.class == Bits64 && dt.Signed():
		l.do("cvt.s64.s32", dr, result)
	case dr.class == Bits64:
		l.do("cvt.u64.u32", dr, result)
	default:
		l.refuse("destination %s has fewer bits than .%v", d, dt)
	}
}

// convertAndPack lowers cvt.pack.
func (l *lowering) convertAndPack(in *ptx.Instruction) {
	l.only(in, "pack", "sat")
	name := "cvt.pack.sat"
	for _, t := range in.Types {
		name += "." + t.String()
	}
	want := 1 + len(in.Types) // the third type is that of c
	if vec.Kernel(name) == nil || !in.Has("sat") {
		l.refuse("this conversion is not supported")
	}
	l.wants(in, want)
	var sources []reg
	for i := 1; i < want; i++ {
		sources = append(sources, l.src(&in.Operands[i], ptx.S32))
	}
	l.do(name, l.dst(&in.Operands[0], ptx.B32), sources...)
}

var intComparisons = map[string]string{"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}

// compare emits a comparison into a predicate.
func (l *lowering) compare(d reg, cmp string, ftz bool, t ptx.Type, a, b reg) {
	name := "setp."
	ty := t.String()
	if !t.Float() {
		if c, ok := intComparisons[cmp]; ok {
			if t.Signed() {
				l.refuse("comparison .%s is for unsigned numbers", cmp)
			}
			cmp, ty = c, "u"+ty[1:]
		}
		if cmp == "eq" || cmp == "ne" {
			ty = "b" + ty[1:]
		} else if t.Untyped() {
			l.refuse("bits have no order")
		}
	}
	name += cmp
	if ftz {
		name += ".ftz"
	}
	l.do(name+"."+ty, d, a, b)
}

var comparisons = []string{"eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"}

// comparison parses the modifiers of setp and set.
func (l *lowering) comparison(in *ptx.Instruction) (cmp, combine string, ftz bool) {
	for _, m := range in.Modifiers {
		switch {
		case ptx.TypeOf(m) != ptx.NoType:
		case m == "ftz":
			ftz = true
		case m == "and" || m == "or" || m == "xor":
			combine = m
		case cmp == "" && slices.Contains(comparisons, m):
			cmp = m
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if cmp == "" {
		l.refuse("a comparison is missing")
	}
	return cmp, combine, ftz
}

// combine emits d = (inverted?)p op c.
func (l *lowering) combine(d, p reg, invert bool, how string, c reg, notC bool) {
	if how == "" {
		l.copyPredicate(d, p, invert)
		return
	}
	o := newOp(onPredicates[how], p, c).named(how + ".pred").pureTo(d)
	if invert {
		o.Mode |= InvertA
	}
	if notC {
		o.Mode |= InvertB
	}
	l.emit(o)
}

// setp lowers setp: it compares, may combine the answer with a predicate, and may
// write the opposite to a second predicate.
func (l *lowering) setp(in *ptx.Instruction) {
	cmp, how, ftz := l.comparison(in)
	t := in.Type(0)
	if n := len(in.Operands); n != 3 && n != 4 || (n == 4) != (how != "") {
		l.refuse("%d operands are not supported", n)
	}
	d, q := &in.Operands[0], (*ptx.Operand)(nil)
	if d.Kind == ptx.PairOperand {
		d, q = &d.Elements[0], &d.Elements[1]
	}
	c, notC := noReg, false
	if how != "" {
		c, notC = l.pred(&in.Operands[3])
	}
	if t == ptx.F16X2 || t == ptx.BF16X2 {
		l.setpPairs(in, cmp, how, ftz, d, q, c, notC)
		return
	}
	a, b := l.src(&in.Operands[1], t), l.src(&in.Operands[2], t)
	if how == "" && q == nil {
		l.compare(l.dst(d, ptx.Pred), cmp, ftz, t, a, b)
		return
	}
	p := l.fresh(Predicate)
	l.compare(p, cmp, ftz, t, a, b)
	first, second := l.fresh(Predicate), l.fresh(Predicate)
	l.combine(first, p, false, how, c, notC)
	if q != nil {
		l.combine(second, p, true, how, c, notC)
		l.copyTo(l.dst(q, ptx.Pred), second)
	}
	l.copyTo(l.dst(d, ptx.Pred), first)
}

// setpPairs compares two pairs of halves.
func (l *lowering) setpPairs(in *ptx.Instruction, cmp, how string, ftz bool, d, q *ptx.Operand, c reg, notC bool) {
	t := in.Type(0)
	half := ptx.F16
	if t == ptx.BF16X2 {
		half = ptx.BF16
	}
	if q == nil {
		l.refuse("two destinations are needed")
	}
	a, b := l.src(&in.Operands[1], t), l.src(&in.Operands[2], t)
	var results [2]reg
	for i := range results {
		x, y := l.half(a, i), l.half(b, i)
		p := l.fresh(Predicate)
		l.compare(p, cmp, ftz, half, x, y)
		results[i] = l.fresh(Predicate)
		l.combine(results[i], p, false, how, c, notC)
	}
	l.copyTo(l.dst(d, ptx.Pred), results[0])
	l.copyTo(l.dst(q, ptx.Pred), results[1])
}

// half returns one half of a pair.
func (l *lowering) half(a reg, i int) reg {
	r := l.fresh(Bits32)
	if i == 0 {
		l.do("and.b32", r, a, l.literal(Bits32, 0xffff))
	} else {
		l.do("shr.u32", r, a, l.literal(Bits32, 16))
	}
	return r
}

// set lowers set: it compares and writes a number.
func (l *lowering) set(in *ptx.Instruction) {
	cmp, how, ftz := l.comparison(in)
	if len(in.Types) != 2 || len(in.Operands) < 3 {
		l.refuse("this form is not supported")
	}
	dt, t := in.Type(0), in.Type(1)
	yes, ok := map[ptx.Type]uint64{ptx.U32: 0xffffffff, ptx.S32: 0xffffffff, ptx.F32: 0x3f800000, ptx.U16: 0xffff, ptx.S16: 0xffff, ptx.F16: 0x3c00, ptx.BF16: 0x3f80}[dt]
	if t == ptx.F16X2 || t == ptx.BF16X2 {
		l.setPairs(in, cmp, how, ftz)
		return
	}
	if !ok || dt.Bits() == 16 && t.Bits() != 16 {
		l.refuse("types .%v.%v are not supported", dt, t)
	}
	c, notC := noReg, false
	if how != "" {
		if len(in.Operands) != 4 {
			l.refuse("a predicate is missing")
		}
		c, notC = l.pred(&in.Operands[3])
	}
	p := l.fresh(Predicate)
	l.compare(p, cmp, ftz, t, l.src(&in.Operands[1], t), l.src(&in.Operands[2], t))
	if how != "" {
		both := l.fresh(Predicate)
		l.combine(both, p, false, how, c, notC)
		p = both
	}
	l.choose(l.dst(&in.Operands[0], dt), l.literal(Bits32, yes), l.literal(Bits32, 0), p, false)
}

// setPairs compares two pairs of halves and writes a pair of numbers.
func (l *lowering) setPairs(in *ptx.Instruction, cmp, how string, ftz bool) {
	dt, t := in.Type(0), in.Type(1)
	half := map[ptx.Type]ptx.Type{ptx.F16X2: ptx.F16, ptx.BF16X2: ptx.BF16}[t]
	yes, ok := map[ptx.Type]uint64{ptx.F16X2: 0x3c00, ptx.BF16X2: 0x3f80, ptx.U32: 0xffff, ptx.S32: 0xffff}[dt]
	if !ok || how != "" || dt.Float() && dt != t {
		l.refuse("types .%v.%v are not supported", dt, t)
	}
	a, b := l.src(&in.Operands[1], t), l.src(&in.Operands[2], t)
	var halves [2]reg
	for i := range halves {
		p := l.fresh(Predicate)
		l.compare(p, cmp, ftz, half, l.half(a, i), l.half(b, i))
		halves[i] = l.fresh(Bits32)
		l.choose(halves[i], l.literal(Bits32, yes<<(16*i)), l.literal(Bits32, 0), p, false)
	}
	l.do("or.b32", l.dst(&in.Operands[0], dt), halves[0], halves[1])
}

// choose emits d = p ? a : b.
func (l *lowering) choose(d, a, b, p reg, not bool) {
	o := newOp(OpSelect, a, b, p).named(suffix("selp.b", d)).pureTo(d)
	o.Negated, o.Wide = not, d.class == Bits64
	l.emit(o)
}

func (l *lowering) selp(in *ptx.Instruction) {
	t := in.Type(0)
	if len(in.Modifiers) != 1 || len(in.Operands) != 4 || classOf(t) == NoClass || t == ptx.Pred {
		l.refuse("this form is not supported")
	}
	p, not := l.pred(&in.Operands[3])
	l.choose(l.dst(&in.Operands[0], t), l.src(&in.Operands[1], t), l.src(&in.Operands[2], t), p, not)
}

func (l *lowering) testp(in *ptx.Instruction) {
	if len(in.Modifiers) != 2 || len(in.Operands) != 2 {
		l.refuse("this form is not supported")
	}
	t := in.Type(0)
	l.do("testp."+in.Modifiers[0]+"."+t.String(), l.dst(&in.Operands[0], ptx.Pred), l.src(&in.Operands[1], t))
}
