package simt

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"muster/ptx"
	"muster/ptx/simt/native"
	"muster/ptx/simt/program"
)

// This file is the bridge between the interpreter and package native.
//
// A kernel is compiled once for all gangs that look alike, that is, whose
// special registers (%tid, %ctaid and so on) have the same forms; see look.
// Such gangs share a machine, which owns the code.
//
// A gang goes through compiled code in three steps. conform brings the registers
// that are live at the entry into the forms that the code assumes. enter fills
// in the Frame and runs. publish records in which forms the code has left the
// registers that are live where it returned. Between two instructions the state
// therefore looks the same whichever engine ran, and Save need not know.
//
// All decisions stay with the interpreter: the code returns for barriers,
// faults, instructions that are not compiled and lanes that part too often, and
// traverse or advance then does what the code could not.

// Engine says what runs a kernel.
type Engine uint8

// The engines.
const (
	Auto      Engine = iota // the interpreter, until a kernel has run long enough that compiling it pays
	Interpret               // the interpreter
	Compile                 // compiled code from the first instruction on, the interpreter for what cannot be compiled
)

// autoEngine is what Auto stands for; tests change it.
var autoEngine = Auto

// narrowCode makes kernels compiled for AVX2 where there is AVX-512, too; tests change it.
var narrowCode atomic.Bool

var engineNames = [...]string{"auto", "interpret", "compile"}

// String returns the name of the engine.
func (e Engine) String() string { return engineNames[e] }

// ParseEngine returns the engine with a name.
func ParseEngine(name string) (Engine, bool) {
	for e, n := range engineNames {
		if n == name {
			return Engine(e), true
		}
	}
	return 0, false
}

// machines are the compiled versions of an image, by the look of gangs.
type machines struct {
	mu     sync.Mutex
	byLook map[string]*machine
}

// maxLooks bounds for how many shapes of blocks a kernel is compiled. Gangs with
// a further look are interpreted.
const maxLooks = 8

// machine compiles a kernel for gangs that look alike.
//
// Gangs on all workers read the three atomic fields without a lock. A new build
// replaces code while gangs may still run the old one; each of them holds the
// pointer that it loaded, and the pages are unmapped only when the collector
// finds the old code unreachable.
type machine struct {
	code    atomic.Pointer[native.Code]
	refused atomic.Bool   // the compiler refused the kernel; not tried again
	work    atomic.Uint64 // basic blocks that were interpreted before there was code

	of *Kernel

	mu        sync.Mutex        // protects what follows; held during a build, which takes locks of units
	kernel    *native.Kernel    // what is known; its instructions, as large as the image, are filled in for a build only
	surprises int               // since the latest build
	attempts  int               // builds so far
	reached   map[int32][]int32 // the memory instructions that reached the buffer at which a parameter points, by the parameter's slot
}

// After maxSurprises wrong guesses a kernel is compiled again without them.
// After maxAttempts builds the code stays as it is, and the interpreter runs the
// basic blocks in which a guess fails.
const (
	maxSurprises = 4
	maxAttempts  = 64
)

// worthCompiling is how many basic blocks gangs must have interpreted before the
// machine compiles the kernel in the background. That is a few hundred
// microseconds of work, about as much as compiling costs.
const worthCompiling = 2500

// look returns a key of everything that compiled code assumes about a gang:
// forms and strides of its special registers, and whether it holds several
// blocks, or even several blocks in one chunk. Literals and parameters are left
// out: they are uniform in every gang.
func (g *gang) look() string {
	var b strings.Builder
	m := g.team.x.image
	for _, list := range [][]program.Constant{m.Constants, m.PerBlock} {
		for i := range list {
			c := &list[i]
			if c.From == program.FromLiteral || c.From == program.FromParam {
				continue
			}
			k := g.kindOf(c)
			b.WriteByte('a' + byte(k.Form))
			b.WriteString(strconv.FormatInt(k.Stride, 36))
			b.WriteByte(' ')
		}
	}
	if narrowCode.Load() {
		b.WriteByte('n')
	}
	if g.team.x.perGang > 1 {
		b.WriteByte('+')
	}
	if g.team.x.stride < chunk && g.team.x.perGang > 1 {
		b.WriteByte('-')
	}
	return b.String()
}

