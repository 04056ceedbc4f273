package simt

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"muster/ptx"
	"muster/ptx/simt/matrix"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensormap"
)

// A launch with a checker runs a copy of the kernel's code in which each instruction that accesses
// memory first calls the checker. A launch without one runs the unchanged code. One worker runs a
// checked launch, in the interpreter.

// site is an instruction that a checker follows.
type site struct {
	text    *ptx.Instruction
	touch   program.Touch
	bytes   uint64 // of an element
	size    uint64 // of all elements
	sync    bool   // atomic, volatile or ordered: two such accesses do not race
	returns bool   // an atomic whose result is used
	swaps   bool   // compare-and-swap
	blind   bool   // an atomic whose result does not depend on the old value: exch
}

// checkedImage is a kernel's code with calls of the checker inserted.
type checkedImage struct {
	image     *image
	sites     []site             // from index 1 on; 0 is no site
	unknown   []*ptx.Instruction // that the checker does not follow
	async     []*ptx.Instruction // that the checker does not follow in launches with clusters
	variables []sharedVariable
	static    int // bytes of static variables in shared memory, with the guards between them
}

// sharedGuard is how many bytes stay free between variables in the shared memory of checked kernels, so
// that an access beyond one of them does not hit another.
const sharedGuard = 512

// sharedVariable is the place of a static variable in shared memory.
type sharedVariable struct {
	name     string
	at, size int
}

// checked returns the code with calls of the checker, which it makes once.
func (k *Kernel) checked(m *image) *checkedImage {
	m.checkedOnce.Do(func() { m.checkedCode = k.insertChecks(m) })
	return m.checkedCode
}

// insertChecks copies the code and wraps the function of each instruction that the checker follows. For
// an instruction with a guard it wraps inner, which runs with the lanes that the guard lets through.
func (k *Kernel) insertChecks(m *image) *checkedImage {
	c := &checkedImage{sites: make([]site, 1)}
	places, static := k.StaticShared(sharedGuard)
	c.static = static
	if len(places) > 1 {
		c.image = linked(k.Assemble(sharedGuard, nil))
	} else {
		c.image = m.apart()
		c.image.code = slices.Clone(m.code)
	}
	for i := range c.image.code {
		in := &c.image.code[i]
		s := siteOf(in)
		if s.touch == program.TouchOther {
			c.unknown = append(c.unknown, in.Text)
		}
		if s.isAsync() {
			c.async = append(c.async, in.Text)
		}
		if s.touch == program.TouchNothing || s.touch == program.TouchOther || len(c.sites) > memcheck.MaxSites {
			continue
		}
		number := len(c.sites)
		c.sites = append(c.sites, s)
		run := &in.run
		if in.inner != nil {
			run = &in.inner
		}
		plain := *run
		*run = func(g *gang, in *inst) {
			g.team.x.check.follow(g, in, number)
			plain(g, in)
		}
	}
	for v, at := range places {
		c.variables = append(c.variables, sharedVariable{v.Name, at, v.Size()})
	}
	slices.SortFunc(c.variables, func(a, b sharedVariable) int { return a.at - b.at })
	return c
}

// siteOf returns what a checker must know of an instruction.
func siteOf(in *inst) site {
	s := site{text: in.Text, touch: in.Touch, sync: in.Sync}
	switch in.Touch {
	case program.TouchLoad, program.TouchStore:
		s.bytes = uint64(in.Text.Type(0).Size())
		s.size = s.bytes * uint64(len(in.List))
		if in.Space == ptx.ConstSpace || in.Text.Space() == ptx.ParamSpace { // only the compiler accesses parameters
			s.touch = program.TouchNothing
		}
	case program.TouchAtomic:
		s.bytes, s.size, s.sync, s.returns = uint64(in.Size), uint64(in.Size), true, in.D >= 0
		s.blind, s.swaps = in.Text.Has("exch"), in.Text.Has("cas")
	case program.TouchCopy:
		s.bytes, s.size = uint64(in.Size), uint64(in.Size)
	case program.TouchMatrix, program.TouchRows:
		s.bytes, s.size = 2*matrixSide, 2*matrixSide
	case program.TouchLoadTile, program.TouchStoreTile:
		s.bytes = uint64(in.K.(*matrix.Access).Format.Bits() / 8)
		s.size = s.bytes
		if s.bytes == 0 { // several elements share a byte
			s.touch = program.TouchOther
		}
	case program.TouchTensorMap:
		s.bytes, s.size = bulkUnit, bulkUnit
	case program.TouchMbarrier:
		s.bytes, s.size, s.sync = 8, 8, in.Mode != program.MbarrierInit && in.Mode != program.MbarrierInvalidate
	case program.TouchBulk:
		s.bytes, s.size = bulkUnit, bulkUnit
		switch k := in.K.(type) {
		case *program.BulkCopy:
			s.sync = k.Reduce != nil
		case *program.TensorCopy:
			s.bytes, s.sync = 1, k.Reduce != "" // rows of a box begin at any element
		}
	case program.TouchBulkZero:
		s.bytes, s.size = 8, 8
	case program.TouchProduct:
		s.bytes, s.size = 4, 4
	case program.TouchNothing:
		if in.Text == nil || in.run == nil {
			break
		}
		switch in.Text.Opcode {
		case "ldmatrix", "stmatrix", "wmma", "wgmma", "mbarrier", "st", "multimem", "cp":
			if in.Name == "" && (in.Text.Opcode != "cp" || in.Text.Has("bulk")) && (in.Text.Opcode != "st" || in.Text.Has("async")) && !in.Text.Has("prefetch") && slices.ContainsFunc(in.Text.Operands, isAddress) {
				s.touch = program.TouchOther
			}
		}
	}
	return s
}

