package simt

import (
	"math"
	"sync/atomic"

	"muster/ptx"
	"muster/ptx/simt/vec"
)

// atomicOp is what an atomic operation makes of the old value; b is its
// operand, c the second one of cas.
type atomicOp func(old, b, c uint64) uint64

// atomicOps by operation and type. The values are cut to the type's width by
// the caller; floats travel as bits.
var atomicOps = map[string]atomicOp{
	"exch.b32": func(_, b, _ uint64) uint64 { return b }, "exch.b64": func(_, b, _ uint64) uint64 { return b },
	"cas.b16": compareAndSwap, "cas.b32": compareAndSwap, "cas.b64": compareAndSwap,
	"add.u32": addBits, "add.s32": addBits, "add.u64": addBits, "add.s64": addBits,
	"and.b32": andBits, "and.b64": andBits, "or.b32": orBits, "or.b64": orBits, "xor.b32": xorBits, "xor.b64": xorBits,
	"min.u32": func(o, b, _ uint64) uint64 { return min(o, b) }, "min.u64": func(o, b, _ uint64) uint64 { return min(o, b) },
	"max.u32": func(o, b, _ uint64) uint64 { return max(o, b) }, "max.u64": func(o, b, _ uint64) uint64 { return max(o, b) },
	"min.s32": func(o, b, _ uint64) uint64 { return uint64(uint32(min(int32(o), int32(b)))) },
	"max.s32": func(o, b, _ uint64) uint64 { return uint64(uint32(max(int32(o), int32(b)))) },
	"min.s64": func(o, b, _ uint64) uint64 { return uint64(min(int64(o), int64(b))) },
	"max.s64": func(o, b, _ uint64) uint64 { return uint64(max(int64(o), int64(b))) },
	"inc.u32": func(o, b, _ uint64) uint64 {
		if o >= b {
			return 0
		}
		return o + 1
	},
	"dec.u32": func(o, b, _ uint64) uint64 {
		if o == 0 || o > b {
			return b
		}
		return o - 1
	},
	"add.f32": onLanes("add.rn.f32"),
	"add.f64": func(o, b, _ uint64) uint64 {
		return math.Float64bits(math.Float64frombits(o) + math.Float64frombits(b))
	},
	"add.ftz.f32": addFlushing,
	"add.f16":     onLanes("add.rn.f16"), "add.bf16": onLanes("add.rn.bf16"), "add.f16x2": onLanes("add.rn.f16x2"), "add.bf16x2": onLanes("add.rn.bf16x2"),
	"min.f16": onLanes("min.f16"), "min.bf16": onLanes("min.bf16"), "min.f16x2": onLanes("min.f16x2"), "min.bf16x2": onLanes("min.bf16x2"),
	"max.f16": onLanes("max.f16"), "max.bf16": onLanes("max.bf16"), "max.f16x2": onLanes("max.f16x2"), "max.bf16x2": onLanes("max.bf16x2"),
}

var addFlushing = onLanes("add.rn.ftz.f32")

func compareAndSwap(o, b, c uint64) uint64 {
	if o == b {
		return c
	}
	return o
}

func addBits(o, b, _ uint64) uint64 { return o + b }

func andBits(o, b, _ uint64) uint64 { return o & b }

func orBits(o, b, _ uint64) uint64 { return o | b }

func xorBits(o, b, _ uint64) uint64 { return o ^ b }

// onLanes is what a lane kernel makes of one value.
func onLanes(kernel string) atomicOp {
	k := vec.Kernel(kernel).(vec.Binary32)
	return func(o, b, _ uint64) uint64 {
		var d, x, y [1]uint32
		x[0], y[0] = uint32(o), uint32(b)
		k(d[:], x[:], y[:])
		return uint64(d[0])
	}
}

// flushGlobal is the mode of a sum of f32 that flushes subnormal numbers if the address is in global
// memory.
const flushGlobal = 1

// runAtomic: d (or -1), a: address, b and c: operands (c may be -1), size:
// bytes, k: atomicOp, mode: flushGlobal or 0. The lanes of a gang go one after the other.
func runAtomic(g *gang, in *inst) {
	g.sync = true
	op, flushing := in.k.(atomicOp), atomicOp(nil)
	if in.mode == flushGlobal {
		flushing = addFlushing
	}
	a := g.access(in)
	n := uint64(in.size)
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
	if in.d >= 0 {
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
			if space, _ := window(a.at(lane)); space == ptx.GlobalSpace {
				how = flushing
			}
		}
		old := g.atomic(in, lane, a.at(lane), n, how, operand(in.b, lane), operand(in.c, lane))
		if d32 != nil {
			d32[lane] = uint32(old)
		} else if d64 != nil {
			d64[lane] = old
		}
	}
	if d32 != nil {
		d := g.r32.partial(g, in, in.d)
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = d32[lane]
			}
		}
	} else if d64 != nil {
		d := g.r64.partial(g, in, in.d)
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
		if addr := a.at(lane); g.mask.has(lane) && addr%uint64(in.size) != 0 {
			g.fault(in, lane, MisalignedAddress, addr, "")
		}
	}
}

// runReduceAsync combines c, of size bytes, with what is at address a + imm of shared memory of the
// cluster, and tells the mbarrier at address b. k: atomicOp.
func runReduceAsync(g *gang, in *inst) {
	g.sync = true
	op, n := in.k.(atomicOp), uint64(in.size)
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		value := uint64(0)
		if n == 8 {
			value = g.r64.lane(in.c, lane)
		} else {
			value = uint64(g.r32.lane(in.c, lane))
		}
		g.atomic(in, lane, g.r64.lane(in.a, lane)+uint64(in.imm), n, op, value, 0)
		g.bytesCame(in, lane, g.r64.lane(in.b, lane), n)
	}
}

// fenceWord is what fences write to: an atomic access orders all others.
var fenceWord atomic.Uint32

// runFence orders what the threads wrote before it and read behind it.
func runFence(g *gang, in *inst) {
	g.sync = true
	fenceWord.Or(0)
}