// kindOf returns the kind of a constant, and computes the array (bases or lanes)
// in which compiled code will look for a constant of that kind.
func (g *gang) kindOf(c *program.Constant) native.Kind {
	if c.Class == program.Bits64 {
		return constantKind(&g.r64, c.Slot, g.lengthwise())
	}
	return constantKind(&g.r32, c.Slot, g.lengthwise())
}

// lengthwise returns the form that compiled code takes for native.Linear: linear over a gang
// with one block; the same in all chunks of a gang with several, which mostly are a block each.
func (g *gang) lengthwise() uint8 {
	if g.team.x.perGang > 1 {
		return periodic
	}
	return linear
}

func constantKind[T regval](r *file[T], slot int32, lengthwise uint8) native.Kind {
	f := &r.form[slot]
	switch {
	case f.uniform():
		return native.Kind{Form: native.Uniform}
	case f.bits&lengthwise != 0:
		return native.Kind{Form: native.Linear, Stride: signedStride(f.stride)}
	case f.bits&regular != 0:
		r.chunks(slot)
		return native.Kind{Form: native.Chunked, Stride: signedStride(f.stride)}
	}
	r.expand(slot)
	return native.Kind{Form: native.Vector}
}

func signedStride[T regval](stride T) int64 {
	if T(0)-1 == T(1<<32-1) {
		return int64(int32(stride))
	}
	return int64(stride)
}

// equip finds the machine for a gang. The team calls it after the per-block
// constants are filled in: the look depends on them.
func (g *gang) equip() {
	x := g.team.x
	if x.launch.Engine == Interpret || !native.Supported() {
		g.machine = nil
		return
	}
	if g.machine == nil {
		if g.machine = x.image.machines.find(g); g.machine == nil {
			return
		}
	}
	if g.frame == nil {
		g.frame = g.newFrame()
	}
	if x.launch.Engine == Compile {
		g.machine.compile()
	}
}

// find returns the machine for a gang; nil if the image has maxLooks others.
func (ms *machines) find(g *gang) *machine {
	key := g.look()
	ms.mu.Lock()
	defer ms.mu.Unlock()
	m := ms.byLook[key]
	if m == nil && len(ms.byLook) < maxLooks {
		if ms.byLook == nil {
			ms.byLook = map[string]*machine{}
		}
		m = &machine{of: g.team.x.kernel, kernel: g.describe()}
		ms.byLook[key] = m
	}
	return m
}

// compile makes the code unless there is some already. A caller that finds
// another one compiling waits for it.
func (m *machine) compile() {
	if m.code.Load() != nil || m.refused.Load() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.code.Load() != nil || m.refused.Load() {
		return
	}
	m.build()
}

// build compiles the kernel with all that is known by now. The caller must hold
// m.mu.
func (m *machine) build() {
	m.attempts++
	m.surprises = 0
	m.kernel.Ops = m.of.describe()
	code, err := native.Compile(m.kernel)
	m.kernel.Ops = nil
	if err != nil || code.Compiled() == 0 {
		m.refused.Store(true)
		m.code.Store(nil)
		return
	}
	m.code.Store(code)
}

// surprise records that a guess of the code was wrong: a register is not as
// regular as it seemed, or some live lanes are missing in a basic block that
// needs them all. Every maxSurprises-th call compiles the kernel again, on the
// goroutine of the worker that calls.
func (m *machine) surprise(note func(k *native.Kernel)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attempts >= maxAttempts {
		return
	}
	note(m.kernel)
	if m.surprises++; m.surprises >= maxSurprises {
		m.build()
	}
}

