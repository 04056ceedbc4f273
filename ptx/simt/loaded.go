package simt

import (
	"sync"
	"sync/atomic"

	"muster/ptx"
	"muster/ptx/simt/program"
)

// Program is a module, ready to run. Many executions may use it at the same time: only
// caches in it change, under locks.
type Program struct {
	code    *program.Program
	kernels []*Kernel
	byName  map[string]*Kernel

	// mu protects what follows. It is the innermost lock: a goroutine may hold
	// the locks of a kernel and of its functions when it takes mu, never the reverse.
	mu         sync.Mutex
	prepared   []*Kernel // kernels that have images, in the order in which keepImage examines them
	imageBytes int       // of all images
	imageRoom  int       // the limit of imageBytes
	teams      []*team   // of launches that have ended, the oldest first; see keep
	teamBytes  int       // of all these
}

// Kernel is a kernel of a program.
type Kernel struct {
	*program.Kernel
	program *Program

	preparing sync.Mutex            // held while a launch makes the image, so that only one does
	image     atomic.Pointer[image] // nil before the first launch, and after keepImage has dropped it
	used      atomic.Bool           // launched since keepImage last examined it
}

// Load prepares a module to run: see program.Load. A launch never refuses what a kernel does.
func Load(name string, m *ptx.Module, place func(v *ptx.Variable) (uint64, error)) (*Program, error) {
	code, err := program.Load(name, m, place)
	if err != nil {
		return nil, err
	}
	p := &Program{code: code, byName: map[string]*Kernel{}}
	p.imageRoom = max(minImageRoom, 2*code.Instructions()*instBytes) // enough for all images if kernels share no functions
	for _, k := range code.Kernels() {
		kernel := &Kernel{Kernel: k, program: p}
		p.kernels = append(p.kernels, kernel)
		p.byName[k.Name] = kernel
	}
	return p, nil
}

// Kernels returns the kernels in the order of the module.
func (p *Program) Kernels() []*Kernel { return p.kernels }

// Kernel returns the kernel with a name, or nil.
func (p *Program) Kernel(name string) *Kernel { return p.byName[name] }

// Globals returns the variables that must be in memory before a kernel runs.
func (p *Program) Globals() []program.Global { return p.code.Globals() }

// Lowered returns the kernel's code for people.
func (k *Kernel) Lowered() *program.Lowered {
	return k.Kernel.Lowered(func(name string) bool { return affines[name] != nil })
}

// The code of a kernel is made when it is first launched, and kept while there is room for it.

// image is a kernel's code, ready to run. Apart from machines and checkedCode, which
// have locks of their own, it does not change.
type image struct {
	code []inst // begins with the kernel's own
	program.Layout

	machines machines

	checkedOnce sync.Once
	checkedCode *checkedImage // the same code with calls of a checker, made at the first checked launch
}

// linked gives the instructions of a program the functions that run them.
func linked(m *program.Image) *image {
	code := make([]inst, len(m.Code))
	for i := range m.Code {
		in := &code[i]
		in.Inst = m.Code[i]
		in.run, in.affine = functionOf(in), affines[in.Name]
		if in.Guard >= 0 && in.Flow == program.FlowNone {
			in.inner, in.run = in.run, guarded
		}
	}
	return &image{code: code, Layout: m.Layout}
}

// instBytes is about what an instruction of an image takes.
const instBytes = 200

func (m *image) size() int { return len(m.code) * instBytes }

// prepare returns the kernel's image, and makes it if there is none. A launch that
// finds another one making it waits. keepImage may drop the image at any time;
// executions that use it keep it alive.
func (k *Kernel) prepare() *image {
	k.used.Store(true)
	if m := k.image.Load(); m != nil {
		return m
	}
	k.preparing.Lock()
	defer k.preparing.Unlock()
	if m := k.image.Load(); m != nil {
		return m
	}
	m := linked(k.Assemble(0, nil))
	k.image.Store(m)
	k.program.keepImage(k, m)
	return m
}

// minImageRoom is how many bytes of images a program keeps at least.
const minImageRoom = 64 << 20

// keepImage counts a new image. If the images take too much room it drops some by
// the second-chance rule: it goes round the kernels, spares each that was launched
// since its last visit, and drops the image of each that was not. After two rounds
// it stops: then only the new image may be left.
func (p *Program) keepImage(k *Kernel, m *image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.prepared = append(p.prepared, k)
	p.imageBytes += m.size()
	for n := 2 * len(p.prepared); n > 0 && p.imageBytes > p.imageRoom; n-- {
		old := p.prepared[0]
		p.prepared = p.prepared[1:]
		if old == k || old.used.Swap(false) {
			p.prepared = append(p.prepared, old)
			continue
		}
		m := old.image.Swap(nil)
		p.imageBytes -= m.size()
		p.dropTeams(m)
	}
}

// inst is an instruction of a program with the functions of the engine that run it.
type inst struct {
	run    func(*gang, *inst)      // nil for those that end a basic block; first, since it is needed first
	affine func(*gang, *inst) bool // computes on regular registers; see affine.go
	inner  func(*gang, *inst)      // what run does under the guard, if there is one
	program.Inst
}

// guarded runs an instruction in the lanes in which its guard holds.
func guarded(g *gang, in *inst) {
	m := g.p[in.Guard]
	if in.GuardNot {
		m = g.live.without(&m)
	}
	m = m.and(&g.mask)
	if m.empty() {
		return
	}
	saved := g.mask
	g.setMask(m)
	in.inner(g, in)
	g.setMask(saved)
}

