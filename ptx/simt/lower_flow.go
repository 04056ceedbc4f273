package simt

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
		jump := newFlow(flowJump)
		jump.target = placeOf(label)
		l.emit(jump)
		return
	}
	branch := newFlow(flowBranch, l.guard)
	branch.target, branch.negated = placeOf(label), l.guardNot
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
	o := newFlow(flowTable, l.src(&in.Operands[0], ptx.U32))
	for _, t := range list.Targets {
		label, ok := t.Symbol.(*ptx.Label)
		if !ok {
			l.refuse("%s is not a label", t.Name)
		}
		o.targets = append(o.targets, placeOf(label))
	}
	l.emit(o)
}

func (l *lowering) exit(*ptx.Instruction) { l.emit(newFlow(flowExit)) }
func (l *lowering) trap(*ptx.Instruction) { l.emit(newFlow(flowTrap)) }

func (l *lowering) retInstruction(*ptx.Instruction) { l.ret() }

func (l *lowering) ret() {
	if l.fn.f.Entry {
		l.emit(newFlow(flowExit))
		return
	}
	l.emit(newFlow(flowReturn, l.fn.link))
}

// call lowers calls. Caller and callee exchange arguments through frames: the
// callee's frame begins with its results and parameters. It lies directly after the
// caller's frame, so the caller can write and read them there.
func (l *lowering) call(in *ptx.Instruction) {
	c, ok := in.Call()
	if !ok {
		l.refuse("this form is not supported")
	}
	if l.guard != noReg {
		// Lanes that the guard excludes branch around the call.
		around := newFlow(flowBranch, l.guard)
		around.negated = !l.guardNot
		skip := l.emit(around)
		l.guard = noReg
		defer func() {
			// They go to the instruction after the call, which begins a block.
			l.ops[skip].target = int32(len(l.ops))
			behind := newOp(runNothing)
			behind.head = true
			l.emit(behind)
		}()
	}
	var callee *ptx.Function
	if c.Callee.Kind == ptx.SymbolOperand {
		callee = l.module.Function(c.Callee.Name)
		if callee == nil || !callee.Defined {
			l.builtin(c)
			return
		}
		if callee.Entry {
			l.refuse("%s is a kernel: only functions can be called", callee.Name)
		}
		l.invoke(c, callee, callee.Returns, callee.Params)
		return
	}
	switch t := c.Targets.(type) {
	case *ptx.Prototype:
		l.invoke(c, nil, t.Returns, t.Params)
	case *ptx.TargetList:
		if len(t.Targets) == 0 {
			l.refuse("%s names no function", t.Name)
		}
		f := l.module.Function(t.Targets[0].Name)
		if f == nil || !f.Defined {
			l.refuse("%s is not defined in this module", t.Targets[0].Name)
		}
		l.invoke(c, nil, f.Returns, f.Params)
	default:
		l.refuse("an indirect call needs a prototype")
	}
}

// exchange lays out results and parameters as function() does for the callee, so
// that both sides agree.
func exchange(returns, params []*ptx.Variable) map[*ptx.Variable]int {
	f := &lowFunction{places: map[*ptx.Variable]int{}}
	for _, v := range append(slices.Clone(returns), params...) {
		f.place(v)
	}
	return f.places
}