// describe returns the instructions of a kernel as the compiler takes them.
func (k *Kernel) describe() []native.Op {
	var ops []native.Op
	m := k.Assemble(0, func(o *program.Op) { ops = append(ops, describe(o)) })
	for i := range ops {
		ops[i].Target = m.Code[i].Target // that of a direct call is known only now
		ops[i].Head = i == 0 || ops[i-1].End == int32(i-1)
	}
	return ops
}

// describe returns the kernel as the compiler takes it, without its
// instructions.
func (g *gang) describe() *native.Kernel {
	x := g.team.x
	k := &native.Kernel{
		Constants: map[native.Ref]native.Constant{},
		Several:   x.perGang > 1, NoShared: x.perGang > 1 && x.stride < chunk,
		Uneven: map[native.Ref]bool{}, Irregular: map[native.Ref]bool{}, Diverged: map[int32]bool{},
		Listed: x.launch.List, Counted: x.launch.Profile != nil,
		Chained: x.perGang == 1, Narrow: narrowCode.Load(),
	}
	m := x.image
	for c, r := range m.Carried {
		k.Carried[c] = r
	}
	for _, list := range [][]program.Constant{m.Constants, m.PerBlock} {
		for i := range list {
			c := &list[i]
			k.Constants[refOf(c.Class, c.Slot)] = native.Constant{Kind: g.kindOf(c), Known: c.From == program.FromLiteral, Value: c.Value}
		}
	}
	for i := range m.PerBlock {
		c := &m.PerBlock[i]
		k.Indices = append(k.Indices, native.Index{Ref: refOf(c.Class, c.Slot), Dimension: int(c.From) - int(program.CtaidX)})
		k.Chained = k.Chained && c.From >= program.CtaidX && c.From <= program.CtaidZ
	}
	return k
}

func refOf(c program.Class, slot int32) native.Ref {
	return native.Ref{Class: native.Class(c), Slot: slot}
}

// describe returns an instruction as the compiler takes it. The name stays empty
// if the interpreter must run it: then the compiler only looks at what it reads,
// writes and where it leads.
func describe(o *program.Op) native.Op {
	d := native.Op{Guard: o.Inst.Guard, GuardNot: o.GuardNot, Negated: o.Negated, Private: o.Private, End: o.End, Target: o.Target}
	o.Operands(func(c program.Class, id *int32, written bool) {
		if written {
			d.Writes = append(d.Writes, refOf(c, *id))
		} else {
			d.Reads = append(d.Reads, refOf(c, *id))
		}
	})
	describeFlow(o, &d)
	for _, s := range []struct {
		c  program.Class
		id int32
	}{{o.ClassA, o.A}, {o.ClassB, o.B}, {o.ClassC, o.C}, {o.ClassE, o.E}} {
		if s.c != program.NoClass {
			d.Sources = append(d.Sources, refOf(s.c, s.id))
		}
	}
	if o.ClassD != program.NoClass {
		d.D = refOf(o.ClassD, o.D)
	}
	if o.Flow != program.FlowNone || o.Sync || len(o.Sources) > 0 || o.ClassD2 != program.NoClass {
		return d
	}
	d.Name = o.Name
	d.InvertA, d.InvertB = o.Mode&program.InvertA != 0, o.Mode&program.InvertB != 0
	if o.Name == "ld" || o.Name == "st" {
		describeAccess(o, &d)
	}
	return d
}

func describeAccess(o *program.Op, d *native.Op) {
	t := o.Text.Type(0)
	d.Size, d.Imm = t.Size(), o.Imm
	d.Signed = o.Signed()
	switch o.Space {
	case ptx.GlobalSpace, ptx.ConstSpace, ptx.NoSpace:
		d.Space = native.Global
	case ptx.SharedSpace:
		d.Space = native.Shared
	}
	for _, slot := range o.List {
		d.Elements = append(d.Elements, refOf(o.ClassList, slot))
		if o.Name == "st" {
			d.Sources = append(d.Sources, refOf(o.ClassList, slot))
		}
	}
}