func isAddress(o ptx.Operand) bool { return o.Kind == ptx.AddressOperand }

// launchCheck is a checker's view of one launch.
type launchCheck struct {
	*memcheck.Checker
	x    *Execution
	code *checkedImage
	race bool // check for races; false once there are no numbers left for blocks
	memcheck.Launch
	floor memcheck.Record // records of this launch are not below it

	sharedBytes uint64    // of a block
	inside      [2]uint64 // the variable in shared memory that was used last: begin and end
	unknown     bool      // an instruction that is not followed may write shared memory
}

func beginCheck(c *memcheck.Checker, x *Execution, code *checkedImage) *launchCheck {
	c.Lock()
	defer c.Unlock()
	l := &launchCheck{Checker: c, x: x, code: code, race: c.Checks.Race}
	l.Launch = c.NewLaunch(x.launch.Grid.Count(), func(blocks int) {
		if l.race {
			l.Note("kernel %s: blocks after the first %d were not checked for races", x.kernel.Name, blocks)
		}
		l.race = false
	})
	l.floor = memcheck.Record(l.Lowest) << memcheck.BlockShift
	l.sharedBytes = uint64(x.sharedBytes())
	unknown := code.unknown
	if x.cluster > 1 {
		unknown = append(slices.Clone(unknown), code.async...)
	}
	for _, in := range unknown {
		c.Note("kernel %s: what %s does to memory is not followed (line %d): reads of shared memory are not checked for initialisation", x.kernel.Name, in.Name(), in.Pos.Line)
		l.unknown = true
	}
	if len(code.sites) > memcheck.MaxSites {
		c.Note("kernel %s has more than %d instructions that reach memory: the others are not checked", x.kernel.Name, memcheck.MaxSites)
	}
	return l
}

// teamBegins resets the state of a team's blocks, when the team begins to run new ones.
func (l *launchCheck) teamBegins(t *team) {
	if t.check == nil || t.check[0].Launch != &l.Launch {
		t.check = make([]*memcheck.Block, len(t.live))
		for b := range t.check {
			t.check[b] = &memcheck.Block{Launch: &l.Launch, Warps: (int(l.x.launch.Block.Count()) + shape.WarpSize - 1) / shape.WarpSize, Shared: make([]*memcheck.Page, (l.x.sharedBytes()+memcheck.PageBytes-1)/memcheck.PageBytes)}
		}
	}
	for b := range t.check {
		if t.live[b] > 0 {
			t.check[b].Begin(t.blocks[b])
		}
	}
	if l.Checks.Init {
		for _, g := range t.gangs {
			if len(g.local) == 0 {
				continue
			}
			if len(g.localInit) != len(g.local) {
				g.localInit = make([]uint8, len(g.local))
			} else {
				clear(g.localInit)
			}
		}
	}
}

// teamResumes makes the state of a team whose saved state was loaded: all that its threads
// did before counts as ordered, and all their memory as written.
func (l *launchCheck) teamResumes(t *team) {
	l.teamBegins(t)
	for i, b := range t.check {
		for n := range t.bars[i] {
			if t.bars[i][n].arrived == 0 {
				continue
			}
			// The state tells how many threads wait here, not which: as if all did, so that none is
			// blamed for what the barrier orders.
			for w := range b.Warps {
				b.Arrive(w, uint32(n), true)
			}
		}
		for i := range b.Shared {
			b.Shared[i] = &memcheck.Page{}
			b.Shared[i].Write(0, memcheck.PageBytes)
		}
	}
	for _, g := range t.gangs {
		for i := range g.localInit {
			g.localInit[i] = 15
		}
	}
}

// eachActiveWarp calls f for every warp of the running group, in the order of
// lanes, with its block.
func (l *launchCheck) eachActiveWarp(g *gang, f func(b *memcheck.Block, w int)) {
	for base := g.lo &^ (g.warp - 1); base < g.hi; base += g.warp {
		if m := g.warpBits(&g.mask, base); m != 0 {
			lane := base + bits.TrailingZeros32(m)
			f(g.team.check[g.blockOf[lane]], int(g.threadOf[lane])/shape.WarpSize)
		}
	}
}

// synchronises records that the running group executes an instruction that makes
// threads wait for each other.
func (l *launchCheck) synchronises(g *gang, in *inst) {
	switch in.Flow {
	case program.FlowWarp, program.FlowWarpWait:
		l.eachActiveWarp(g, (*memcheck.Block).Advance)
	case program.FlowBarrier:
		switch in.Mode {
		case program.ClusterArrive: // the barrier may complete before the wait is executed: count as waiting from here on
			l.eachActiveWarp(g, func(b *memcheck.Block, w int) { b.Arrive(w, clusterBarrier, true) })
			return
		case program.ClusterWait:
			return
		}
		for base := g.lo &^ (g.warp - 1); base < g.hi; base += g.warp {
			m := g.warpBits(&g.mask, base)
			for ; m != 0; m &= m - 1 {
				lane := base + bits.TrailingZeros32(m)
				number := g.r32.lane(in.A, lane)
				if number < shape.MaxBarriers {
					g.team.check[g.blockOf[lane]].Arrive(int(g.threadOf[lane])/shape.WarpSize, number, in.Mode != program.BarArrive)
				}
				if g.r32.form[in.A].uniform() {
					break // the other lanes of the warp arrive at the same barrier
				}
			}
		}
	}
}

