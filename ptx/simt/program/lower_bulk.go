package program

import (
	"slices"

	"muster/ptx"
	"muster/ptx/simt/tensorbox"
	"muster/ptx/simt/tensormap"
)

// place lowers an operand in brackets to a register that holds the address.
func (l *lowering) place(o *ptx.Operand) reg {
	base, offset := l.address(o)
	if offset == 0 {
		return base
	}
	sum := l.fresh(Bits64)
	l.do("add.b64", sum, base, l.literal(Bits64, uint64(offset)))
	return sum
}

// barrierWords are the modifiers of mbarrier that have no effect here.
var barrierWords = []string{"shared", "shared::cta", "shared::cluster", "b64", "relaxed", "acquire", "release", "cta", "cluster"}

// mbarrier lowers the instructions on mbarrier objects.
func (l *lowering) mbarrier(in *ptx.Instruction) {
	if len(in.Modifiers) == 0 {
		l.refuse("this form is not supported")
	}
	what, own := in.Modifiers[0], []string{}
	switch what {
	case "arrive", "arrive_drop":
		own = []string{"expect_tx", "noComplete"}
	case "test_wait", "try_wait":
		own = []string{"parity"}
	}
	l.only(in, append(append(own, what), barrierWords...)...)
	if in.Type(0) != ptx.B64 || len(in.Types) != 1 {
		l.refuse("this form is not supported")
	}
	o := newOp(OpMbarrier)
	o.Touch, o.Space = TouchMbarrier, in.Space()
	ops := in.Operands
	number := func(at int) {
		if at < len(ops) {
			o.setB(l.src(&ops[at], ptx.U32))
		}
	}
	at := 0 // where the address is
	switch what {
	case "init":
		l.wants(in, 2)
		o.Mode = MbarrierInit
		number(1)
	case "inval":
		l.wants(in, 1)
		o.Mode = MbarrierInvalidate
	case "expect_tx", "complete_tx":
		l.wants(in, 2)
		if o.Mode = MbarrierExpect; what == "complete_tx" {
			o.Mode = MbarrierComplete
		}
		number(1)
	case "arrive", "arrive_drop":
		at = l.lowerArrival(in, &o, what == "arrive_drop")
		number(at + 1)
	case "test_wait", "try_wait":
		at = 1
		l.lowerWait(in, &o, what == "try_wait")
	case "pending_count":
		l.wants(in, 2)
		d, a := l.dst(&ops[0], ptx.U32), l.src(&ops[1], ptx.B64)
		l.emit(newOp(OpPendingCount, a).pureTo(d))
		return
	default:
		l.refuse("this form is not supported")
	}
	o.setAddress(l.address(&ops[at]))
	l.emit(o)
}

// lowerArrival reads the result and the flags of an arrival; it returns which
// operand is the address.
func (l *lowering) lowerArrival(in *ptx.Instruction, o *Op, drop bool) int {
	o.Mode = MbarrierArrive
	if drop {
		o.Mode |= ArriveDropping
	}
	ops, at := in.Operands, 0
	if len(ops) > 0 && ops[0].Kind != ptx.AddressOperand {
		at = 1
		if ops[0].Kind != ptx.SinkOperand {
			o.setD(l.dst(&ops[0], ptx.B64))
		}
	}
	least, most := at+1, at+2
	if in.Has("expect_tx") {
		o.Mode |= ArriveExpecting
		least++
	}
	if in.Has("noComplete") {
		least++
	}
	if len(ops) < least || len(ops) > most {
		l.refuse("%d operands are not supported", len(ops))
	}
	return at
}

// lowerWait reads the result and the phase of a wait. try_wait may suspend the
// thread for a time on a GPU; here it answers at once, as test_wait does.
func (l *lowering) lowerWait(in *ptx.Instruction, o *Op, mayTakeTime bool) {
	ops := in.Operands
	if n := len(ops); n != 3 && !(mayTakeTime && n == 4) {
		l.refuse("%d operands are not supported", n)
	}
	if len(ops) == 4 {
		l.src(&ops[3], ptx.U32) // for how long
	}
	o.setD(l.dst(&ops[0], ptx.Pred))
	if in.Has("parity") {
		o.Mode = MbarrierParity
		o.setB(l.src(&ops[2], ptx.U32))
		return
	}
	o.Mode = MbarrierTest
	o.setC(l.src(&ops[2], ptx.B64))
}

