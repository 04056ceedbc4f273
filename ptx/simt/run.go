package simt

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"muster/ptx/simt/heap"
	"muster/ptx/simt/memcheck"
	"muster/ptx/simt/native"
	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// Execution is a launched kernel.
type Execution struct {
	kernel     *Kernel
	image      *image
	launch     Launch
	memory     Memory
	params     view
	paramBytes []byte
	localBytes uint64 // of local memory, per thread
	static     int    // bytes of shared memory before the dynamic part

	stride  int    // lanes from one block to the next in a gang
	perGang int    // blocks in a gang; 1 if a block has several gangs
	width   int    // lanes of a gang at most
	cluster int    // blocks of a cluster, which are always in one team
	blocks  uint64 // of the grid
	teams   uint64 // of the grid

	next    counter     // number of the next team that a worker claims
	stop    atomic.Bool // asks all workers to return; set by Stop and by a fault
	print   sync.Mutex  // serialises Launch.Print and Launch.Complain
	workers []*worker
	check   *launchCheck // nil if the launch has no checker
	fault   error        // after it the execution never runs again
}

// counter is a number that all workers write. It has a cache line of its own:
// the fields around it are read all the time, and would move between the caches
// of the cores with every write.
type counter struct {
	_ [64]byte
	atomic.Uint64
	_ [64]byte
}

// worker runs teams, one at a time, on one goroutine. A team whose threads wait in
// a loop yields, and the worker runs the next; so blocks may wait for blocks. A
// team never changes its worker, so nothing in a team or gang needs a lock.
type worker struct {
	x       *Execution
	stop    *atomic.Bool
	budget  uint64
	charged uint64 // what long instructions did, as so many others that take as long; see gang.charge
	spent   bool   // long instructions have used up the budget, which paid for blocks before
	stats   Stats
	teams   []*team // that have begun; the first runs
	idle    []*team
	views   map[*native.Code][]native.View
	last    *native.Code  // the code whose views seen are
	seen    []native.View // views[last]
	spot    *spot         // nil if the launch is not profiled
	_       [64]byte      // what workers count must not share a cache line
}

// team is what runs together, since its threads may meet at barriers or share
// memory: the small blocks of one gang, the gangs of one large block, or the
// gangs of the blocks of a cluster.
type team struct {
	x      *Execution
	number uint64
	gangs  []*gang
	at     int      // gang that runs
	idle   int      // gangs in a row that ran no instruction; when all did, the team is finished or blocked
	yields int      // how many gangs have yielded since the team did
	blocks []uint64 // numbers in the grid
	live   []int    // threads that have not exited, for each block
	bars   [][shape.MaxBarriers + 1]barrier
	// arrivals says that a thread has arrived at one of bars, so that begin must
	// clear them and leave must look at them.
	arrivals bool
	passing  []int // scratch of release
	shared   []view
	bytes    []byte            // the shared memory of all its blocks
	check    []*memcheck.Block // of its blocks; nil without a checker
	mould    mould
}

// maxResident is how many teams a worker has at a time: when all of them have
// yielded, it begins no further ones. That bounds memory. It does not apply to a
// cooperative launch, whose blocks must all run at the same time.
const maxResident = 64

// Start checks a launch and prepares it to Run.
func (k *Kernel) Start(l Launch) (*Execution, error) {
	if err := k.check(&l); err != nil {
		return nil, fmt.Errorf("kernel %s: %w", k.Name, err)
	}
	x := &Execution{kernel: k, image: k.prepare(), launch: l, memory: l.Memory, static: k.Shared}
	if l.Check != nil {
		code := k.checked(x.image)
		if x.static = code.static; x.static > 0 && l.Shared > 0 {
			x.static += sharedGuard
		}
		x.image, x.check = code.image, beginCheck(l.Check, x, code)
	}
	if l.Profile != nil || l.List {
		x.image = x.image.apart()
	}
	x.localBytes = uint64(k.Local)
	if k.Recursive {
		x.localBytes += uint64(l.Stack)
	}
	params := aligned(k.ParamSize)
	copy(params, l.Params)
	x.params, x.paramBytes = viewOf(0, params), params
	x.layout()
	for range l.Workers {
		x.workers = append(x.workers, &worker{x: x, stop: &x.stop})
	}
	if l.Profile != nil {
		l.Profile.attach(x)
	}
	return x, nil
}