// passes records that all threads of a team continue from the barriers at which they wait.
func (l *launchCheck) passes(t *team) {
	for b := range t.check {
		for n := range shape.MaxBarriers {
			t.check[b].Pass(n)
		}
	}
}

// follow examines an instruction that the running group is about to execute.
func (l *launchCheck) follow(g *gang, in *inst, number int) {
	s := &l.code.sites[number]
	if s.isAsync() {
		if l.x.cluster == 1 {
			l.followAsync(g, in, number, s)
		}
		return
	}
	switch s.touch {
	case program.TouchFence:
		l.eachActiveWarp(g, (*memcheck.Block).Fence)
	case program.TouchLoad, program.TouchStore, program.TouchAtomic:
		v := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s, a: g.access(in), reads: s.touch != program.TouchStore, writes: s.touch != program.TouchLoad}
		v.all()
		if s.sync {
			l.eachActiveWarp(g, func(b *memcheck.Block, w int) {
				if v.reads && (s.touch == program.TouchLoad || s.returns) {
					b.Observe(w)
				}
				if v.writes {
					b.Publish(w)
				}
			})
		}
	case program.TouchCopy:
		from := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s, a: g.access(in), reads: true, silent: in.C >= 0}
		from.all()
		to := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s, writes: true}
		for lane := range l.lanes(g) {
			to.lane(lane, ptx.SharedSpace, g.r64.lane(in.B, lane))
		}
	case program.TouchMatrix, program.TouchRows:
		reads := s.touch == program.TouchRows
		v := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s, a: g.access(in), reads: reads, writes: !reads}
		for lane := range l.lanes(g) {
			if lane%g.warp < matrixSide*len(in.List) {
				v.one(lane)
			}
		}
	case program.TouchLoadTile, program.TouchStoreTile:
		reads := s.touch == program.TouchLoadTile
		v := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s, reads: reads, writes: !reads}
		v.tile(in.K.(*matrix.Access))
	case program.TouchTensorMap:
		v := glance{l: l, g: g, in: in, number: memcheck.Record(number), site: s}
		v.maps()
	}
}

// maps examines the tensor maps that lanes change, or that warps copy.
func (v *glance) maps() {
	g, in := v.g, v.in
	copies := in.Text.Has("cp_fenceproxy")
	visit := func(lane int) {
		v.reads, v.writes = true, !copies
		v.bytes(lane, in.Space, g.r64.lane(in.A, lane)+uint64(in.Imm), tensormap.Size)
		if copies {
			v.reads, v.writes = false, true
			v.bytes(lane, ptx.GlobalSpace, g.r64.lane(in.B, lane), tensormap.Size)
		}
	}
	if copies {
		g.eachWarp(func(base int, active uint32) { visit(base + trailing(uint64(active))) })
		return
	}
	for lane := range v.l.lanes(g) {
		visit(lane)
	}
}

// tile examines the elements that the lanes of a warp move between their registers
// and a matrix in memory.
func (v *glance) tile(f *matrix.Access) {
	var addr, stride [maxWidth]uint64
	v.g.fragmentAddresses(v.in, &addr, &stride)
	for lane := range v.l.lanes(v.g) {
		for r := range f.Registers {
			for _, n := range f.Register(r, lane%shape.WarpSize) {
				space, at := v.in.Space, addr[lane]+f.Offset(int(n), stride[lane])*v.site.bytes
				if space == ptx.NoSpace {
					space, at = program.Window(at)
				}
				v.lane(lane, space, at)
			}
		}
	}
}

// lanes iterates over the lanes of the running group.
func (l *launchCheck) lanes(g *gang) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for w, b := range g.mask {
			for ; b != 0; b &= b - 1 {
				if !yield(w<<6 + bits.TrailingZeros64(b)) {
					return
				}
			}
		}
	}
}

// glance is the examination of one instruction that accesses memory, for the lanes of a gang.
type glance struct {
	l      *launchCheck
	g      *gang
	in     *inst
	number memcheck.Record
	site   *site
	a      *access
	reads  bool
	writes bool
	silent bool // lanes may read fewer bytes than site.size: do not report missing bytes
	engine int  // the copy engine that makes the access, for the lane's thread; 0: the thread itself
}

