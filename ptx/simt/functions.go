package simt

import (
	"muster/ptx/simt/program"
)

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