func describeFlow(o *program.Op, d *native.Op) {
	next := []int32{o.End + 1} // an instruction with a flow is the last of its block
	switch o.Flow {
	case program.FlowNone:
	case program.FlowJump:
		d.Flow = native.FlowJump
	case program.FlowBranch:
		d.Flow = native.FlowBranch
	case program.FlowExit:
		if o.Inst.Guard < 0 {
			d.Flow = native.FlowExit
			return
		}
		d.Flow, d.Successors = native.FlowOther, next
	case program.FlowBarrier:
		if o.Mode == program.BarSync && o.ClassB == program.NoClass && o.Inst.Guard < 0 {
			d.Flow = native.FlowBarrier
			return
		}
		fallthrough
	default:
		d.Flow = native.FlowOther
		switch o.Flow {
		case program.FlowTable:
			d.Successors = append(d.Successors, o.Targets...)
		case program.FlowCall, program.FlowReturn:
			d.Anywhere = true
		case program.FlowTrap:
		default:
			d.Successors = next
		}
		if o.Inst.Guard >= 0 {
			d.Successors = append(d.Successors, next...)
		}
	}
}

// passage is how a gang went through a basic block, or several.
type passage struct {
	how   passed
	first int32 // begin of the basic block that ran last; for passStopped the place to go on
	end   int32 // last instruction of that block, for passEnd
	next  int32 // where the group goes on, for passNext and passLoop
}

type passed uint8

const (
	passEnd     passed = iota // all of a basic block is done but its last instruction
	passNext                  // all of it is done
	passLoop                  // all of it is done, and a loop's next round begins, which the caller must count
	passStopped               // the budget does not suffice for the rest of the block, or a stop was asked for
)

// isHead says whether a basic block begins at an instruction.
func (m *image) isHead(pc int32) bool { return pc == 0 || m.code[pc-1].End == pc-1 }

// blockAt returns the first instruction of the basic block that holds pc.
func (m *image) blockAt(pc int32) int32 {
	for !m.isHead(pc) {
		pc--
	}
	return pc
}

// traverse runs the group from pc to the end of a basic block, in compiled code
// where there is some. Compiled code may run many blocks before it returns; the
// interpreter runs to the end of one.
//
// Every block is charged to the budget once, as a whole, before it runs. paid
// says that this has happened: by pay, or by compiled code, which charges for
// each block that it enters at its head. Code has two entries for that reason:
// at the head of a block (which charges), and at the sections inside (which do
// not, and are used once paid is set). code is set to nil to interpret the rest
// of the block.
func (g *gang) traverse(w *worker, pc int32) passage {
	m := g.team.x.image
	code := g.code(w)
	first, paid := pc, false
	// The gang was stopped inside a block. Only the entry at the head checks
	// that all live lanes are there, so it is checked here.
	if code != nil && !m.isHead(pc) {
		if first = m.blockAt(pc); code.NeedsFull(first) && !g.allLive() {
			code = nil
		}
	}
	for {
		end := m.code[pc].End
		if head := !paid && first == pc; code != nil && (paid || head) && code.Enters(pc, head) {
			if !g.conform(code, pc) {
				code = nil
				continue
			}
			reason, at := g.enter(w, code, pc, head)
			// After Interpret the gang stands inside a block that is charged for.
			pc, paid = at, reason == native.Interpret
			switch reason {
			case native.Finish:
				return passage{passEnd, m.blockAt(at), at, 0}
			case native.Next:
				return passage{passNext, 0, 0, at}
			case native.Loop:
				return passage{passLoop, at, 0, at} // first is not below next: advance counts a round
			case native.Partial:
				first = at
				// The code counted lanes as missing that parted in it and have come
				// to an exit. enter has made a group of them, awaited leaves them
				// out, and the next entry finds the group full.
				if g.allLive() {
					continue
				}
				g.machine.surprise(func(k *native.Kernel) { k.Diverged[at] = true })
				code = nil
				continue
			case native.Exhausted: // the slice at least; is it the budget as well?
				first = at
				if n := uint64(m.code[at].End-at) + 1; n > w.budget || w.stop.Load() {
					return passage{passStopped, at, 0, 0}
				}
				continue
			}
			first = m.blockAt(at)
			end = m.code[pc].End
		}
		if !paid {
			if !g.pay(w, pc, end) {
				return passage{passStopped, pc, 0, 0}
			}
			paid = true
			continue // a section of code that does not charge may begin here
		}
		if pc == end {
			return passage{passEnd, first, end, 0}
		}
		// One instruction is interpreted, then compiled code may take over again
		// after it; without code the rest of the block is.
		for {
			in := &m.code[pc]
			if in.Long && g.takesBack(w, pc, end) {
				return passage{passStopped, pc, 0, 0}
			}
			if w.spot != nil {
				w.spot.at(pc)
			}
			in.run(g, in)
			if in.Long {
				g.charge(w)
			}
			if code != nil {
				g.learn(w, pc)
			}
			if pc++; code != nil {
				break
			}
			if pc == end {
				return passage{passEnd, first, end, 0}
			}
		}
	}
}