// all examines the accesses of all lanes. Addresses in a regular form are examined in rows, or at two
// lanes that stand for the others; that is much faster than lane by lane (one) and finds the same
// kinds of defects.
func (v *glance) all() {
	g, a := v.g, v.a
	n := v.site.size
	if a.space == ptx.LocalSpace && v.in.Space == ptx.LocalSpace {
		v.local()
		return
	}
	if v.in.Space != ptx.NoSpace && n >= 4 && g.team.x.perGang == 1 || v.in.Space == ptx.GlobalSpace && n >= 4 {
		switch {
		case a.linear && a.step == n && g.solid():
			v.row(g.first, g.end, a.at(g.first))
			return
		}
		if !v.writes && a.periodic && g.complete() && g.width > 2*chunk {
			v.ends()
			return
		}
		if !v.writes && a.regular && a.step == 0 && g.complete() {
			v.broadcasts()
			return
		}
		if a.regular && a.step == n && g.complete() {
			a.chunks()
			for c := range g.chunks {
				v.row(c*chunk, (c+1)*chunk, a.at(c*chunk))
			}
			return
		}
	}
	if v.in.Space == ptx.SharedSpace && n == 4 && v.l.race {
		for w, m := range g.mask {
			for ; m != 0; m &= m - 1 {
				if lane := w<<6 + bits.TrailingZeros64(m); !v.word(lane, a.at(lane)) {
					v.one(lane)
				}
			}
		}
		return
	}
	for lane := range v.l.lanes(g) {
		v.one(lane)
	}
}

// ends examines only the first and the last chunk, for reads whose addresses are the same in
// each chunk: a word keeps two readers, and these are two different threads.
func (v *glance) ends() {
	for _, c := range [2]int{0, v.g.width - chunk} {
		if v.a.step == v.site.size {
			v.row(c, c+chunk, v.a.at(c))
			continue
		}
		for lane := c; lane < c+chunk; lane++ {
			v.one(lane)
		}
	}
}

// broadcasts examines two lanes of each chunk, for reads with one address per chunk; or two
// lanes of the gang if all read the same address.
func (v *glance) broadcasts() {
	if v.a.linear {
		v.one(0)
		v.one(v.g.width - 1)
		return
	}
	v.a.chunks()
	for c := range v.g.chunks {
		first := c * chunk
		if v.in.Space != ptx.SharedSpace || v.site.size != 4 || !v.l.race || !v.word(first, v.a.at(first)) || !v.word(first+chunk-1, v.a.at(first+chunk-1)) {
			v.one(first)
			v.one(first + chunk - 1)
		}
	}
}

// word is a fast path for a lane's access to an aligned word of shared memory. It returns
// false if the caller must use one instead.
func (v *glance) word(lane int, addr uint64) bool {
	b := v.g.team.check[v.g.blockOf[lane]]
	if addr+4 > v.l.sharedBytes || addr%4 != 0 || !v.l.inVariable(addr, 4) {
		return false
	}
	p := b.Shared[addr/memcheck.PageBytes]
	if p == nil || p.Uses == nil || p.Uses.Shift != 2 {
		return false
	}
	if v.l.Checks.Init && !p.Full {
		bits, shift := &p.Init[addr%memcheck.PageBytes/64], addr%64
		if v.reads && *bits>>shift&15 != 15 {
			return false
		}
		if v.writes {
			*bits |= 15 << shift
		}
	}
	u, i := p.Uses, addr%memcheck.PageBytes/4
	me, floor := v.me(b, lane), b.Settled
	w, r := u.Write[i], u.Read[i]
	switch {
	case v.writes && w < floor && r < floor:
		u.Write[i] = me
	case !v.writes && w < floor && r < floor:
		u.Read[i], u.Reread[i] = me, 0
	case !v.writes && w < floor && (u.Reread[i]^me)&(memcheck.BlockMask|memcheck.ClockMask) == 0:
	default:
		v.use(b, me, floor, lane, ptx.SharedSpace, addr, u, int(i))
	}
	return true
}

// me returns the record of a lane's access now.
func (v *glance) me(b *memcheck.Block, lane int) memcheck.Record {
	thread := int(v.g.threadOf[lane])
	if v.engine != 0 {
		thread = v.engine*shape.WarpSize + thread/shape.WarpSize
	}
	return memcheck.Record(b.ID)<<memcheck.BlockShift | memcheck.Record(b.Clock[thread/shape.WarpSize])<<memcheck.ClockShift | memcheck.Record(thread)<<memcheck.ThreadShift | v.number
}

// one examines the access of one lane.
func (v *glance) one(lane int) {
	space, addr := v.in.Space, v.a.at(lane)
	if space == ptx.NoSpace {
		space, addr = program.Window(addr)
	}
	v.lane(lane, space, addr)
}

// local examines accesses to the threads' local memory.
func (v *glance) local() {
	for lane := range v.l.lanes(v.g) {
		v.lane(lane, ptx.LocalSpace, v.a.at(lane))
	}
}

// lane examines one lane's access to an address in a state space.
func (v *glance) lane(lane int, space ptx.Space, addr uint64) {
	n := v.site.size
	if addr&(v.site.bytes-1) != 0 {
		return // misaligned: the instruction itself will fault
	}
	switch space {
	case ptx.LocalSpace:
		v.localLane(lane, addr)
	case ptx.SharedSpace:
		b := v.g.team.check[v.g.blockOf[lane]]
		if size := v.l.sharedBytes; addr < size && size-addr >= n {
			if !v.l.inVariable(addr, n) {
				v.outsideShared(lane, addr)
				return
			}
			v.stretch(b, lane, space, addr, b.SharedPage(addr), b.SharedPage(addr+n-1))
		}
	case ptx.GlobalSpace:
		a := v.l.Find(addr)
		if a == nil || addr-a.Base+n > a.Size {
			v.outside(lane, addr)
			return
		}
		v.stretch(v.g.team.check[v.g.blockOf[lane]], lane, space, addr, v.l.Page(a, addr), v.l.Page(a, addr+n-1))
	}
}