// copyArrives lowers cp.async.mbarrier.arrive: the thread arrives when its copies
// are done. Here they are done already. Without .noinc the instruction first adds
// one expected arrival, which the thread then makes, so nothing changes.
func (l *lowering) copyArrives(in *ptx.Instruction) {
	l.only(in, "async", "mbarrier", "arrive", "noinc", "shared", "shared::cta", "b64")
	l.wants(in, 1)
	if !in.Has("arrive") || in.Type(0) != ptx.B64 {
		l.refuse("this form is not supported")
	}
	base, offset := l.address(&in.Operands[0])
	if !in.Has("noinc") {
		o := newOp(OpNothing)
		o.Touch, o.Space = TouchArrive, in.Space()
		o.setAddress(base, offset)
		l.emit(o)
		return
	}
	o := newOp(OpMbarrier)
	o.Touch, o.Mode, o.Space = TouchMbarrier, MbarrierArrive, in.Space()
	o.setAddress(base, offset)
	l.emit(o)
}

// copyBulk lowers cp.async.bulk and cp.reduce.async.bulk.
func (l *lowering) copyBulk(in *ptx.Instruction) {
	if in.Has("tensor") {
		l.copyTensor(in)
		return
	}
	if in.Has("commit_group") || in.Has("wait_group") || in.Has("prefetch") {
		l.only(in, "async", "bulk", "commit_group", "wait_group", "read", "prefetch", "L2", "global", "L2::cache_hint")
		o := newOp(OpNothing)
		if in.Has("wait_group") {
			o.Touch = TouchWaitGroup
		}
		l.emit(o)
		return
	}
	k := &BulkCopy{}
	var spaces []ptx.Space
	for _, m := range in.Modifiers {
		if s := ptx.SpaceOf(m); s != ptx.NoSpace {
			spaces = append(spaces, s)
		}
	}
	l.only(in, append([]string{"async", "reduce", "bulk", "shared::cluster", "shared::cta", "global", "mbarrier::complete_tx::bytes", "bulk_group", "multicast::cluster",
		"L2::cache_hint", "noftz"}, reductions...)...)
	toBarrier := in.Has("mbarrier::complete_tx::bytes")
	if len(spaces) != 2 || spaces[0] == spaces[1] && spaces[0] == ptx.GlobalSpace || toBarrier == in.Has("bulk_group") || toBarrier != (spaces[0] == ptx.SharedSpace) {
		l.refuse("this form is not supported")
	}
	k.To, k.From = spaces[0], spaces[1]
	if in.Has("reduce") {
		l.reduction(in, k)
	} else if len(in.Types) > 0 {
		l.refuse("this form is not supported")
	}
	want := 3
	if toBarrier {
		want++
	}
	multicast := l.multicasts(in, want, toBarrier)
	ops := in.Operands
	to, size := l.place(&ops[0]), l.src(&ops[2], ptx.U32)
	o := newOp(OpBulkCopy)
	o.Touch, o.K = TouchBulk, k
	o.setAddress(l.address(&ops[1]))
	o.setB(to)
	o.setC(size)
	if toBarrier {
		o.setE(l.place(&ops[3]))
	}
	if multicast != noReg {
		o.addSource(multicast)
	}
	l.emit(o)
}

// multicasts returns the register that says which blocks of a cluster get what is copied,
// or noReg. It refuses a copy that does not have want operands before it.
func (l *lowering) multicasts(in *ptx.Instruction, want int, toBarrier bool) reg {
	blocks := noReg
	if in.Has("multicast::cluster") {
		if !toBarrier || len(in.Operands) <= want {
			l.refuse("this form is not supported")
		}
		blocks = l.src(&in.Operands[want], ptx.U16)
		want++
	}
	if in.Has("L2::cache_hint") {
		want++
	}
	l.wants(in, want)
	return blocks
}

// reductions are the operations of cp.reduce.async.bulk.
var reductions = []string{"add", "min", "max", "inc", "dec", "and", "or", "xor"}

// copyModes are the modes of copies of tensors.
var copyModes = map[string]tensorbox.Mode{
	"tile": tensorbox.Tile, "im2col": tensorbox.Im2col, "im2col_no_offs": tensorbox.Im2col, "tile::gather4": tensorbox.Rows, "tile::scatter4": tensorbox.Rows,
}

