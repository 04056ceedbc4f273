package simt

import (
	"math/bits"

	"muster/ptx/simt/program"
)

// warpBits returns the bits of m for the warp that begins at lane base.
func (g *gang) warpBits(m *mask, base int) uint32 {
	return uint32(m[base>>6] >> (base & 63) & (1<<g.warp - 1))
}

// eachWarp calls f for every warp with active lanes.
func (g *gang) eachWarp(f func(base int, active uint32)) {
	for base := g.lo &^ (g.warp - 1); base < g.hi; base += g.warp {
		if b := g.warpBits(&g.mask, base); b != 0 {
			f(base, b)
		}
	}
}

// runShuffle: d, d2 (predicate or -1), a, b: lane, c: clamp and segment.
func runShuffle(g *gang, in *inst) {
	// The source may be the destination.
	copy(g.r32.scratch[1], g.r32.expand(in.A))
	src, by, clamp := g.r32.scratch[1], g.r32.expand(in.B), g.r32.expand(in.C)
	d := g.r32.partial(g, in, in.D)
	var valid mask
	g.eachWarp(func(base int, active uint32) {
		for ; active != 0; active &= active - 1 {
			lane := bits.TrailingZeros32(active)
			j, ok := shuffleSource(in.Mode, lane, by[base+lane], clamp[base+lane])
			if ok {
				valid.set(base + lane)
			}
			if j >= g.warp {
				j = lane // that lane does not exist, and PTX leaves the result undefined
			}
			d[base+lane] = src[base+j]
		}
	})
	if in.D2 >= 0 {
		g.setPredicate(in.D2, valid)
	}
}

// shuffleSource returns the lane that a lane reads, and whether it is in range; if
// not, the lane reads itself. c is the operand as PTX packs it: the segment mask
// in bits 8 to 12, the clamp in bits 0 to 4. Lanes that agree in the bits of the
// segment mask are a segment, and a shuffle does not leave its segment.
func shuffleSource(mode uint8, lane int, b, c uint32) (int, bool) {
	by, clamp, segment := int(b&31), int(c&31), int(c>>8&31)
	low := lane & segment
	limit := low | clamp&^segment
	var j int
	var ok bool
	switch mode {
	case program.ShflUp:
		j = lane - by
		ok = j >= limit
	case program.ShflDown:
		j = lane + by
		ok = j <= limit
	case program.ShflBfly:
		j = lane ^ by
		ok = j <= limit
	case program.ShflIdx:
		j = low | by&^segment
		ok = j <= limit
	}
	if !ok {
		j = lane
	}
	return j, ok
}

// named returns the active lanes of a warp that a lane's mask names.
func (g *gang) named(in *inst, base int, active uint32, lane int) uint32 {
	if in.E < 0 {
		return active
	}
	return active & g.r32.lane(in.E, base+lane)
}

// runVote: d, a: predicate, e: mask or -1.
func runVote(g *gang, in *inst) {
	p := g.p[in.A]
	if in.Negated {
		p = g.mask.without(&p)
	}
	var d [maxWidth]uint32
	var result mask
	g.eachWarp(func(base int, active uint32) {
		holds := g.warpBits(&p, base)
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			who := g.named(in, base, active, lane)
			yes := holds & who
			var r bool
			switch in.Mode {
			case program.VoteAll:
				r = yes == who
			case program.VoteAny:
				r = yes != 0
			case program.VoteUni:
				r = yes == who || yes == 0
			case program.VoteBallot:
				d[base+lane] = yes
			}
			if r {
				result.set(base + lane)
			}
		}
	})
	if in.Mode == program.VoteBallot {
		g.writeLanes32(in, in.D, &d)
	} else {
		g.setPredicate(in.D, result)
	}
}

// runMatch: d, d2: predicate of match.all or -1, a (32 or 64 bits), e: mask.
func runMatch(g *gang, in *inst) {
	value := func(lane int) uint64 {
		if in.Size == 8 {
			return g.r64.lane(in.A, lane)
		}
		return uint64(g.r32.lane(in.A, lane))
	}
	var d [maxWidth]uint32
	var all mask
	g.eachWarp(func(base int, active uint32) {
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			who := g.named(in, base, active, lane)
			mine := value(base + lane)
			var same uint32
			for w := who; w != 0; w &= w - 1 {
				if l := bits.TrailingZeros32(w); value(base+l) == mine {
					same |= 1 << l
				}
			}
			if in.D2 < 0 {
				d[base+lane] = same
			} else if same == who {
				d[base+lane] = who
				all.set(base + lane)
			}
		}
	})
	g.writeLanes32(in, in.D, &d)
	if in.D2 >= 0 {
		g.setPredicate(in.D2, all)
	}
}

