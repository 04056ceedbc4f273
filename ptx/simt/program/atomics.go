package program

import (
	"math"

	"muster/ptx/simt/vec"
)

// AtomicOp is what an atomic operation makes of the old value; b is its
// operand, c the second one of cas.
type AtomicOp func(old, b, c uint64) uint64

// AtomicOps by operation and type. The values are cut to the type's width by
// the caller; floats travel as bits.
var AtomicOps = map[string]AtomicOp{
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
	"add.ftz.f32": AddFlushing,
	"add.f16":     onLanes("add.rn.f16"), "add.bf16": onLanes("add.rn.bf16"), "add.f16x2": onLanes("add.rn.f16x2"), "add.bf16x2": onLanes("add.rn.bf16x2"),
	"min.f16": onLanes("min.f16"), "min.bf16": onLanes("min.bf16"), "min.f16x2": onLanes("min.f16x2"), "min.bf16x2": onLanes("min.bf16x2"),
	"max.f16": onLanes("max.f16"), "max.bf16": onLanes("max.bf16"), "max.f16x2": onLanes("max.f16x2"), "max.bf16x2": onLanes("max.bf16x2"),
}

var AddFlushing = onLanes("add.rn.ftz.f32")

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
func onLanes(kernel string) AtomicOp {
	k := vec.Kernel(kernel).(vec.Binary32)
	return func(o, b, _ uint64) uint64 {
		var d, x, y [1]uint32
		x[0], y[0] = uint32(o), uint32(b)
		k(d[:], x[:], y[:])
		return uint64(d[0])
	}
}

// FlushGlobal is the mode of a sum of f32 that flushes subnormal numbers if the address is in global
// memory.
const FlushGlobal = 1