// This file says which function of the engine runs an instruction of a program.

// functions are those of the operations that need to know at most whether registers have 32 or 64 bits.
var functions map[program.Operation][2]func(*gang, *inst)

func init() {
	functions = map[program.Operation][2]func(*gang, *inst){
		program.OpActiveMask:      {runActiveMask},
		program.OpAligned:         {runAligned},
		program.OpAssertFail:      {runAssertFail},
		program.OpAtomic:          {runAtomic},
		program.OpBlockRank:       {runBlockRank[uint32], runBlockRank[uint64]},
		program.OpBulkCopy:        {runBulkCopy},
		program.OpBulkZero:        {runBulkZero},
		program.OpClock:           {runClock},
		program.OpCopy:            {runCopy[uint32], runCopy[uint64]},
		program.OpCopyAsync:       {runCopyAsync},
		program.OpCopyMap:         {runCopyMap},
		program.OpElect:           {runElect},
		program.OpEnter:           {runEnter},
		program.OpExplicitCluster: {runExplicitCluster},
		program.OpFence:           {runFence},
		program.OpFree:            {runFree},
		program.OpGroupProduct:    {runGroupProduct},
		program.OpIsSpace:         {runIsSpace},
		program.OpLeave:           {runLeave},
		program.OpLink:            {runLink},
		program.OpLoadFragment:    {runLoadFragment[uint32], runLoadFragment[uint64]},
		program.OpLoadMatrix:      {runLoadMatrix},
		program.OpMalloc:          {runMalloc},
		program.OpMapAddress:      {runMapAddress[uint32], runMapAddress[uint64]},
		program.OpMatch:           {runMatch},
		program.OpMbarrier:        {runMbarrier},
		program.OpMoveMatrix:      {runMoveMatrix},
		program.OpNothing:         {runNothing},
		program.OpPass:            {runPass},
		program.OpPassBack:        {runPassBack},
		program.OpPendingCount:    {runPendingCount},
		program.OpPredAnd:         {runPredAnd},
		program.OpPredConst:       {runPredConst},
		program.OpPredCopy:        {runPredCopy},
		program.OpPredOr:          {runPredOr},
		program.OpPredXor:         {runPredXor},
		program.OpPrintf:          {runPrintf},
		program.OpProduct:         {runProduct[uint32], runProduct[uint64]},
		program.OpReduceAsync:     {runReduceAsync},
		program.OpRedux:           {runRedux},
		program.OpReduxFloat:      {runReduxFloat},
		program.OpReplaceMap:      {runReplaceMap},
		program.OpRestore:         {runRestore},
		program.OpSave:            {runSave},
		program.OpSelect:          {runSelect[uint32], runSelect[uint64]},
		program.OpShuffle:         {runShuffle},
		program.OpSleep:           {runSleep},
		program.OpSparseProduct:   {runSparseProduct},
		program.OpStoreAsync:      {runStoreAsync[uint32, uint32], runStoreAsync[uint64, uint64]},
		program.OpStoreFragment:   {runStoreFragment[uint32], runStoreFragment[uint64]},
		program.OpStoreMatrix:     {runStoreMatrix},
		program.OpSurfaceLoad:     {runSurfaceLoad},
		program.OpSurfaceStore:    {runSurfaceStore},
		program.OpTensorCopy:      {runTensorCopy},
		program.OpTexture:         {runTexture},
		program.OpTextureQuery:    {runTextureQuery},
		program.OpVote:            {runVote},
	}
}

// element is what an access moves between memory and a register.
type element struct {
	bytes int
	sign  bool // it is extended with its sign
	wide  bool // to 64 bits, else to 32
}

var loads = map[element]func(*gang, *inst){
	{1, false, false}: runLoad[uint8, uint32], {1, true, false}: runLoad[int8, uint32],
	{2, false, false}: runLoad[uint16, uint32], {2, true, false}: runLoad[int16, uint32],
	{4, false, false}: runLoad[uint32, uint32], {4, true, false}: runLoad[uint32, uint32],
	{1, false, true}: runLoad[uint8, uint64], {1, true, true}: runLoad[int8, uint64],
	{2, false, true}: runLoad[uint16, uint64], {2, true, true}: runLoad[int16, uint64],
	{4, false, true}: runLoad[uint32, uint64], {4, true, true}: runLoad[int32, uint64],
	{8, false, true}: runLoad[uint64, uint64], {8, true, true}: runLoad[uint64, uint64],
}

var stores = map[element]func(*gang, *inst){
	{1, false, false}: runStore[uint8, uint32], {2, false, false}: runStore[uint16, uint32], {4, false, false}: runStore[uint32, uint32],
	{1, false, true}: runStore[uint8, uint64], {2, false, true}: runStore[uint16, uint64], {4, false, true}: runStore[uint32, uint64],
	{8, false, true}: runStore[uint64, uint64],
}

// functionOf returns the function that runs an instruction; nil for one that only leads somewhere.
func functionOf(in *inst) func(*gang, *inst) {
	switch in.Do {
	case program.NoOperation:
		return nil
	case program.OpArithmetic:
		return arithmetic(in.K)
	case program.OpLoad:
		return loads[element{in.Text.Type(0).Size(), in.Signed(), in.Wide}]
	case program.OpStore:
		return stores[element{in.Text.Type(0).Size(), false, in.Wide}]
	}
	widths := functions[in.Do]
	if in.Wide && widths[1] != nil {
		return widths[1]
	}
	return widths[0]
}