// workUnit is how many bytes are copied in about the time that a gang takes for one
// instruction.
const workUnit = 256

// did notes what a long instruction has done, in bytes that it copied. Other work counts
// as the copy of so many bytes that takes as long.
func (g *gang) did(bytes uint64) { g.worked += bytes }

// charge takes what a long instruction has done from the budget. The block was paid for
// before, so that its cheap instructions still run if nothing is left.
func (g *gang) charge(w *worker) {
	n := g.worked / workUnit
	g.worked = 0
	w.charged += n
	if n > 0 && n >= w.budget {
		w.budget, w.spent = 0, true
		return
	}
	w.budget -= n
}

// takesBack says whether the worker must stop before a long instruction: after a stop, or
// if those before it have used up the budget. Then the rest of the block, which was paid
// for, counts as not run.
func (g *gang) takesBack(w *worker, pc, end int32) bool {
	if !w.spent && !w.stop.Load() {
		return false
	}
	n := uint64(end-pc) + 1
	w.budget = 0
	w.stats.Instructions -= n
	w.stats.LaneOps -= n * uint64(g.count)
	if w.spot != nil {
		w.spot.takeBack(pc, end, g.count)
	}
	return true
}

// pay takes the instructions up to the end of a basic block from the budget;
// false if it does not suffice.
func (g *gang) pay(w *worker, pc, end int32) bool {
	n := uint64(end-pc) + 1
	if n > w.budget || w.stop.Load() {
		return false
	}
	w.budget -= n
	w.stats.Instructions += n
	w.stats.LaneOps += n * uint64(g.count)
	if w.spot != nil {
		w.spot.count(pc, g.count)
	}
	return true
}

// code returns the compiled code for the gang, or nil. The call that counts the
// worthCompiling-th interpreted block starts a goroutine that compiles.
func (g *gang) code(w *worker) *native.Code {
	m := g.machine
	if m == nil {
		return nil
	}
	if c := m.code.Load(); c != nil {
		return c
	}
	if !m.refused.Load() && m.work.Add(1) == worthCompiling {
		go m.compile()
	}
	return nil
}

// slice is how many instructions compiled code runs before it returns. The Go
// runtime cannot preempt it, so the collector and Stop wait for it to return:
// mostly some ten microseconds.
const slice = 2048

