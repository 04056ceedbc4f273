package program

import (
	"slices"

	"muster/ptx"
	"muster/ptx/simt/shape"
)

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
		around := newFlow(FlowBranch, l.guard)
		around.Negated = !l.guardNot
		skip := l.emit(around)
		l.guard = noReg
		defer func() {
			// They go to the instruction after the call, which begins a block.
			l.ops[skip].Target = int32(len(l.ops))
			behind := newOp(OpNothing)
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
		base = l.literal(Bits64, 0)
	}
	for i := range c.Args {
		site.copies = append(site.copies, l.argument(base, &c.Args[i], params[i], places[params[i]], false))
	}
	site.save = l.emit(newOp(OpSave, base))
	site.enter = l.emit(newOp(OpEnter, base).to(l.frame))
	// The return address is the index of the instruction after the jump.
	link := newOp(OpLink).to(l.link)
	link.links = true
	linked := l.emit(link)
	jump := newFlow(FlowCall, target)
	if callee != nil {
		jump = newFlow(FlowJump)
		jump.calls = true
	}
	l.ops[linked].X = l.emit(jump) + 1
	leave := newOp(OpLeave, l.frame).to(l.frame)
	leave.Returns, leave.head = true, true
	site.leave = l.emit(leave)
	site.restore = l.emit(newOp(OpRestore, base))
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
	do := OpPass
	if back {
		do = OpPassBack
	}
	copies := newOp(do, base)
	copies.Imm, copies.X, copies.Y = int64(place), int32(at), int32(shape.Round(v.Size(), 4))
	return l.emit(copies)
}

// finishCalls fills in what is known only when all of the function is lowered: the
// size of its frame and the registers to save there. What depends on the callees
// is filled in by image.append.
func (l *lowering) finishCalls() {
	fn := l.fn
	fn.frame = shape.Round(fn.frame, 16)
	if l.unit.recursive {
		l.saves(fn)
	}
	for _, s := range fn.callSites {
		frame := int64(fn.frame)
		for _, i := range s.copies {
			l.ops[i].Imm += frame
		}
		l.ops[s.enter].Imm, l.ops[s.leave].Imm = frame, frame
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
		isConstant[reg{c.Class, c.Slot}] = true
	}
	// An activation is in at most one call at a time, so all calls share the places.
	first := shape.Round(fn.frame, 8)
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
		l.ops[s.save].X, l.ops[s.restore].X = int32(first), int32(first)
		end = max(end, first+8*len(list))
	}
	fn.frame = shape.Round(end, 16)
}

// builtin lowers calls of the functions that the driver provides.
func (l *lowering) builtin(c ptx.Call) {
	places := func(n int, args []ptx.Operand) []int32 {
		if len(args) != n {
			l.refuse("%s takes %d arguments", c.Callee.Name, n)
		}
		at := make([]int32, n)
		for i := range args {
			v, ok := args[i].Symbol.(*ptx.Variable)
			if !ok || v.Space != ptx.ParamSpace || l.kernelParam(v) {
				l.refuse("argument %s is not a .param variable", &args[i])
			}
			at[i] = int32(l.fn.place(v))
		}
		return at
	}
	words := func(args []ptx.Operand) []int32 { // one, of 64 bits
		at := places(1, args)
		if args[0].Symbol.(*ptx.Variable).Size() != 8 {
			l.refuse("%s takes and returns 64 bits", c.Callee.Name)
		}
		return at
	}
	base := l.frame
	if l.fn.f.Entry {
		base = l.literal(Bits64, 0)
	}
	switch c.Callee.Name {
	case "vprintf":
		o := newOp(OpPrintf, base)
		o.Long = true
		o.List = append(places(2, c.Args), places(1, c.Returns)...)
		l.emit(o)
	case "__assertfail":
		o := newOp(OpAssertFail, base)
		o.List = places(5, c.Args)
		l.emit(o)
	case "malloc":
		o := newOp(OpMalloc, base)
		o.Long = true
		o.List = append(words(c.Args), words(c.Returns)...)
		l.emit(o)
	case "free":
		o := newOp(OpFree, base)
		o.Long = true
		o.List = words(c.Args)
		l.emit(o)
	default:
		l.refuse("function %s is not defined in this module", c.Callee.Name)
	}
}