// check validates a launch and fills in defaults.
func (k *Kernel) check(l *Launch) error {
	g, b := l.Grid, l.Block
	switch {
	case g.Count() == 0 || b.Count() == 0:
		return fmt.Errorf("a grid of %v blocks of %v threads is empty", g, b)
	case b.X > shape.MaxBlockX || b.Y > shape.MaxBlockY || b.Z > shape.MaxBlockZ || b.Count() > shape.MaxThreads:
		return fmt.Errorf("a block of %v threads is too large: at most %d by %d by %d and %d in all", b, shape.MaxBlockX, shape.MaxBlockY, shape.MaxBlockZ, shape.MaxThreads)
	case k.Required != shape.Dim{} && b != k.Required:
		return fmt.Errorf("a block of %v threads does not fit: the kernel is compiled for %v (.reqntid)", b, k.Required)
	case b.Count() > uint64(k.MaxBlock):
		return fmt.Errorf("a block of %v threads is too large: the kernel is compiled for at most %d (.maxntid)", b, k.MaxBlock)
	case g.X > shape.MaxGridX || g.Y > shape.MaxGridY || g.Z > shape.MaxGridZ:
		return fmt.Errorf("a grid of %v blocks is too large: at most %d by %d by %d", g, shape.MaxGridX, shape.MaxGridY, shape.MaxGridZ)
	case l.Cluster != shape.Dim{} && k.Cluster != shape.Dim{} && l.Cluster != k.Cluster:
		return fmt.Errorf("a cluster of %v blocks does not fit: the kernel is compiled for %v (.reqnctapercluster)", l.Cluster, k.Cluster)
	case len(l.Params) != k.ParamSize:
		return fmt.Errorf("its parameters take %d bytes, not %d", k.ParamSize, len(l.Params))
	case l.Shared < 0 || l.Shared > shape.MaxShared || shape.Round(k.Shared, 16)+l.Shared > shape.MaxShared:
		return fmt.Errorf("%d bytes of shared memory a block are too many: at most %d", k.Shared+l.Shared, shape.MaxShared)
	case l.Memory == nil:
		return errors.New("a launch needs a memory")
	case k.Heap && (l.Heap == nil || l.Heap.Size < heap.LeastSize || l.Heap.Base%heap.Unit != 0 || l.Heap.Base >= program.GlobalEnd || l.Heap.Size > program.GlobalEnd-l.Heap.Base):
		return fmt.Errorf("it calls malloc or free: a launch needs a heap, of %d bytes at least", heap.LeastSize)
	case l.Workers < 0 || l.Workers > 1024:
		return fmt.Errorf("%d workers make no sense", l.Workers)
	case l.Width < 0 || l.Width%shape.WarpSize != 0 || l.Width > maxWidth:
		return fmt.Errorf("a gang of %d lanes does not exist: multiples of %d up to %d", l.Width, shape.WarpSize, maxWidth)
	case l.Stack < 0 || l.Stack > shape.MaxLocal || l.Stack%16 != 0 || l.Stack+k.Local > shape.MaxLocal:
		return fmt.Errorf("a stack of %d bytes makes no sense: a multiple of 16 up to %d", l.Stack, shape.MaxLocal-k.Local)
	}
	if l.Cluster == (shape.Dim{}) {
		l.Cluster = k.Cluster
	}
	if c := l.Cluster; c != (shape.Dim{}) && (c.Count() == 0 || c.Count() > shape.MaxCluster || g.X%c.X != 0 || g.Y%c.Y != 0 || g.Z%c.Z != 0) {
		return fmt.Errorf("clusters of %v blocks do not fit into a grid of %v: they have up to %d blocks, and the grid is made of whole ones", c, g, shape.MaxCluster)
	}
	l.Workers = max(l.Workers, 1)
	if l.Check != nil {
		l.Workers, l.Engine = 1, Interpret
	}
	if l.Width == 0 {
		l.Width = maxWidth
	}
	if l.Engine == Auto {
		l.Engine = autoEngine
	}
	if l.Stack == 0 {
		l.Stack = shape.DefaultStack
	}
	return nil
}