// stretch examines the bytes that a lane accesses, which lie in one page or in two.
func (v *glance) stretch(b *memcheck.Block, lane int, space ptx.Space, addr uint64, p, q *memcheck.Page) {
	n := int(v.site.size)
	from := int(addr % memcheck.PageBytes)
	if p != q {
		v.part(b, lane, space, addr, p, from, memcheck.PageBytes-from)
		v.part(b, lane, space, addr+memcheck.PageBytes-uint64(from), q, 0, n-(memcheck.PageBytes-from))
		return
	}
	v.part(b, lane, space, addr, p, from, n)
}

// part examines the bytes that a lane accesses in one page.
func (v *glance) part(b *memcheck.Block, lane int, space ptx.Space, addr uint64, p *memcheck.Page, from, n int) {
	if v.l.Checks.Init && !p.Full {
		v.initPart(lane, space, addr, p, from, n)
	}
	if !v.l.race {
		return
	}
	u := v.l.UsesOf(p, space == ptx.SharedSpace, n < 4 || from%4 != 0, v.l.floor, v.l.x.kernel.Name)
	if u == nil {
		return
	}
	me, floor := v.me(b, lane), v.floor(b, space)
	for i, end := from>>u.Shift, (from+n-1)>>u.Shift; i <= end; i++ {
		v.use(b, me, floor, lane, space, addr&^(memcheck.PageBytes-1)|uint64(i)<<u.Shift, u, i)
	}
	p.Used = me | ^memcheck.BlockMask
}

func (v *glance) initPart(lane int, space ptx.Space, addr uint64, p *memcheck.Page, from, n int) {
	if v.reads {
		if at := p.Unwritten(from, n); at >= 0 {
			v.uninitialised(lane, space, addr+uint64(at-from))
			p.Write(from, n) // report these bytes only once
		}
	}
	if v.writes {
		p.Write(from, n)
		if from+n == memcheck.PageBytes {
			p.Settle()
		}
	}
}

// floor returns a lower bound of the records that matter for an access: those
// below are from earlier launches or other blocks of the same shared memory, or
// all threads that can reach the memory are ordered after them.
func (v *glance) floor(b *memcheck.Block, space ptx.Space) memcheck.Record {
	if space == ptx.SharedSpace {
		return b.Settled
	}
	return v.l.floor
}

// use compares a lane's access to a word, or a byte, with the last writer and, if it writes, with the
// readers; then it records the access. A record of the same thread never conflicts. A write
// clears the readers: the next access is compared with the write.
func (v *glance) use(b *memcheck.Block, me, floor memcheck.Record, lane int, space ptx.Space, addr uint64, u *memcheck.Uses, i int) {
	if last := u.Write[i]; last >= floor && (last^me)&memcheck.WhoMask != 0 && !v.harmless(last, b, me.Warp()) {
		v.conflict(lane, space, addr, me, last, true, int(1)<<u.Shift)
	}
	first, second := u.Read[i], u.Reread[i]
	if v.writes {
		if first >= floor && (first^me)&memcheck.WhoMask != 0 && !v.harmless(first, b, me.Warp()) {
			v.conflict(lane, space, addr, me, first, false, int(1)<<u.Shift)
		} else if second >= floor && (second^me)&memcheck.WhoMask != 0 && !v.harmless(second, b, me.Warp()) {
			v.conflict(lane, space, addr, me, second, false, int(1)<<u.Shift)
		}
		if last := u.Write[i]; !v.site.sync || (last^me)&(memcheck.WhoMask|memcheck.ClockMask) != 0 || v.l.code.sites[last.Site()].sync {
			u.Write[i] = me // else keep this thread's plain write: it can race where its atomic cannot
		}
		if first >= floor {
			u.Read[i], u.Reread[i] = 0, 0
		}
		return
	}
	switch {
	case first < floor:
		u.Read[i], u.Reread[i] = me, 0
	case (first^me)&memcheck.WhoMask == 0:
		u.Read[i] = me
	case (second^me)&(memcheck.BlockMask|memcheck.ClockMask) == 0:
		// A second reader of this block was recorded at the same clock, that is, just now. It
		// stands for this one too.
	case b.Ordered(first, me.Warp()):
		u.Read[i] = me
		if (second^me)&memcheck.WhoMask == 0 {
			u.Reread[i] = 0
		}
	default:
		u.Reread[i] = me
	}
}

// harmless says whether an access does not race with an earlier one by another thread, one
// of the two being a write.
func (v *glance) harmless(earlier memcheck.Record, b *memcheck.Block, w int) bool {
	other := &v.l.code.sites[earlier.Site()]
	switch {
	case b.Ordered(earlier, w) || v.site.sync && other.sync:
		return true
	case v.site.touch == program.TouchLoad && other.swaps || v.site.swaps && other.touch == program.TouchLoad:
		// CUDA's programming guide shows this loop: a plain read, then a compare-and-swap
		// that fails if the value read was outdated.
		return true
	}
	return false
}

