package simt

import (
	"sync/atomic"

	"muster/ptx"
	"muster/ptx/simt/program"
)

// runAtomic: d (or -1), a: address, b and c: operands (c may be -1), size:
// bytes, k: atomicOp, mode: flushGlobal or 0. The lanes of a gang go one after the other.
func runAtomic(g *gang, in *inst) {
	g.sync = true
	op, flushing := in.K.(program.AtomicOp), program.AtomicOp(nil)
	if in.Mode == program.FlushGlobal {
		flushing = program.AddFlushing
	}
	a := g.access(in)
	n := uint64(in.Size)
	wide := n == 8
	operand := func(slot int32, lane int) uint64 {
		switch {
		case slot < 0:
			return 0
		case wide:
			return g.r64.lane(slot, lane)
		}
		return uint64(g.r32.lane(slot, lane)) & (1<<(n*8) - 1)
	}
	var d32 []uint32
	var d64 []uint64
	if in.D >= 0 {
		// Operands may be the destination.
		if wide {
			d64 = g.r64.scratch[1]
		} else {
			d32 = g.r32.scratch[1]
		}
	}
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		how := op
		if flushing != nil {
			if space, _ := program.Window(a.at(lane)); space == ptx.GlobalSpace {
				how = flushing
			}
		}
		old := g.atomic(in, lane, a.at(lane), n, how, operand(in.B, lane), operand(in.C, lane))
		if d32 != nil {
			d32[lane] = uint32(old)
		} else if d64 != nil {
			d64[lane] = old
		}
	}
	if d32 != nil {
		d := g.r32.partial(g, in, in.D)
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = d32[lane]
			}
		}
	} else if d64 != nil {
		d := g.r64.partial(g, in, in.D)
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = d64[lane]
			}
		}
	}
}

// runAligned checks that address a + imm is a multiple of size.
func runAligned(g *gang, in *inst) {
	a := g.access(in)
	for lane := g.lo; lane < g.hi; lane++ {
		if addr := a.at(lane); g.mask.has(lane) && addr%uint64(in.Size) != 0 {
			g.fault(in, lane, MisalignedAddress, addr, "")
		}
	}
}

// runReduceAsync combines c, of size bytes, with what is at address a + imm of shared memory of the
// cluster, and tells the mbarrier at address b. k: atomicOp.
func runReduceAsync(g *gang, in *inst) {
	g.sync = true
	op, n := in.K.(program.AtomicOp), uint64(in.Size)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		value := uint64(0)
		if n == 8 {
			value = g.r64.lane(in.C, lane)
		} else {
			value = uint64(g.r32.lane(in.C, lane))
		}
		g.atomic(in, lane, g.r64.lane(in.A, lane)+uint64(in.Imm), n, op, value, 0)
		g.bytesCame(in, lane, g.r64.lane(in.B, lane), n)
	}
}

// fenceWord is what fences write to: an atomic access orders all others.
var fenceWord atomic.Uint32

// runFence orders what the threads wrote before it and read behind it.
func runFence(g *gang, in *inst) {
	g.sync = true
	fenceWord.Or(0)
}