// layout decides how blocks become gangs. Small blocks share a gang, one every
// stride lanes; stride is a power of two up to a chunk, or a multiple of the warp
// size, so that no warp spans two blocks. A block with more threads than a gang
// has lanes gets several gangs.
func (x *Execution) layout() {
	threads := int(x.launch.Block.Count())
	x.blocks = x.launch.Grid.Count()
	x.stride = 1
	for x.stride < threads && x.stride < chunk {
		x.stride *= 2
	}
	if threads > chunk {
		x.stride = (threads + shape.WarpSize - 1) / shape.WarpSize * shape.WarpSize
	}
	x.width = x.launch.Width
	x.perGang = max(1, x.width/x.stride)
	// A gang takes no more than a worker's share of the blocks, and no worker should have
	// a gang more to run than the others at the end: the gangs are made so small that their
	// number is a multiple of the number of workers.
	workers := uint64(x.launch.Workers)
	x.perGang = int(min(uint64(x.perGang), ceil(x.blocks, workers)))
	if workers > 1 {
		each := ceil(x.blocks, uint64(x.perGang)*workers) // gangs of a worker
		x.perGang = int(ceil(x.blocks, each*workers))
	}
	x.cluster = max(1, int(x.launch.Cluster.Count()))
	if x.cluster > 1 { // only whole clusters; a cluster of large blocks has several gangs
		x.perGang = max(1, x.perGang/x.cluster) * x.cluster
	}
	x.teams = ceil(x.blocks, uint64(x.perGang))
}

func ceil(n, by uint64) uint64 { return (n + by - 1) / by }

// Run runs the kernel until it ends, faults or is stopped.
func (x *Execution) Run() error { return x.RunFor(^uint64(0)) }

// RunFor runs the kernel until it ends or each worker has run n instructions of
// gangs. Instructions that copy much, or call the heap or printf, count as many. If the kernel has not ended it returns ErrStopped and may be called
// again. The caller must not call it concurrently.
func (x *Execution) RunFor(n uint64) error {
	if x.fault != nil {
		return x.fault
	}
	if x.check != nil {
		x.check.Lock()
		defer x.check.Unlock()
	}
	var wg sync.WaitGroup
	faults := make([]error, len(x.workers))
	done := make([]bool, len(x.workers))
	work := func(i int) {
		w := x.workers[i]
		w.budget, w.spent = n, false
		done[i], faults[i] = w.run()
		if faults[i] != nil {
			x.stop.Store(true)
		}
	}
	for i := 1; i < len(x.workers); i++ {
		wg.Go(func() { work(i) })
	}
	work(0)
	wg.Wait()
	x.stop.Store(false)
	for _, err := range faults {
		if err != nil {
			x.fault = err
			return err
		}
	}
	for _, d := range done {
		if !d {
			return ErrStopped
		}
	}
	for _, w := range x.workers {
		x.kernel.program.keep(w.idle)
		w.idle = nil
	}
	return nil
}

// Stop makes Run return soon: before the next long instruction (see inst.long), at
// the end of a basic block, and in compiled code at the end of its slice. A Stop while no Run is under way ends the
// next one at once.
func (x *Execution) Stop() { x.stop.Store(true) }

// Stats returns what has been done so far. It must not be called during Run.
func (x *Execution) Stats() Stats {
	var s Stats
	for _, w := range x.workers {
		s.Instructions += w.stats.Instructions
		s.LaneOps += w.stats.LaneOps
	}
	return s
}

// Work is Stats with long instructions, such as bulk copies, counted as so many others as take
// about as long: what a run costs, where Stats has what ran. It counts from Start or Resume on.
func (x *Execution) Work() Stats {
	s := x.Stats()
	for _, w := range x.workers {
		s.Instructions += w.charged
		s.LaneOps += w.charged * maxWidth
	}
	return s
}

// run runs teams until none is left, or until the budget or a stop ends it. A
// fault arrives here as a panic: it may come from any depth of an instruction,
// and the execution never runs again after it. Any other panic is a defect of the
// engine, and so is an access to memory that the processor refuses, also one of
// compiled code: the process ends, and says which kernel ran.
func (w *worker) run() (done bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(*Fault)
			if !ok {
				panic(fmt.Sprintf("simt: kernel %s (engine %v): %v", w.x.kernel.Name, w.x.launch.Engine, r))
			}
			err = f
		}
	}()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	if w.spot != nil {
		defer func() { atomic.StoreUint32(&w.spot.place, noPlace) }()
	}
	w.views, w.last, w.seen = nil, nil, nil // since the last Run, memory may have been unmapped
	for _, t := range w.teams {
		t.resume()
	}
	for {
		if len(w.teams) == 0 && !w.admit() {
			return true, nil
		}
		t := w.teams[0]
		switch t.advance(w) {
		case finished:
			if len(w.teams) == 1 { // the usual case: the team's memory serves for the next blocks at once
				if n, ok := w.claim(); ok {
					t.begin(n)
					continue
				}
			}
			w.teams = slices.Delete(w.teams, 0, 1)
			w.idle = append(w.idle, t)
		case blocked:
			t.deadlock()
		case yielded:
			// The team may wait for a block that has not begun yet: begin one more.
			w.teams = append(slices.Delete(w.teams, 0, 1), t)
			if len(w.teams) < maxResident || w.x.launch.Cooperative {
				w.admit()
			}
		case exhausted:
			return false, nil
		}
	}
}