// invoke emits a call of callee, or an indirect call if callee is nil. The order is:
// copy arguments, save registers, enter the new frame, set the link, jump; after
// the jump leave the frame, restore registers, copy results.
func (l *lowering) invoke(c ptx.Call, callee *ptx.Function, returns, params []*ptx.Variable) {
	if len(c.Args) != len(params) || len(c.Returns) != len(returns) {
		l.refuse("%d arguments and %d results where %d and %d are wanted", len(c.Args), len(c.Returns), len(params), len(returns))
	}
	places := exchange(returns, params)
	site := callSite{}
	if callee != nil {
		site.callee = l.program.unitOf[callee]
	}
	var target reg
	if callee == nil {
		target = l.src(&c.Callee, ptx.U64)
	}
	base := l.frame
	if l.fn.f.Entry {
		base = l.literal(bits64, 0)
	}
	for i := range c.Args {
		site.copies = append(site.copies, l.argument(base, &c.Args[i], params[i], places[params[i]], false))
	}
	site.save = l.emit(newOp(runSave, base))
	site.enter = l.emit(newOp(runEnter, base).to(l.frame))
	// The return address is the index of the instruction after the jump.
	link := newOp(runLink).to(l.link)
	link.links = true
	linked := l.emit(link)
	jump := newFlow(flowCall, target)
	if callee != nil {
		jump = newFlow(flowJump)
		jump.calls = true
	}
	l.ops[linked].x = l.emit(jump) + 1
	leave := newOp(runLeave, l.frame).to(l.frame)
	leave.returns, leave.head = true, true
	site.leave = l.emit(leave)
	site.restore = l.emit(newOp(runRestore, base))
	for i := range c.Returns {
		site.copies = append(site.copies, l.argument(base, &c.Returns[i], returns[i], places[returns[i]], true))
	}
	l.fn.callSites = append(l.fn.callSites, site)
}

// argument emits a copy between the caller's variable and the callee's frame. The
// size of the caller's frame is not known before all of it is lowered: finishCalls
// adds it to imm.
func (l *lowering) argument(base reg, o *ptx.Operand, formal *ptx.Variable, place int, back bool) int32 {
	v, ok := o.Symbol.(*ptx.Variable)
	if !ok || v.Space != ptx.ParamSpace {
		l.refuse("argument %s is not a .param variable", o)
	}
	if v.Size() != formal.Size() {
		l.refuse("argument %s has %d bytes where %d are wanted", o, v.Size(), formal.Size())
	}
	at := int64(l.fn.place(v))
	if l.kernelParam(v) {
		l.refuse("argument %s is a kernel's parameter", o)
	}
	run := runPass
	if back {
		run = runPassBack
	}
	copies := newOp(run, base)
	copies.imm, copies.x, copies.y = int64(place), int32(at), int32(round(v.Size(), 4))
	return l.emit(copies)
}

// finishCalls fills in what is known only when all of the function is lowered: the
// size of its frame and the registers to save there. What depends on the callees
// is filled in by image.append.
func (l *lowering) finishCalls() {
	fn := l.fn
	fn.frame = round(fn.frame, 16)
	if l.unit.recursive {
		l.saves(fn)
	}
	for _, s := range fn.callSites {
		frame := int64(fn.frame)
		for _, i := range s.copies {
			l.ops[i].imm += frame
		}
		l.ops[s.enter].imm, l.ops[s.leave].imm = frame, frame
	}
}

// saves finds, for each call in a recursive function, the registers that are live
// after the call, and gives them places in the frame: another activation of the
// function overwrites them.
func (l *lowering) saves(fn *lowFunction) {
	places := map[int32]bool{}
	for _, s := range fn.callSites {
		places[s.restore+1] = true
	}
	live := liveness(l.ops, places)
	isConstant := map[reg]bool{l.frame: true, l.link: true}
	for _, c := range l.constants {
		isConstant[reg{c.class, c.slot}] = true
	}
	// An activation is in at most one call at a time, so all calls share the places.
	first := round(fn.frame, 8)
	end := first
	for _, s := range fn.callSites {
		var list []reg
		for _, r := range live[s.restore+1] {
			if !isConstant[r] {
				list = append(list, r)
			}
		}
		slices.SortFunc(list, func(a, b reg) int {
			if a.class != b.class {
				return int(b.class) - int(a.class) // predicates and wide ones first
			}
			return int(a.id - b.id)
		})
		l.ops[s.save].lists, l.ops[s.restore].lists = list, slices.Clone(list)
		l.ops[s.restore].listWritten = true
		l.ops[s.save].x, l.ops[s.restore].x = int32(first), int32(first)
		end = max(end, first+8*len(list))
	}
	fn.frame = round(end, 16)
}

var barModes = map[string]uint8{"sync": barSync, "arrive": barArrive, "popc": barPopc, "and": barAnd, "or": barOr}