// row examines lanes that access consecutive memory, page by page.
func (v *glance) row(first, end int, addr uint64) {
	n := v.site.size
	bytes := uint64(end-first) * n
	var shadow func(addr uint64) *memcheck.Page
	space := v.in.Space
	switch space {
	case ptx.SharedSpace:
		b := v.g.team.check[v.g.blockOf[first]]
		size := v.l.sharedBytes
		if addr < size && size-addr >= bytes && addr&(v.site.bytes-1) == 0 && v.l.inVariable(addr, bytes) {
			shadow = b.SharedPage
		}
	case ptx.GlobalSpace:
		a := v.l.Find(addr)
		if a != nil && addr-a.Base+bytes <= a.Size && addr&(v.site.bytes-1) == 0 {
			shadow = func(addr uint64) *memcheck.Page { return v.l.Page(a, addr) }
		}
	}
	if shadow == nil || addr%n != 0 || addr%4 != 0 {
		for lane := first; lane < end; lane++ {
			v.one(lane)
		}
		return
	}
	for first < end {
		p, from := shadow(addr), int(addr%memcheck.PageBytes)
		lanes := min(end-first, (memcheck.PageBytes-from)/int(n))
		v.rowInPage(first, first+lanes, space, addr, p, from)
		first += lanes
		addr += uint64(lanes) * n
	}
}

func (v *glance) rowInPage(first, end int, space ptx.Space, addr uint64, p *memcheck.Page, from int) {
	n := int(v.site.size)
	if v.l.Checks.Init && !p.Full {
		if v.reads && p.Unwritten(from, (end-first)*n) >= 0 {
			for lane := first; lane < end; lane++ {
				if at := p.Unwritten(from+(lane-first)*n, n); at >= 0 {
					v.uninitialised(lane, space, addr&^(memcheck.PageBytes-1)+uint64(at))
				}
			}
			p.Write(from, (end-first)*n)
		}
		if v.writes {
			p.Write(from, (end-first)*n)
		}
	}
	if !v.l.race {
		return
	}
	u := v.l.UsesOf(p, space == ptx.SharedSpace, false, v.l.floor, v.l.x.kernel.Name)
	if u == nil {
		return
	}
	p.Used = memcheck.Record(v.g.team.check[v.g.blockOf[end-1]].ID)<<memcheck.BlockShift | ^memcheck.BlockMask
	if n == 4 && u.Shift == 2 {
		v.rowOfWords(first, end, space, addr, u, from/4)
		return
	}
	entries := n >> u.Shift
	i := from >> u.Shift
	page := addr &^ (memcheck.PageBytes - 1)
	for lane := first; lane < end; lane++ {
		b := v.g.team.check[v.g.blockOf[lane]]
		me, floor := v.me(b, lane), v.floor(b, space)
		for range entries {
			v.use(b, me, floor, lane, space, page|uint64(i)<<u.Shift, u, i)
			i++
		}
	}
}

// rowOfWords examines lanes that access one word each, from the i-th word of a page on. Threads of a warp
// have consecutive numbers, so the record of the next lane is that of this one plus 1<<threadShift.
func (v *glance) rowOfWords(first, end int, space ptx.Space, addr uint64, u *memcheck.Uses, i int) {
	n := end - first
	write, read, reread := u.Write[i:i+n], u.Read[i:i+n], u.Reread[i:i+n]
	for first < end { // a warp of a block at a time
		b := v.g.team.check[v.g.blockOf[first]]
		me, floor := v.me(b, first), v.floor(b, space)
		k := min(end-first, v.g.warp-first%v.g.warp)
		for j := range k {
			w, r := write[j], read[j]
			switch {
			case v.writes && w < floor && r < floor:
				write[j] = me
			case !v.writes && w < floor && r < floor:
				read[j], reread[j] = me, 0
			case !v.writes && w < floor && (reread[j]^me)&(memcheck.BlockMask|memcheck.ClockMask) == 0:
			default:
				v.use(b, me, floor, first+j, space, addr+4*uint64(j), u, i+j)
			}
			me += 1 << memcheck.ThreadShift
		}
		first += k
		i += k
		addr += 4 * uint64(k)
		write, read, reread = write[k:], read[k:], reread[k:]
	}
}

// localLane examines an access to a thread's local memory. No other thread can reach that, so it
// only checks that memory is written before it is read.
func (v *glance) localLane(lane int, addr uint64) {
	init := v.g.localInit
	if init == nil || addr >= v.l.x.localBytes || v.l.x.localBytes-addr < v.site.size {
		return
	}
	if v.reads {
		for e := uint64(0); e < v.site.size; e += v.site.bytes {
			// Compilers copy structures with the padding between their fields,
			// so a value counts as written if any byte of it is.
			written := false
			for i := addr + e; i < addr+e+v.site.bytes; i++ {
				written = written || init[int(i/4)*v.g.width+lane]>>(i%4)&1 != 0
			}
			if !written {
				v.uninitialised(lane, ptx.LocalSpace, addr+e)
				break
			}
		}
	}
	if v.writes {
		v.l.writeLocal(v.g, lane, addr, v.site.size)
	}
}

// writeLocal marks bytes of a thread's local memory as written.
func (l *launchCheck) writeLocal(g *gang, lane int, addr, n uint64) {
	if g.localInit == nil || addr >= l.x.localBytes || l.x.localBytes-addr < n {
		return
	}
	for i := addr; i < addr+n; i++ {
		g.localInit[int(i/4)*g.width+lane] |= 1 << (i % 4)
	}
}

// deed describes an access of a lane.
func (v *glance) deed(lane int) memcheck.Deed {
	block, thread := v.g.position(lane)
	d := memcheck.Deed{Block: block, Thread: thread, What: "read"}
	if v.writes {
		d.What = "write"
	}
	v.l.place(&d, v.site)
	return d
}