// enter runs compiled code, charges the worker for what it did, and makes groups
// of the lanes that parted in it.
func (g *gang) enter(w *worker, c *native.Code, pc int32, head bool) (native.Reason, int32) {
	f := g.frame
	budget := uint64(0) // after a stop the code returns at the first block that it would charge for
	if !w.stop.Load() {
		// At least one whole block: else a block longer than slice would never run.
		budget = min(w.budget, max(slice, uint64(g.team.x.image.code[pc].End-pc)+1))
	}
	f.Budget = int64(budget)
	f.Mask = g.mask
	f.ActiveChunks = g.mask.chunks()
	f.FirstLane, f.LastLane = uint64(g.lo), uint64(g.hi-1)
	if g.team.x.perGang > 1 {
		f.FirstLane, f.LastLane = g.mask.inChunks()
	}
	f.Live = g.awaited()
	f.Full, f.Barriers = 0, 0
	if g.allLive() {
		f.Full = 1
	}
	// The fairness rule of loops(), as limits of the code: one while lanes that
	// parted in it wait, one while none do.
	f.SplitLimit, f.WholeLimit = loopBudget, loopBudget
	if len(g.groups) == 1 {
		f.WholeLimit = loopAlone
		if len(g.team.gangs) == 1 {
			f.Barriers = 1 // no other group or gang can be missing at a barrier
		}
	}
	if g.sync {
		// The round has synchronised with memory and costs more: the code returns
		// at its end, and loops() counts it.
		f.SplitLimit, f.WholeLimit = -1, -1
	}
	f.Spin, f.SpinLimit = int64(g.spin), f.WholeLimit
	f.Count, f.LaneOps = uint64(g.count), 0
	f.Waits[0] = native.Wait{At: -1, Bound: g.bound()}
	f.Views = g.viewsOf(w, c)
	if w.spot != nil {
		f.Counts, f.Place = &w.spot.counts[0], &w.spot.place
	}
	f.Turns, f.Turn = nil, g.team.number
	if f.Barriers != 0 && g.chains(w) {
		x := g.team.x
		f.Turns, f.LastTurn, f.Alone = &x.next.Uint64, x.teams, 0
		if len(x.workers) == 1 {
			f.Alone = 1
		}
		f.GridX, f.GridY = uint64(x.launch.Grid.X), uint64(x.launch.Grid.Y)
		// A prefetch must come early: at least a gang of the widest.
		f.Ahead = x.launch.Block.Count() * uint64(len(x.workers))
		f.Ahead *= (native.Pitch + f.Ahead - 1) / f.Ahead
	}
	reason, at := c.Run(f, pc, head)
	if f.Turn != g.team.number {
		g.follow(f.Turn)
	}
	g.spin = int(f.Spin)
	used := budget - uint64(f.Budget)
	w.budget -= used
	w.stats.Instructions += used
	w.stats.LaneOps += f.LaneOps
	g.publish(c, at)
	if waits := f.Waiting(); len(waits) > 0 {
		g.separate(c, waits, f.Mask)
	}
	return reason, at
}

// chains says whether compiled code may begin the next team when all threads of
// this one have ended: where worker.run would do so at once, and begin nothing but
// clear shared memory and fill in the block's index.
func (g *gang) chains(w *worker) bool {
	t := g.team
	return len(w.teams) == 1 && !t.arrivals && g.favour == 0 && t.x.cluster == 1 && t.x.launch.Order == nil
}

// follow makes the team that compiled code has begun the gang's one. The code has
// done what begin does with memory; no register is read that the team has not
// written.
func (g *gang) follow(number uint64) {
	t := g.team
	t.number, t.at, t.idle, t.yields = number, 0, 0, 0
	t.blocks[0], t.live[0] = number, int(t.x.launch.Block.Count())
	for i := range t.x.image.PerBlock {
		g.fill(&t.x.image.PerBlock[i])
	}
	g.cc = mask{}
	g.stand(g.lanesOf[0])
	g.setMask(g.live)
}

// stand puts all threads of a team that begins at the first instruction.
func (g *gang) stand(live mask) {
	g.live = live
	g.groups = append(g.groups[:0], group{lanes: live})
	g.cur, g.favour, g.spin, g.partial = 0, 0, 0, false
	g.stamp, g.ticks, g.rounds, g.sync = 0, 0, 0, false
}