func (l *lowering) bar(in *ptx.Instruction) {
	if in.Has("cluster") {
		l.clusterBarrier(in)
		return
	}
	if in.Has("warp") {
		if len(in.Operands) != 1 {
			l.refuse("one operand is wanted")
		}
		o := newFlow(flowWarpWait)
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
	o := newFlow(flowBarrier)
	o.mode = barModes[mode]
	if in.Has("red") {
		t := in.Type(0)
		if len(ops) < 3 || mode == "" || mode == "sync" || mode == "arrive" || (mode == "popc") != (t == ptx.U32) {
			l.refuse("this form is not supported")
		}
		o.setD(l.dst(&ops[0], t))
		p, not := l.pred(&ops[len(ops)-1])
		o.setC(p)
		o.negated = not
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
func (l *lowering) warpOp(o op, mask *ptx.Operand) {
	if mask != nil {
		o.setE(l.src(mask, ptx.B32))
		o.flow = flowWarp
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
	modes := map[string]uint8{"up": shflUp, "down": shflDown, "bfly": shflBfly, "idx": shflIdx}
	mode := l.one(in, modes)
	a, b, c := l.src(&in.Operands[1], ptx.B32), l.src(&in.Operands[2], ptx.U32), l.src(&in.Operands[3], ptx.U32)
	o := newOp(runShuffle, a, b, c)
	o.mode = mode
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
	modes := map[string]uint8{"all": voteAll, "any": voteAny, "uni": voteUni, "ballot": voteBallot}
	o := newOp(runVote)
	t := ptx.Pred
	if o.mode = l.one(in, modes); o.mode == voteBallot {
		t = ptx.B32
	}
	p, not := l.pred(&in.Operands[1])
	o.setA(p)
	o.negated = not
	o.setD(l.dst(&in.Operands[0], t))
	l.warpOp(o, l.member(in, 2))
}

func (l *lowering) match(in *ptx.Instruction) {
	l.only(in, "sync", "any", "all")
	t := in.Type(0)
	if len(in.Operands) != 3 || t != ptx.B32 && t != ptx.B64 {
		l.refuse("this form is not supported")
	}
	o := newOp(runMatch, l.src(&in.Operands[1], t))
	o.size = uint8(t.Size())
	d := &in.Operands[0]
	if in.Has("all") {
		var p reg
		if d.Kind == ptx.PairOperand {
			p = l.dst(&d.Elements[1], ptx.Pred)
			d = &d.Elements[0]
		} else {
			p = l.fresh(predicate)
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
		"add.u32": reduxAdd, "add.s32": reduxAdd, "min.s32": reduxMinSigned, "min.u32": reduxMinUnsigned, "max.s32": reduxMaxSigned,
		"max.u32": reduxMaxUnsigned, "and.b32": reduxAnd, "or.b32": reduxOr, "xor.b32": reduxXor,
	}
	run, given := runRedux, len(in.Modifiers)
	if t == ptx.F32 {
		run = runReduxFloat
		modes = map[string]uint8{"min.f32": reduxMin, "max.f32": reduxMax}
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
		mode |= reduxAbs
	}
	if in.Has("NaN") {
		mode |= reduxNaN
	}
	a := l.src(&in.Operands[1], t)
	d := l.dst(&in.Operands[0], t)
	o := newOp(run, a).to(d)
	o.mode = mode
	l.warpOp(o, l.member(in, 2))
}

// wholeWarp emits an instruction that waits for all lanes of a warp.
func (l *lowering) wholeWarp(o op) {
	o.setE(l.literal(bits32, 1<<shape.WarpSize-1))
	o.flow = flowWarp
	l.emit(o)
}

func (l *lowering) activeMask(in *ptx.Instruction) {
	l.wants(in, 1)
	l.emit(newOp(runActiveMask).to(l.dst(&in.Operands[0], ptx.B32)))
}

func (l *lowering) elect(in *ptx.Instruction) {
	l.wants(in, 2)
	d := &in.Operands[0]
	if !in.Has("sync") || d.Kind != ptx.PairOperand {
		l.refuse("this form is not supported")
	}
	o := newOp(runElect)
	if d.Elements[0].Kind != ptx.SinkOperand {
		o.setD(l.dst(&d.Elements[0], ptx.B32))
	}
	o.setD2(l.dst(&d.Elements[1], ptx.Pred))
	l.warpOp(o, l.member(in, 1))
}