// place fills in the instruction of a deed.
func (l *launchCheck) place(d *memcheck.Deed, s *site) {
	switch s.touch {
	case program.TouchAtomic:
		d.What = "atomic access"
	case program.TouchMbarrier:
		d.What = "use of an mbarrier"
	case program.TouchBulk:
		d.What += " of a bulk copy"
	}
	d.Line, d.Instruction, d.Source = s.text.Pos.Line, s.text.String(), l.x.kernel.SourceOf(s.text)
}

// memory says what an address belongs to.
func (l *launchCheck) memory(space ptx.Space, addr uint64) string {
	switch space {
	case ptx.GlobalSpace:
		return l.Describe(addr)
	case ptx.SharedSpace:
		for _, s := range l.code.variables {
			if addr-uint64(s.at) < uint64(s.size) {
				return fmt.Sprintf("byte %d of %s (%s)", addr-uint64(s.at), s.name, memcheck.Counted(s.size, "byte"))
			}
		}
		if addr >= l.dynamicAt() {
			return "dynamic shared memory"
		}
		// A guard zone: the variable whose end or begin is closer.
		after, _ := slices.BinarySearchFunc(l.code.variables, addr, func(s sharedVariable, addr uint64) int { return cmp.Compare(uint64(s.at), addr) })
		before := l.code.variables[after-1]
		behind := addr - uint64(before.at+before.size)
		if after < len(l.code.variables) && uint64(l.code.variables[after].at)-addr < behind {
			next := l.code.variables[after]
			return fmt.Sprintf("%s before %s (%s)", memcheck.Counted(next.at-int(addr), "byte"), next.name, memcheck.Counted(next.size, "byte"))
		}
		return fmt.Sprintf("%s behind the end of %s (%s)", memcheck.Counted(int(behind), "byte"), before.name, memcheck.Counted(before.size, "byte"))
	}
	return ""
}

func (v *glance) uninitialised(lane int, space ptx.Space, addr uint64) {
	if !v.l.Checks.Init || v.silent || v.site.blind || space == ptx.SharedSpace && v.l.unknown {
		return
	}
	v.l.Add(memcheck.DefectKey{Kind: memcheck.Uninitialised, Space: space, Deed: v.site.text}, func() *memcheck.Defect {
		d := v.deed(lane)
		d.What = "read"
		return &memcheck.Defect{Kind: memcheck.Uninitialised, Kernel: v.l.x.kernel.Name, Deed: d, Space: space, Address: addr, Size: int(v.site.bytes), Memory: v.l.memory(space, addr)}
	})
}

// outside reports an access to mapped memory that is in no allocation. If the memory is not
// mapped, the instruction itself will fault (see faulted).
func (v *glance) outside(lane int, addr uint64) {
	if !v.l.Checks.Memory || v.silent {
		return
	}
	if _, mapped := v.g.globalView(addr); !mapped || !v.l.Near(addr) {
		return
	}
	v.l.Add(memcheck.DefectKey{Kind: memcheck.OutOfBounds, Space: ptx.GlobalSpace, Deed: v.site.text}, func() *memcheck.Defect {
		at := addr
		if a := v.l.Find(addr); a != nil { // it begins inside an area and ends beyond it
			at = a.Base + a.Size
		}
		return &memcheck.Defect{Kind: memcheck.OutOfBounds, Kernel: v.l.x.kernel.Name, Deed: v.deed(lane), Space: ptx.GlobalSpace, Address: addr, Size: int(v.site.size), Memory: v.l.Describe(at)}
	})
}

// dynamicAt is where dynamic shared memory begins.
func (l *launchCheck) dynamicAt() uint64 { return l.sharedBytes - uint64(l.x.launch.Shared) }

// inVariable says whether bytes in shared memory lie in one variable, or in its dynamic part.
func (l *launchCheck) inVariable(addr, n uint64) bool {
	if addr >= l.inside[0] && addr+n <= l.inside[1] {
		return true
	}
	if at := l.dynamicAt(); addr >= at {
		l.inside = [2]uint64{at, l.sharedBytes}
		return addr+n <= l.sharedBytes
	}
	for _, s := range l.code.variables {
		if at, end := uint64(s.at), uint64(s.at+s.size); addr >= at && addr+n <= end {
			l.inside = [2]uint64{at, end}
			return true
		}
	}
	return false
}

// outsideShared reports an access to shared memory between variables.
func (v *glance) outsideShared(lane int, addr uint64) {
	if !v.l.Checks.Memory || v.silent {
		return
	}
	v.l.Add(memcheck.DefectKey{Kind: memcheck.OutOfBounds, Space: ptx.SharedSpace, Deed: v.site.text}, func() *memcheck.Defect {
		at := addr
		for _, s := range v.l.code.variables { // it begins in a variable and ends beyond it
			if addr-uint64(s.at) < uint64(s.size) {
				at = uint64(s.at + s.size)
			}
		}
		return &memcheck.Defect{Kind: memcheck.OutOfBounds, Kernel: v.l.x.kernel.Name, Deed: v.deed(lane), Space: ptx.SharedSpace, Address: addr, Size: int(v.site.size), Memory: v.l.memory(ptx.SharedSpace, at)}
	})
}