// bound returns the lowest place at which another group stands: compiled code
// that comes there or beyond returns, since the other group then runs first, or
// becomes one with this one. Groups at barriers do not count: they run only after
// a release, which is the interpreter's.
func (g *gang) bound() int32 {
	if g.favour > 0 {
		return 0 // return after every basic block: advance counts them
	}
	bound := int32(math.MaxInt32)
	for i := range g.groups {
		if i != g.cur && g.groups[i].state != atBar {
			bound = min(bound, g.groups[i].pc)
		}
	}
	return bound
}

// separate makes groups of the lanes that parted in compiled code and wait there.
// Each has its live registers in the forms of the place where it waits.
func (g *gang) separate(c *native.Code, waits []native.Wait, running mask) {
	for i := range waits {
		g.publish(c, waits[i].At)
		g.split(waits[i].Mask, waits[i].At)
	}
	g.setMask(running)
}

// allLive says whether the running group has all lanes whose registers are read
// again. Only then may compiled code write a register as a whole.
func (g *gang) allLive() bool {
	rest := g.awaited()
	rest = rest.without(&g.mask)
	return rest.empty()
}

// awaited returns the live lanes, without those of other groups that stand at an
// unguarded exit: no instruction will read their registers.
func (g *gang) awaited() mask {
	m := g.live
	if len(g.groups) == 1 {
		return m
	}
	for i := range g.groups {
		if in := &g.team.x.image.code[g.groups[i].pc]; i != g.cur && in.Flow == program.FlowExit && in.Guard < 0 {
			m = m.without(&g.groups[i].lanes)
		}
	}
	return m
}

// conform gives registers the forms that code expects at an instruction. It
// returns false, and records the surprise, if the values of a register do not
// have that form.
func (g *gang) conform(c *native.Code, pc int32) bool {
	alone := g.allLive()
	carried := &g.team.x.image.Carried
	for _, v := range c.Live(pc) {
		if v.Idle && alone {
			continue // no lane reads its old value
		}
		// Of a register that is private to the basic block, or if no other group is
		// there, only the active lanes count.
		some := alone || v.Slot < carried[v.Class][0] || v.Slot >= carried[v.Class][1]
		ok := false
		if v.Class == native.Bits64 {
			ok = conform(g, &g.r64, v.Slot, v.Kind, some)
		} else {
			ok = conform(g, &g.r32, v.Slot, v.Kind, some)
		}
		if !ok {
			g.machine.surprise(func(k *native.Kernel) {
				if v.Kind.Form == native.Linear {
					k.Uneven[v.Ref] = true
				} else {
					k.Irregular[v.Ref] = true
				}
			})
			return false
		}
	}
	return true
}

func conform[T regval](g *gang, r *file[T], slot int32, k native.Kind, some bool) bool {
	f := &r.form[slot]
	switch k.Form {
	case native.Linear:
		if !r.regular(slot) || f.stride != T(k.Stride) {
			return false
		}
		how, step := g.lengthwise(), chunk*f.stride
		if how == periodic {
			step = 0
		}
		if f.bits&how == 0 {
			base, ok := commonBase(g, r.chunks(slot), step, some)
			if !ok {
				return false
			}
			f.base = base
		}
		r.setScalar(slot, how, f.base, f.stride)
		return true
	case native.Vector:
		if f.bits != expanded {
			r.expand(slot)
			r.setExpanded(slot)
		}
		return true
	case native.Uniform:
		if !f.uniform() && (!r.regular(slot) || !f.uniform()) {
			return false
		}
		r.setUniform(slot, f.base)
		return true
	}
	if !r.regular(slot) || f.stride != T(k.Stride) {
		return false
	}
	r.chunks(slot)
	r.setCompressed(slot, f.stride)
	return true
}

// commonBase returns what lane 0 of a register with these bases has if they grow by step from
// chunk to chunk: all of them, or some, those of the chunks that have active lanes.
func commonBase[T regval](g *gang, bases []T, step T, some bool) (base T, ok bool) {
	for i, b := range bases {
		if some && g.mask.chunkBits(i) == 0 {
			continue
		}
		if b -= T(i) * step; ok && b != base {
			return 0, false
		}
		base, ok = b, true
	}
	return base, ok
}