// claim takes the number of the next team from the counter of all workers; false
// if there is none left.
func (w *worker) claim() (uint64, bool) {
	n := w.x.next.Add(1) - 1
	if n >= w.x.teams {
		w.x.next.Store(w.x.teams) // Add would overflow after very many further claims
		return 0, false
	}
	return n, true
}

// admit begins the next team and puts it in front; false if there is none.
func (w *worker) admit() bool {
	n, ok := w.claim()
	if !ok {
		return false
	}
	var t *team
	if last := len(w.idle) - 1; last >= 0 {
		t, w.idle = w.idle[last], w.idle[:last]
	} else if t = w.x.kernel.program.reuse(w.x); t == nil {
		t = w.x.newTeam()
	}
	t.begin(n)
	if len(w.teams) == 0 {
		w.teams = append(w.teams, t)
	} else {
		w.teams = slices.Insert(w.teams, 0, t)
	}
	return true
}

// advance runs the gangs of a team in turn, each until it finishes, blocks or
// yields. A gang that blocks may be released by the next one. When every gang in
// a row has run nothing, the team is finished, or blocked for good.
func (t *team) advance(w *worker) outcome {
	for {
		g := t.gangs[t.at]
		before := w.budget
		switch g.advance(w) {
		case exhausted:
			return exhausted
		case yielded:
			t.idle = 0
			if t.yields++; t.yields > len(t.gangs) {
				t.yields = 0
				t.turn()
				return yielded
			}
		case finished, blocked:
			if w.budget == before {
				t.idle++
			} else {
				t.idle = 0
			}
		}
		if t.idle >= len(t.gangs) {
			for _, g := range t.gangs {
				if len(g.groups) > 0 {
					return blocked
				}
			}
			return finished
		}
		t.turn()
	}
}

// turn lets the next gang run.
func (t *team) turn() {
	if t.at++; t.at == len(t.gangs) {
		t.at = 0
	}
}

// deadlock stops the kernel with a fault, at the first thread that waits: no
// thread of the team can go on.
func (t *team) deadlock() {
	for _, g := range t.gangs {
		if len(g.groups) == 0 {
			continue
		}
		grp := &g.groups[0]
		in := &t.x.image.code[grp.pc]
		what := "waits at a barrier that the other threads of its block do not reach"
		if grp.state != atBar {
			what = "waits for threads of its warp that do not come"
		}
		g.fault(in, grp.lanes.first(), Deadlock, 0, what)
	}
}

// fault stops the kernel: it panics with the fault, and worker.run recovers.
func (g *gang) fault(in *inst, lane int, kind FaultKind, addr uint64, detail string) {
	t := g.team
	f := &Fault{Kind: kind, Kernel: t.x.kernel.Name, Address: addr, Detail: detail}
	if in.Text != nil {
		f.Pos, f.Line = in.Text.Pos, in.Text.String()
	}
	f.Block, f.Thread = g.position(lane)
	if t.x.check != nil {
		t.x.check.faulted(g, in, lane, f)
	}
	panic(f)
}

// position returns the block and the thread that a lane runs.
func (g *gang) position(lane int) (block, thread shape.Dim) {
	t := g.team
	return shape.Split(t.blocks[g.blockOf[lane]], t.x.launch.Grid), shape.Split(uint64(g.threadOf[lane]), t.x.launch.Block)
}

// sharedBytes returns the shared memory of a block: static, then dynamic.
func (x *Execution) sharedBytes() int { return sharedBytes(x.static, x.launch.Shared) }

func sharedBytes(static, dynamic int) int {
	if dynamic == 0 {
		return static
	}
	return shape.Round(static, 16) + dynamic
}