// writeLanes32 writes the active lanes of a register.
func (g *gang) writeLanes32(in *inst, slot int32, v *[maxWidth]uint32) {
	d := g.r32.partial(g, in, slot)
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			d[lane] = v[lane]
		}
	}
}

// runRedux: d, a, e: mask.
func runRedux(g *gang, in *inst) {
	var d [maxWidth]uint32
	g.eachWarp(func(base int, active uint32) {
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			who := g.named(in, base, active, lane)
			var r uint32
			for first := true; who != 0; who &= who - 1 {
				v := g.r32.lane(in.A, base+bits.TrailingZeros32(who))
				if first {
					r, first = v, false
					continue
				}
				r = combine(in.Mode, r, v)
			}
			d[base+lane] = r
		}
	})
	g.writeLanes32(in, in.D, &d)
}

func combine(mode uint8, r, v uint32) uint32 {
	switch mode {
	case program.ReduxAdd:
		return r + v
	case program.ReduxMinSigned:
		return uint32(min(int32(r), int32(v)))
	case program.ReduxMinUnsigned:
		return min(r, v)
	case program.ReduxMaxSigned:
		return uint32(max(int32(r), int32(v)))
	case program.ReduxMaxUnsigned:
		return max(r, v)
	case program.ReduxAnd:
		return r & v
	case program.ReduxOr:
		return r | v
	}
	return r ^ v
}

// runActiveMask: d.
func runActiveMask(g *gang, in *inst) {
	var d [maxWidth]uint32
	g.eachWarp(func(base int, active uint32) {
		for rest := active; rest != 0; rest &= rest - 1 {
			d[base+bits.TrailingZeros32(rest)] = active
		}
	})
	g.writeLanes32(in, in.D, &d)
}

// runElect: d (or -1), d2: predicate, e: mask. The lowest lane is elected.
func runElect(g *gang, in *inst) {
	var d [maxWidth]uint32
	var leader mask
	g.eachWarp(func(base int, active uint32) {
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			first := bits.TrailingZeros32(g.named(in, base, active, lane))
			d[base+lane] = uint32(first)
			if lane == first {
				leader.set(base + lane)
			}
		}
	})
	if in.D >= 0 {
		g.writeLanes32(in, in.D, &d)
	}
	g.setPredicate(in.D2, leader)
}

// runReduxFloat: d, a, e: mask.
func runReduxFloat(g *gang, in *inst) {
	var d [maxWidth]uint32
	g.eachWarp(func(base int, active uint32) {
		for rest := active; rest != 0; rest &= rest - 1 {
			lane := bits.TrailingZeros32(rest)
			r := uint32(quietNaN)
			for who := g.named(in, base, active, lane); who != 0; who &= who - 1 {
				v := g.r32.lane(in.A, base+bits.TrailingZeros32(who))
				if v&^signBit > infinity {
					if in.Mode&program.ReduxNaN != 0 {
						r = quietNaN
						break
					}
					continue
				}
				if in.Mode&program.ReduxAbs != 0 {
					v &^= signBit
				}
				if r == quietNaN || before(v, r) == (in.Mode&program.ReduxMax == program.ReduxMin) {
					r = v
				}
			}
			d[base+lane] = r
		}
	})
	g.writeLanes32(in, in.D, &d)
}

// The bits of an f32.
const (
	signBit  = 1 << 31
	infinity = 0x7f800000
	quietNaN = 0x7fffffff // the NaN that f32 arithmetic returns
)

// before says whether an f32 is smaller than another; -0 is smaller than +0.
// Neither is a NaN.
func before(a, b uint32) bool {
	switch {
	case a&signBit != b&signBit:
		return a&signBit != 0
	case a&signBit != 0:
		return a > b
	}
	return a < b
}