// publish records in which forms compiled code has left the registers that are
// live at pc. Uniform values lie in the form itself; the code has written the
// others to their arrays.
func (g *gang) publish(c *native.Code, pc int32) {
	for _, v := range c.Live(pc) {
		if v.Class == native.Bits64 {
			publish(g, &g.r64, v.Slot, v.Kind)
		} else {
			publish(g, &g.r32, v.Slot, v.Kind)
		}
	}
}

func publish[T regval](g *gang, r *file[T], slot int32, k native.Kind) {
	switch k.Form {
	case native.Vector:
		r.setExpanded(slot)
	case native.Uniform:
		r.setUniform(slot, r.form[slot].base)
	case native.Linear:
		r.setScalar(slot, g.lengthwise(), r.form[slot].base, T(k.Stride))
	default:
		r.setCompressed(slot, T(k.Stride))
	}
}

// learn gives compiled code the stretch of global memory that the interpreter
// has just found for an instruction. The code checks later accesses of that
// instruction against it, and returns if they lie outside.
func (g *gang) learn(w *worker, pc int32) {
	if g.machine == nil {
		return
	}
	c := g.machine.code.Load()
	if c == nil {
		return
	}
	v := c.View(pc)
	if v < 0 || g.region.ptr == nil {
		return
	}
	g.viewsOf(w, c)
	first := w.seen[v].Size == 0
	w.seen[v] = native.View{Base: g.region.base, Size: g.region.size, Ptr: g.region.ptr}
	if !first {
		return
	}
	for _, other := range g.machine.alike(g, pc) {
		if o := c.View(other); o >= 0 && w.seen[o].Size == 0 {
			w.seen[o] = w.seen[v]
		}
	}
}

// alike returns the memory instructions that reached the buffer of the same
// parameter as this one, in this launch or in an earlier one. Programs that launch a
// kernel often would else interpret each of these instructions once a launch.
func (m *machine) alike(g *gang, pc int32) []int32 {
	for _, p := range g.team.x.image.Constants {
		if p.From != program.FromParam || p.Size != 8 || g.r64.form[p.Slot].base-g.region.base >= g.region.size {
			continue
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.reached == nil {
			m.reached = map[int32][]int32{}
		}
		list := m.reached[p.Slot]
		if !slices.Contains(list, pc) {
			list = append(slices.Clip(list), pc)
			m.reached[p.Slot] = list
		}
		return list
	}
	return nil
}

// foresee gives the memory instructions that reached the buffer of a parameter in an
// earlier launch the buffer at which the parameter points in this one: of a kernel that is
// launched often the interpreter then need not run any. The code checks every access
// against what it is given here, as ever.
func (m *machine) foresee(g *gang, c *native.Code, views []native.View) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for slot, list := range m.reached {
		at := g.r64.form[slot].base
		r, ok := g.team.x.memory.Find(at)
		if !ok || at >= program.GlobalEnd {
			continue
		}
		whole := viewOf(r.Base, r.Bytes)
		for _, pc := range list {
			if v := c.View(pc); v >= 0 {
				views[v] = native.View{Base: whole.base, Size: whole.size, Ptr: whole.ptr}
			}
		}
	}
}

// viewsOf returns the worker's views of memory for some code, and makes that code
// the one whose views w.seen are. Each worker has views of its own, so learn and
// the code need no lock.
func (g *gang) viewsOf(w *worker, c *native.Code) *native.View {
	if w.last == c {
		return &w.seen[0]
	}
	v := w.views[c]
	if v == nil {
		if w.views == nil {
			w.views = map[*native.Code][]native.View{}
		}
		v = make([]native.View, c.Views()+1)
		g.machine.foresee(g, c, v)
		w.views[c] = v
	}
	w.last, w.seen = c, v
	return &v[0]
}