// mould is everything that the gangs of a team depend on, apart from constants: a
// team serves another launch of the same image if the moulds are equal.
type mould struct {
	block, cluster          shape.Dim
	width, stride, perGang  int
	sharedBytes, localBytes int
}

func (x *Execution) mould() mould {
	return mould{x.launch.Block, x.launch.Cluster, x.width, x.stride, x.perGang, x.sharedBytes(), int(x.localBytes)}
}

// maxKept is how many teams a program keeps for the next launches of their
// kernels, and how many bytes they may take.
const (
	maxKept      = 64
	maxKeptBytes = 64 << 20
)

// keep saves teams for later launches of their kernel: many programs launch small
// grids often, and would spend most of the time allocating registers. Teams with
// large local memories are dropped.
func (p *Program) keep(teams []*team) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range teams {
		if t.x.localBytes*uint64(t.x.width) > 1<<20 {
			return
		}
		p.teams = append(p.teams, t)
		p.teamBytes += t.size()
	}
	for len(p.teams) > maxKept || p.teamBytes > maxKeptBytes {
		p.teamBytes -= p.teams[0].size()
		p.teams = slices.Delete(p.teams, 0, 1) // the oldest
	}
}

// size returns about how many bytes the registers and memories of a team take.
func (t *team) size() int {
	n := len(t.bytes)
	for _, g := range t.gangs {
		n += 4*len(g.local) + maxWidth*(4*len(g.r32.form)+8*len(g.r64.form))
	}
	return n
}

// reuse returns a kept team that fits, or nil. It fills in again the constants that differ
// between launches with the same mould: parameters and the size of the grid.
func (p *Program) reuse(x *Execution) *team {
	t := p.take(x)
	if t == nil {
		return nil
	}
	t.x = x
	for _, g := range t.gangs {
		for _, c := range x.image.Constants {
			if c.From == program.FromParam || c.From.OfGrid() {
				g.fill(&c)
			}
		}
	}
	return t
}

func (p *Program) take(x *Execution) *team {
	p.mu.Lock()
	defer p.mu.Unlock()
	want := x.mould()
	for i, t := range p.teams {
		if t.x.image == x.image && t.mould == want {
			p.teams = slices.Delete(p.teams, i, i+1)
			p.teamBytes -= t.size()
			return t
		}
	}
	return nil
}

// dropTeams drops the kept teams of an image that is no longer kept. The caller
// must hold p.mu.
func (p *Program) dropTeams(m *image) {
	p.teams = slices.DeleteFunc(p.teams, func(t *team) bool {
		if t.x.image != m {
			return false
		}
		p.teamBytes -= t.size()
		return true
	})
}

// newTeam makes the gangs of a team and fills in what is the same for all
// teams of the launch.
func (x *Execution) newTeam() *team {
	t := &team{x: x, mould: x.mould(), live: make([]int, x.perGang), bars: make([][shape.MaxBarriers + 1]barrier, x.perGang), blocks: make([]uint64, x.perGang)}
	size := x.sharedBytes()
	each := shape.Round(size, 16)
	t.bytes = aligned(each * x.perGang)
	for b := range x.perGang {
		t.shared = append(t.shared, viewOf(0, t.bytes[b*each:][:size]))
	}
	threads := int(x.launch.Block.Count())
	if x.oneGang() {
		t.gangs = append(t.gangs, t.newGang(shape.Round(x.perGang*x.stride, chunk), 0, 0))
		return t
	}
	for b := range x.perGang {
		for first := 0; first < threads; first += x.width {
			t.gangs = append(t.gangs, t.newGang(shape.Round(min(x.width, threads-first), shape.WarpSize), b, first))
		}
	}
	return t
}

// oneGang says whether all blocks of a team fit into a gang.
func (x *Execution) oneGang() bool { return x.perGang*x.stride <= x.width }

