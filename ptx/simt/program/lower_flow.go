package program

import (
	"slices"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

// placeOf returns a label's place before the labels are resolved: the index of its
// PTX instruction as a negative number, less one. function() replaces it by the
// index of the lowered instruction.
func placeOf(l *ptx.Label) int32 { return -int32(l.Target) - 1 }

func (l *lowering) bra(in *ptx.Instruction) {
	for _, m := range in.Modifiers {
		if m != "uni" {
			l.refuse("modifier .%s is not supported", m)
		}
	}
	l.wants(in, 1)
	label, ok := in.Operands[0].Symbol.(*ptx.Label)
	if !ok {
		l.refuse("%s is not a label", in.Operands[0].Name)
	}
	if l.guard == noReg {
		jump := newFlow(FlowJump)
		jump.Target = placeOf(label)
		l.emit(jump)
		return
	}
	branch := newFlow(FlowBranch, l.guard)
	branch.Target, branch.Negated = placeOf(label), l.guardNot
	l.emit(branch)
}

func (l *lowering) brx(in *ptx.Instruction) {
	if !in.Has("idx") || len(in.Operands) != 2 {
		l.refuse("this form is not supported")
	}
	list, ok := in.Operands[1].Symbol.(*ptx.TargetList)
	if !ok {
		l.refuse("%s is not a list of labels", in.Operands[1].Name)
	}
	o := newFlow(FlowTable, l.src(&in.Operands[0], ptx.U32))
	for _, t := range list.Targets {
		label, ok := t.Symbol.(*ptx.Label)
		if !ok {
			l.refuse("%s is not a label", t.Name)
		}
		o.Targets = append(o.Targets, placeOf(label))
	}
	l.emit(o)
}

func (l *lowering) exit(*ptx.Instruction) { l.emit(newFlow(FlowExit)) }
func (l *lowering) trap(*ptx.Instruction) { l.emit(newFlow(FlowTrap)) }

func (l *lowering) retInstruction(*ptx.Instruction) { l.ret() }

func (l *lowering) ret() {
	if l.fn.f.Entry {
		l.emit(newFlow(FlowExit))
		return
	}
	l.emit(newFlow(FlowReturn, l.fn.link))
}

var barModes = map[string]uint8{"sync": BarSync, "arrive": BarArrive, "popc": BarPopc, "and": BarAnd, "or": BarOr}

func (l *lowering) bar(in *ptx.Instruction) {
	if in.Has("cluster") {
		l.clusterBarrier(in)
		return
	}
	if in.Has("warp") {
		if len(in.Operands) != 1 {
			l.refuse("one operand is wanted")
		}
		o := newFlow(FlowWarpWait)
		o.setE(l.src(&in.Operands[0], ptx.B32))
		l.emit(o)
		return
	}
	mode := ""
	for _, m := range in.Modifiers {
		switch {
		case m == "cta" || m == "aligned" || m == "red" || ptx.TypeOf(m) != ptx.NoType:
		case mode == "" && (m == "sync" || m == "arrive" || m == "popc" || m == "and" || m == "or"):
			mode = m
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	ops := in.Operands
	o := newFlow(FlowBarrier)
	o.Mode = barModes[mode]
	if in.Has("red") {
		t := in.Type(0)
		if len(ops) < 3 || mode == "" || mode == "sync" || mode == "arrive" || (mode == "popc") != (t == ptx.U32) {
			l.refuse("this form is not supported")
		}
		o.setD(l.dst(&ops[0], t))
		p, not := l.pred(&ops[len(ops)-1])
		o.setC(p)
		o.Negated = not
		ops = ops[1 : len(ops)-1]
	} else if mode != "sync" && mode != "arrive" {
		l.refuse("this form is not supported")
	}
	if len(ops) < 1 || len(ops) > 2 || mode == "arrive" && len(ops) != 2 {
		l.refuse("this number of operands is not supported")
	}
	o.setA(l.src(&ops[0], ptx.U32))
	if len(ops) == 2 {
		o.setB(l.src(&ops[1], ptx.U32))
	}
	l.emit(o)
}

// warpOp emits an instruction that waits for the lanes that its mask names. Without
// a mask (the forms before .sync) it runs with the lanes that are active.
func (l *lowering) warpOp(o Op, mask *ptx.Operand) {
	if mask != nil {
		o.setE(l.src(mask, ptx.B32))
		o.Flow = FlowWarp
	}
	l.emit(o)
}

// member returns the operand of a .sync instruction that names the participating lanes.
func (l *lowering) member(in *ptx.Instruction, at int) *ptx.Operand {
	if !in.Has("sync") {
		return nil
	}
	if at >= len(in.Operands) {
		l.refuse("the mask of lanes is missing")
	}
	return &in.Operands[at]
}

// one returns the mode that a modifier names. Exactly one modifier of the
// instruction must name one.
func (l *lowering) one(in *ptx.Instruction, modes map[string]uint8) uint8 {
	found, mode := 0, uint8(0)
	for _, m := range in.Modifiers {
		if v, ok := modes[m]; ok {
			found, mode = found+1, v
		}
	}
	if found != 1 {
		l.refuse("one mode is wanted, %d are given", found)
	}
	return mode
}

// only refuses modifiers that are neither types nor in known.
func (l *lowering) only(in *ptx.Instruction, known ...string) {
	for _, m := range in.Modifiers {
		if ptx.TypeOf(m) == ptx.NoType && !slices.Contains(known, m) {
			l.refuse("modifier .%s is not supported", m)
		}
	}
}

func (l *lowering) shfl(in *ptx.Instruction) {
	l.only(in, "sync", "up", "down", "bfly", "idx")
	want := 4
	if in.Has("sync") {
		want = 5
	}
	if len(in.Operands) != want || in.Type(0) != ptx.B32 {
		l.refuse("this form is not supported")
	}
	modes := map[string]uint8{"up": ShflUp, "down": ShflDown, "bfly": ShflBfly, "idx": ShflIdx}
	mode := l.one(in, modes)
	a, b, c := l.src(&in.Operands[1], ptx.B32), l.src(&in.Operands[2], ptx.U32), l.src(&in.Operands[3], ptx.U32)
	o := newOp(OpShuffle, a, b, c)
	o.Mode = mode
	d := &in.Operands[0]
	if d.Kind == ptx.PairOperand {
		o.setD2(l.dst(&d.Elements[1], ptx.Pred))
		d = &d.Elements[0]
	}
	o.setD(l.dst(d, ptx.B32))
	l.warpOp(o, l.member(in, 4))
}

func (l *lowering) vote(in *ptx.Instruction) {
	l.only(in, "sync", "all", "any", "uni", "ballot")
	if len(in.Operands) < 2 {
		l.refuse("this form is not supported")
	}
	modes := map[string]uint8{"all": VoteAll, "any": VoteAny, "uni": VoteUni, "ballot": VoteBallot}
	o := newOp(OpVote)
	t := ptx.Pred
	if o.Mode = l.one(in, modes); o.Mode == VoteBallot {
		t = ptx.B32
	}
	p, not := l.pred(&in.Operands[1])
	o.setA(p)
	o.Negated = not
	o.setD(l.dst(&in.Operands[0], t))
	l.warpOp(o, l.member(in, 2))
}

func (l *lowering) match(in *ptx.Instruction) {
	l.only(in, "sync", "any", "all")
	t := in.Type(0)
	if len(in.Operands) != 3 || t != ptx.B32 && t != ptx.B64 {
		l.refuse("this form is not supported")
	}
	o := newOp(OpMatch, l.src(&in.Operands[1], t))
	o.Size = uint8(t.Size())
	d := &in.Operands[0]
	if in.Has("all") {
		var p reg
		if d.Kind == ptx.PairOperand {
			p = l.dst(&d.Elements[1], ptx.Pred)
			d = &d.Elements[0]
		} else {
			p = l.fresh(Predicate)
		}
		o.setD2(p)
	}
	o.setD(l.dst(d, ptx.B32))
	l.warpOp(o, l.member(in, 2))
}

func (l *lowering) redux(in *ptx.Instruction) {
	l.only(in, "sync", "add", "min", "max", "and", "or", "xor", "abs", "NaN")
	t := in.Type(0)
	modes := map[string]uint8{
		"add.u32": ReduxAdd, "add.s32": ReduxAdd, "min.s32": ReduxMinSigned, "min.u32": ReduxMinUnsigned, "max.s32": ReduxMaxSigned,
		"max.u32": ReduxMaxUnsigned, "and.b32": ReduxAnd, "or.b32": ReduxOr, "xor.b32": reduxXor,
	}
	do, given := OpRedux, len(in.Modifiers)
	if t == ptx.F32 {
		do = OpReduxFloat
		modes = map[string]uint8{"min.f32": ReduxMin, "max.f32": ReduxMax}
		for _, m := range []string{"abs", "NaN"} {
			if in.Has(m) {
				given--
			}
		}
	}
	if given != 3 || len(in.Operands) != 3 {
		l.refuse("this form is not supported")
	}
	mode, ok := modes[in.Modifiers[1]+"."+t.String()]
	if !ok {
		l.refuse("this operation is not supported")
	}
	if in.Has("abs") {
		mode |= ReduxAbs
	}
	if in.Has("NaN") {
		mode |= ReduxNaN
	}
	a := l.src(&in.Operands[1], t)
	d := l.dst(&in.Operands[0], t)
	o := newOp(do, a).to(d)
	o.Mode = mode
	l.warpOp(o, l.member(in, 2))
}

// wholeWarp emits an instruction that waits for all lanes of a warp.
func (l *lowering) wholeWarp(o Op) {
	o.setE(l.literal(Bits32, 1<<shape.WarpSize-1))
	o.Flow = FlowWarp
	l.emit(o)
}

func (l *lowering) activeMask(in *ptx.Instruction) {
	l.wants(in, 1)
	l.emit(newOp(OpActiveMask).to(l.dst(&in.Operands[0], ptx.B32)))
}

func (l *lowering) elect(in *ptx.Instruction) {
	l.wants(in, 2)
	d := &in.Operands[0]
	if !in.Has("sync") || d.Kind != ptx.PairOperand {
		l.refuse("this form is not supported")
	}
	o := newOp(OpElect)
	if d.Elements[0].Kind != ptx.SinkOperand {
		o.setD(l.dst(&d.Elements[0], ptx.B32))
	}
	o.setD2(l.dst(&d.Elements[1], ptx.Pred))
	l.warpOp(o, l.member(in, 1))
}

// mapAddress lowers mapa.
func (l *lowering) mapAddress(in *ptx.Instruction) {
	l.onClusterAddress(in, OpMapAddress, 3, in.Type(0))
}

// blockRank lowers getctarank.
func (l *lowering) blockRank(in *ptx.Instruction) { l.onClusterAddress(in, OpBlockRank, 2, ptx.U32) }

// onClusterAddress emits what makes something of type t of an address in a cluster and, as the third
// of its operands, the rank of a block.
func (l *lowering) onClusterAddress(in *ptx.Instruction, do Operation, operands int, t ptx.Type) {
	l.only(in, "shared::cluster")
	l.wants(in, operands)
	at := in.Type(0)
	if at != ptx.U32 && at != ptx.U64 {
		l.refuse("this form is not supported")
	}
	o := newOp(do, l.src(&in.Operands[1], at))
	o.Wide = at == ptx.U64
	if operands == 3 {
		o.setB(l.src(&in.Operands[2], ptx.U32))
	}
	l.emit(o.pureTo(l.dst(&in.Operands[0], t)))
}

// clusterBarrier lowers barrier.cluster.
func (l *lowering) clusterBarrier(in *ptx.Instruction) {
	l.only(in, "cluster", "arrive", "wait", "aligned", "release", "relaxed", "acquire")
	l.wants(in, 0)
	mode := l.one(in, map[string]uint8{"arrive": ClusterArrive, "wait": ClusterWait})
	o := newFlow(FlowBarrier)
	o.Mode = mode
	o.A = 0 // a checker reads the slot of every barrier
	l.emit(o)
}
