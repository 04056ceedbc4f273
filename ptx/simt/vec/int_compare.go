package vec

func init() {
	define(map[string]any{
		"setp.eq.b16": Compare32(equal[uint32, uint16]),
		"setp.eq.b32": Compare32(equal[uint32, uint32]),
		"setp.eq.b64": Compare64(equal[uint64, uint64]),
		"setp.ne.b16": Compare32(unequal[uint32, uint16]),
		"setp.ne.b32": Compare32(unequal[uint32, uint32]),
		"setp.ne.b64": Compare64(unequal[uint64, uint64]),
	})
	defineOrder("s16", less[uint32, int16], lessOrEqual[uint32, int16])
	defineOrder("u16", less[uint32, uint16], lessOrEqual[uint32, uint16])
	defineOrder("s32", less[uint32, int32], lessOrEqual[uint32, int32])
	defineOrder("u32", less[uint32, uint32], lessOrEqual[uint32, uint32])
	define(map[string]any{
		"setp.lt.s64": Compare64(less[uint64, int64]),
		"setp.le.s64": Compare64(lessOrEqual[uint64, int64]),
		"setp.gt.s64": swapped64(less[uint64, int64]),
		"setp.ge.s64": swapped64(lessOrEqual[uint64, int64]),
		"setp.lt.u64": Compare64(less[uint64, uint64]),
		"setp.le.u64": Compare64(lessOrEqual[uint64, uint64]),
		"setp.gt.u64": swapped64(less[uint64, uint64]),
		"setp.ge.u64": swapped64(lessOrEqual[uint64, uint64]),
	})
}

func defineOrder(of string, lt, le Compare32) {
	define(map[string]any{
		"setp.lt." + of: lt,
		"setp.le." + of: le,
		"setp.gt." + of: swapped32(lt),
		"setp.ge." + of: swapped32(le),
	})
}

func swapped32(compare Compare32) Compare32 {
	return func(d []uint64, a, b []uint32) { compare(d, b, a) }
}

func swapped64(compare Compare64) Compare64 {
	return func(d []uint64, a, b []uint64) { compare(d, b, a) }
}

func equal[L lane, V unsigned](d []uint64, a, b []L) {
	compare(d, a, b, func(a, b []L) uint64 {
		return which(a, b, func(x, y L) bool { return V(x) == V(y) })
	})
}

func unequal[L lane, V unsigned](d []uint64, a, b []L) {
	compare(d, a, b, func(a, b []L) uint64 {
		return which(a, b, func(x, y L) bool { return V(x) != V(y) })
	})
}

func less[L lane, T integer](d []uint64, a, b []L) {
	compare(d, a, b, func(a, b []L) uint64 {
		return which(a, b, func(x, y L) bool { return T(x) < T(y) })
	})
}

func lessOrEqual[L lane, T integer](d []uint64, a, b []L) {
	compare(d, a, b, func(a, b []L) uint64 {
		return which(a, b, func(x, y L) bool { return T(x) <= T(y) })
	})
}