// copyTensor lowers cp.async.bulk.tensor, its prefetch, and cp.reduce.async.bulk.tensor.
func (l *lowering) copyTensor(in *ptx.Instruction) {
	words := []string{"async", "bulk", "tensor", "1d", "2d", "3d", "4d", "5d", "global", "tile", "L2::cache_hint"}
	toShared, prefetch := in.Has("mbarrier::complete_tx::bytes"), in.Has("prefetch")
	k := &TensorCopy{Rank: int(l.one(in, map[string]uint8{"1d": 1, "2d": 2, "3d": 3, "4d": 4, "5d": 5})), ToShared: toShared}
	for _, m := range in.Modifiers {
		if mode, ok := copyModes[m]; ok {
			k.Mode = mode
		}
	}
	if k.Mode == tensorbox.Im2col && k.Rank < 3 || k.Mode == tensorbox.Rows && k.Rank != 2 {
		l.refuse("this mode is not for tensors of %d dimensions", k.Rank)
	}
	if toShared || prefetch {
		words = append(words, "im2col", "tile::gather4")
	} else {
		words = append(words, "im2col_no_offs", "tile::scatter4")
	}
	if prefetch {
		l.only(in, append(words, "prefetch", "L2")...)
		l.emit(newOp(OpNothing))
		return
	}
	if toShared {
		words = append(words, "shared::cluster", "shared::cta", "mbarrier::complete_tx::bytes", "multicast::cluster")
	} else {
		words = append(words, "shared::cta", "bulk_group")
	}
	if in.Has("reduce") {
		words = append(append(words, "reduce"), reductions...)
		if k.Reduce = l.reductionName(in); toShared || k.Mode == tensorbox.Rows {
			l.refuse("this form is not supported")
		}
	}
	l.only(in, words...)
	want, tensor, shared := 2, 0, 1
	if toShared {
		want, tensor, shared = 3, 1, 0
	}
	offsets := toShared && k.Mode == tensorbox.Im2col
	if offsets {
		want++
	}
	blocks := l.multicasts(in, want, toShared)
	if !toShared && !in.Has("bulk_group") || len(in.Types) != 0 {
		l.refuse("this form is not supported")
	}
	at := &in.Operands[tensor]
	if at.Kind != ptx.AddressOperand || len(at.Elements) != 1 {
		l.refuse("the address of a tensor map and coordinates are wanted")
	}
	o := newOp(OpTensorCopy)
	o.Touch, o.K = TouchBulk, k
	l.sources(&o, &at.Elements[0], k.Coordinates(), ptx.S32, "coordinates")
	if offsets {
		l.sources(&o, &in.Operands[3], k.Rank-2, ptx.U16, "offsets")
	}
	o.setB(l.place(&in.Operands[shared]))
	if toShared {
		o.setE(l.place(&in.Operands[2]))
	}
	if blocks != noReg {
		o.setC(blocks)
	}
	o.setAddress(l.address(at))
	l.emit(o)
}

// sources adds the elements of a vector to the registers that an instruction reads.
func (l *lowering) sources(o *Op, v *ptx.Operand, want int, t ptx.Type, what string) {
	all := l.elements(v)
	if len(all) != want {
		l.refuse("%d %s where %d are wanted", len(all), what, want)
	}
	for i := range all {
		o.addSource(l.src(&all[i], t))
	}
}

// mapFields are the fields that tensormap.replace replaces.
var mapFields = map[string]tensormap.Field{
	"global_address": tensormap.FieldAddress, "rank": tensormap.FieldRank, "box_dim": tensormap.FieldBox, "global_dim": tensormap.FieldSize,
	"global_stride": tensormap.FieldStride, "element_stride": tensormap.FieldStep, "elemtype": tensormap.FieldType,
	"interleave_layout": tensormap.FieldInterleave, "swizzle_mode": tensormap.FieldSwizzle, "fill_mode": tensormap.FieldFill,
}

// tensorMap lowers tensormap.replace and tensormap.cp_fenceproxy.
func (l *lowering) tensorMap(in *ptx.Instruction) {
	if in.Has("cp_fenceproxy") {
		l.copyMap(in)
		return
	}
	k := &MapPart{}
	words, found := []string{"replace", "tile", "global", "shared::cta", "b1024"}, 0
	for _, m := range in.Modifiers {
		if f, ok := mapFields[m]; ok {
			k.Field = f
			words, found = append(words, m), found+1
		}
	}
	l.only(in, words...)
	t := ptx.B32
	if k.Field == tensormap.FieldAddress || k.Field == tensormap.FieldStride {
		t = ptx.B64
	}
	if found != 1 || !in.Has("replace") || !in.Has("tile") || !in.Has("b1024") || len(in.Types) != 1 || in.Type(0) != t {
		l.refuse("this form is not supported")
	}
	value := 1
	if n := k.Field.Elements(); n > 1 {
		l.wants(in, 3)
		k.Element = int(l.constantBelow(&in.Operands[1], uint64(n)))
		value = 2
	}
	l.wants(in, value+1)
	if n := k.Field.Values(); n > 0 {
		l.constantBelow(&in.Operands[value], n)
	}
	o := newOp(OpReplaceMap)
	o.Touch, o.Space, o.K = TouchTensorMap, in.Space(), k
	o.setB(l.src(&in.Operands[value], t))
	o.setAddress(l.address(&in.Operands[0]))
	l.emit(o)
}