// conflict reports a race with an earlier access, unless both write the same value.
func (v *glance) conflict(lane int, space ptx.Space, addr uint64, me, earlier memcheck.Record, wrote bool, size int) {
	other := &v.l.code.sites[earlier.Site()]
	if v.writes && wrote && v.sameValue(lane, space, addr, me, earlier) {
		return
	}
	v.l.Add(memcheck.DefectKey{Kind: memcheck.Race, Space: space, Deed: v.site.text, Other: other.text}, func() *memcheck.Defect {
		d := v.deed(lane)
		o := memcheck.Deed{Block: shape.Split(v.l.ID(earlier.Block()).Number, v.l.x.launch.Grid), Thread: shape.Split(uint64(memcheck.ThreadOf(earlier)), v.l.x.launch.Block), What: "read"}
		if wrote {
			o.What = "write"
		}
		v.l.place(&o, other)
		return &memcheck.Defect{Kind: memcheck.Race, Kernel: v.l.x.kernel.Name, Deed: d, Other: &o, Space: space, Address: addr, Size: size, Memory: v.l.memory(space, addr), Why: why(&d, &o, v.site.touch == program.TouchBulk || other.touch == program.TouchBulk)}
	})
}

// why says what would order two accesses.
func why(d, o *memcheck.Deed, copied bool) string {
	switch {
	case d.Block == o.Block && copied:
		return "nothing orders them: a bulk copy is over when a thread has waited for its mbarrier or its group"
	case d.Block != o.Block:
		return "blocks run in any order: use atomics, or two kernels"
	case d.Thread.Y == o.Thread.Y && d.Thread.Z == o.Thread.Z && d.Thread.X/shape.WarpSize == o.Thread.X/shape.WarpSize:
		return "nothing orders them: no barrier and no __syncwarp() is between"
	}
	return "nothing orders them: no barrier is between"
}

// sameValue says whether a store writes the value that the earlier write has left, so that it
// does not matter which comes last. If both are lanes of this very instruction, the memory
// does not have the value yet, so their registers are compared.
func (v *glance) sameValue(lane int, space ptx.Space, addr uint64, me, earlier memcheck.Record) bool {
	if v.site.touch != program.TouchStore {
		return false
	}
	at := v.a.at(lane)
	if v.in.Space == ptx.NoSpace {
		_, at = program.Window(at)
	}
	element := int((addr - at) / v.site.bytes)
	if addr < at { // addr is that of a word, of which the lane writes only a part
		element = 0
	}
	if element >= len(v.in.List) {
		return false
	}
	value := v.g.register(v.in, element, lane)
	if me&^memcheck.WhoMask == earlier&^memcheck.WhoMask { // the same instruction, and maybe the same execution of it
		if peer := v.peer(earlier); peer >= 0 && v.a.at(peer) == v.a.at(lane) {
			return v.g.register(v.in, element, peer) == value
		}
	}
	memory, ok := v.g.peek(lane, space, at+uint64(element)*v.site.bytes, v.site.bytes)
	return ok && memory == value
}

// peer returns the lane of the running group that made the access in a record, or -1.
func (v *glance) peer(r memcheck.Record) int {
	for other := range v.l.lanes(v.g) {
		if b := v.g.team.check[v.g.blockOf[other]]; b.ID == r.Block() && int(v.g.threadOf[other]) == r.Thread() {
			return other
		}
	}
	return -1
}

// faulted reports an access that ends the kernel with a fault.
func (l *launchCheck) faulted(g *gang, in *inst, lane int, f *Fault) {
	if !l.Checks.Memory || in.Text == nil || f.Kind != IllegalAddress && f.Kind != MisalignedAddress && f.Kind != WriteToReadOnly {
		return
	}
	kind := memcheck.OutOfBounds
	if f.Kind == MisalignedAddress {
		kind = memcheck.Misaligned
	}
	space := in.Space
	if space == ptx.NoSpace {
		space, _ = program.Window(f.Address)
	}
	s := siteOf(in)
	l.Add(memcheck.DefectKey{Kind: kind, Space: space, Deed: in.Text}, func() *memcheck.Defect {
		d := &memcheck.Defect{Kind: kind, Kernel: f.Kernel, Deed: memcheck.Deed{Block: f.Block, Thread: f.Thread, What: "read"}, Space: space, Address: f.Address, Size: int(max(1, s.size)), Why: "the kernel ends here"}
		if in.Touch == program.TouchStore || in.Touch == program.TouchMatrix || in.Touch == program.TouchStoreTile {
			d.Deed.What = "write"
		}
		l.place(&d.Deed, &s)
		switch space {
		case ptx.GlobalSpace:
			d.Memory = l.Describe(f.Address)
		case ptx.SharedSpace:
			d.Memory = fmt.Sprintf("the block has %s", memcheck.Counted(l.x.sharedBytes(), "byte"))
		case ptx.LocalSpace:
			d.Memory = fmt.Sprintf("the thread has %s", memcheck.Counted(int(l.x.localBytes), "byte"))
		}
		return d
	})
}

// register returns an element that a lane stores, truncated to the size of the element.
func (g *gang) register(in *inst, element, lane int) uint64 {
	var v uint64
	if in.Wide {
		v = g.r64.lane(in.List[element], lane)
	} else {
		v = uint64(g.r32.lane(in.List[element], lane))
	}
	if n := in.Text.Type(0).Size(); n < 8 {
		v &= 1<<(8*n) - 1
	}
	return v
}