// newGang makes a gang; first is its first thread of a block.
func (t *team) newGang(width, b, first int) *gang {
	x, m := t.x, t.x.image
	g := &gang{team: t, places: places{width: width, chunks: width / chunk, warp: min(x.stride, shape.WarpSize)}}
	g.r32 = newFile[uint32](m.Count32, width)
	g.r64 = newFile[uint64](m.Count64, width)
	g.p = make([]mask, m.CountPredicates)
	g.local = make([]uint32, int(x.localBytes+3)/4*width)
	g.blockOf, g.threadOf = make([]int32, width), make([]int32, width)
	g.lanesOf = make([]mask, x.perGang)
	threads := int(x.launch.Block.Count())
	for l := range width {
		block, thread := l/x.stride, first+l%x.stride
		if !x.oneGang() {
			block, thread = b, first+l
		}
		if block >= x.perGang { // padding after the last block
			block, thread = x.perGang-1, threads
		}
		g.blockOf[l], g.threadOf[l] = int32(block), int32(thread)
		if thread < threads {
			g.lanesOf[block].set(l)
		}
	}
	for _, c := range m.Constants {
		g.fill(&c)
	}
	return g
}

// slab makes n slices of a width, one every pitch elements of one allocation:
// compiled code computes where a register lies from its number.
func slab[T any](n, width, pitch int) [][]T {
	all := make([]T, n*pitch)
	s := make([][]T, n)
	for i := range s {
		s[i] = all[i*pitch:][:width:width]
	}
	return s
}

// begin gives a team its blocks and resets it: memory and barriers are cleared,
// registers that a block may read before it writes them are set to zero, and all
// threads stand at the first instruction.
func (t *team) begin(number uint64) {
	t.number, t.at, t.idle, t.yields = number, 0, 0, 0
	threads := int(t.x.launch.Block.Count())
	clear(t.bytes)
	if t.arrivals {
		clear(t.bars)
		for _, g := range t.gangs {
			g.arrived = mask{}
		}
		t.arrivals = false
	}
	for b := range t.live {
		n := number*uint64(t.x.perGang) + uint64(b)
		t.live[b] = 0
		if n < t.x.blocks {
			t.live[b] = threads
			t.blocks[b] = t.x.blockAt(n)
		}
	}
	for _, g := range t.gangs {
		var live mask
		for b := range g.lanesOf {
			if t.live[b] > 0 {
				live = live.or(&g.lanesOf[b])
			}
		}
		for i := range t.x.image.PerBlock {
			g.fill(&t.x.image.PerBlock[i])
		}
		g.equip()
		g.stand(live)
		g.forget()
		g.region = view{}
	}
	if t.x.check != nil {
		t.x.check.teamBegins(t)
	}
}

// blockAt returns the number of the block that runs n-th. The blocks of a cluster run
// in succession, so that they are in one team.
func (x *Execution) blockAt(n uint64) uint64 {
	l := &x.launch
	if x.cluster > 1 {
		first, within := shape.Split(n/uint64(x.cluster), x.clusters()), shape.Split(n%uint64(x.cluster), l.Cluster)
		at := func(c, size, r uint32) uint64 { return uint64(c)*uint64(size) + uint64(r) }
		z := at(first.Z, l.Cluster.Z, within.Z)
		y := at(first.Y, l.Cluster.Y, within.Y) + z*uint64(l.Grid.Y)
		return at(first.X, l.Cluster.X, within.X) + y*uint64(l.Grid.X)
	}
	if l.Order != nil {
		return l.Order(n)
	}
	return n
}

// clusters returns the size of the grid in clusters.
func (x *Execution) clusters() shape.Dim {
	g, c := x.launch.Grid, x.launch.Cluster
	if x.cluster == 1 {
		return g
	}
	return shape.Dim{X: g.X / c.X, Y: g.Y / c.Y, Z: g.Z / c.Z}
}

// forget sets registers to zero that a block may read before it writes them, so
// that no block sees values of another.
func (g *gang) forget() {
	m := g.team.x.image
	for i := m.Carried[program.Bits32][0]; i < m.Carried[program.Bits32][1]; i++ {
		g.r32.setUniform(i, 0)
	}
	for i := m.Carried[program.Bits64][0]; i < m.Carried[program.Bits64][1]; i++ {
		g.r64.setUniform(i, 0)
	}
	clear(g.p[:m.Carried[program.Predicate][1]])
	g.cc = mask{}
}

// resume prepares a team to continue in another Run. Memory may have been unmapped
// since the last one, so the region that each gang remembers is dropped. A gang that
// stands inside a basic block needs its mask, which advance will not set.
func (t *team) resume() {
	if t.x.check != nil && t.check == nil {
		t.x.check.teamResumes(t)
	}
	for _, g := range t.gangs {
		g.region = view{}
		if g.partial {
			g.setMask(g.groups[g.cur].lanes)
		}
	}
}