// constantBelow returns the value of an operand that must be a constant less than limit.
func (l *lowering) constantBelow(o *ptx.Operand, limit uint64) uint64 {
	n, ok := o.Literal.Int()
	if o.Kind != ptx.ImmediateOperand || !ok || uint64(n) >= limit {
		l.refuse("%s is not a constant from 0 to %d", o, limit-1)
	}
	return uint64(n)
}

// copyMap lowers tensormap.cp_fenceproxy, with which a warp publishes a tensor map that it
// has changed in shared memory.
func (l *lowering) copyMap(in *ptx.Instruction) {
	l.only(in, "cp_fenceproxy", "global", "shared::cta", "tensormap::generic", "release", "cta", "cluster", "gpu", "sys", "sync", "aligned")
	l.wants(in, 3)
	if !in.Has("sync") || !in.Has("aligned") || !in.Has("release") || !in.Has("global") || !in.Has("shared::cta") {
		l.refuse("this form is not supported")
	}
	if n := l.constantBelow(&in.Operands[2], tensormap.Size+1); n != tensormap.Size {
		l.refuse("%d bytes are not a tensor map, which has %d", n, tensormap.Size)
	}
	o := newOp(OpCopyMap)
	o.Touch, o.Space = TouchTensorMap, ptx.SharedSpace
	o.setB(l.place(&in.Operands[0]))
	o.setAddress(l.address(&in.Operands[1]))
	l.wholeWarp(o)
	l.fence(in)
}

// reductionName returns the operation of an instruction that reduces.
func (l *lowering) reductionName(in *ptx.Instruction) string {
	for _, m := range in.Modifiers {
		if slices.Contains(reductions, m) {
			return m
		}
	}
	l.refuse("the operation is missing")
	return ""
}

// reduction finds the operation of cp.reduce.async.bulk.
func (l *lowering) reduction(in *ptx.Instruction, k *BulkCopy) {
	t := in.Type(0)
	op, ok := AtomicOps[l.reductionName(in)+"."+t.String()]
	if !ok || len(in.Types) != 1 {
		l.refuse("this operation is not supported")
	}
	k.Reduce, k.Size = op, uint64(t.Size())
}

// storeBulk lowers st.bulk, which writes zeros.
func (l *lowering) storeBulk(in *ptx.Instruction) {
	l.only(in, "bulk", "weak", "shared", "shared::cta")
	l.wants(in, 3)
	zero, ok := in.Operands[2].Literal.Int()
	if in.Operands[2].Kind != ptx.ImmediateOperand || !ok || zero != 0 {
		l.refuse("only zeros can be stored")
	}
	size := l.src(&in.Operands[1], ptx.U64)
	o := newOp(OpBulkZero)
	o.Touch, o.Space = TouchBulkZero, in.Space()
	o.setAddress(l.address(&in.Operands[0]))
	o.setB(size)
	l.emit(o)
}

// storeAsync lowers st.async: a store that tells an mbarrier.
func (l *lowering) storeAsync(in *ptx.Instruction) {
	l.only(in, "async", "weak", "shared::cluster", "mbarrier::complete_tx::bytes", "v2", "v4")
	l.wants(in, 3)
	t := in.Type(0)
	if !in.Has("mbarrier::complete_tx::bytes") || len(in.Types) != 1 || t.Bits() != 32 && t.Bits() != 64 {
		l.refuse("this form is not supported")
	}
	o := newOp(OpStoreAsync)
	o.Space, o.Size, o.Wide = ptx.SharedSpace, uint8(t.Size()), t.Bits() == 64
	values := l.elements(&in.Operands[1])
	if len(values) != in.Vector() {
		l.refuse("%d values where %d are wanted", len(values), in.Vector())
	}
	for i := range values {
		o.addElement(l.src(&values[i], t))
	}
	o.setB(l.place(&in.Operands[2]))
	o.setAddress(l.address(&in.Operands[0]))
	l.emit(o)
}
