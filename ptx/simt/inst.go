package simt

import "muster/ptx"

// inst is one instruction as a gang runs it. Registers are slots; constants,
// parameters and special registers are slots as well, filled before the
// first instruction, so that no instruction cares what kind its operands are.
type inst struct {
	run   func(*gang, *inst) // nil for those that end a basic block
	k     any                // lane kernel, of a shape of package vec
	name  string             // by which package native knows it: that of the lane kernel, "ld", "st" and so on
	d, d2 int32
	a, b  int32
	c, e  int32
	imm   int64
	x, y  int32   // numbers whose meaning depends on the instruction
	list  []int32 // the elements of a vector; -1 for one not wanted
	// sources are registers of one width that are read, beside a, b, c and e
	sources []int32

	affine  func(*gang, *inst) bool // computes on regular registers; see affine.go
	ordered uint8                   // which order a comparison of integers tests; 0: none
	space   ptx.Space
	private bool // the destination is private to the basic block: its lanes outside the mask are never read
	size    uint8
	mode    uint8 // of shuffles, votes, atomics and so on
	sync    bool  // volatile or ordered: a loop with it probably waits for another thread
	negated bool  // the predicate that is read counts inverted
	touch   touch // how it accesses memory, for a checker
	wide    bool  // the registers of list have 64 bits
	long    bool  // it may take as long as many others: what it does is charged by gang.did, and a stop comes before it

	guard    int32 // predicate slot, or -1
	guardNot bool
	inner    func(*gang, *inst) // what run does under the guard

	flow    flow
	returns bool  // a valid return address: it stands behind a call
	end     int32 // of the first instruction of a basic block: index of its last
	target  int32
	targets []int32
	back    bool // a target is at or before it: a loop

	text *ptx.Instruction // what it comes from
}

// flow says how an instruction ends its basic block.
type flow uint8

const (
	flowNone     flow = iota // it does not end it
	flowJump                 // to target
	flowBranch               // to target where predicate a holds
	flowTable                // to targets[a]
	flowCall                 // to the function whose address is in a
	flowReturn               // to the code index in a
	flowExit                 // the threads end
	flowTrap                 // the kernel fails
	flowBarrier              // wait for the threads of the block
	flowWarp                 // wait for the threads of the warp that the mask names, then run
	flowWarpWait             // wait until these threads are at any flowWarpWait
)

// guarded runs an instruction in the lanes in which its guard holds.
func guarded(g *gang, in *inst) {
	m := g.p[in.guard]
	if in.guardNot {
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
