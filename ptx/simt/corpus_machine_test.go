package simt_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"muster/ptx/simt/shape"
)

// eachWarp runs a function for every warp of a slice.
func eachWarp[T any](in []T, f func(warp []T, first int)) {
	for w := 0; w < len(in); w += 32 {
		f(in[w:w+32], w)
	}
}

// wholeWarps returns a random launch of whole warps and its number of threads.
func (g *gpu) wholeWarps() (extent, int) {
	s := line(g.times(5), g.warps(512))
	return s, int(s.grid.X * s.block.X)
}

// What threads, warps, blocks and state spaces do.
var machine = []entry{
	{"warp", "warp_vote", func(g *gpu) {
		s, n := g.wholeWarps()
		in := g.ints(n, 2+g.rng.Int32N(20))
		var want []uint32
		eachWarp(in, func(warp []int32, _ int) {
			var positive uint32
			for l, v := range warp {
				positive |= b2u(v > 0) << l
			}
			some, all := b2u(slices.Max(warp) > 10), b2u(slices.Min(warp) > -10)
			for l := range warp {
				want = append(want, positive, some, all, uint32(bits.OnesCount32(positive&(1<<l-1))))
			}
		})
		out := alloc[uint32](g, 4*n)
		g.launch(s, "warp_vote", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"warp", "warp_match", func(g *gpu) {
		s, n := g.wholeWarps()
		in := make([]uint32, n)
		eachWarp(in, func(warp []uint32, _ int) {
			kinds := 1 + g.rng.Uint32N(8)
			for l := range warp {
				warp[l] = g.rng.Uint32N(kinds) * 0x10001
			}
		})
		var want []uint32
		eachWarp(in, func(warp []uint32, _ int) {
			for _, v := range warp {
				var mask uint32
				for l, w := range warp {
					mask |= b2u(v == w) << l
				}
				all := b2u(mask == ^uint32(0))
				want = append(want, mask, -all, all)
			}
		})
		out := alloc[uint32](g, 3*n)
		g.launch(s, "warp_match", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"warp", "warp_shuffle", func(g *gpu) {
		s, n := g.wholeWarps()
		in := random(n, func() int32 { return int32(g.rng.Uint32()) })
		var want []int32
		eachWarp(in, func(v []int32, _ int) {
			for l, own := range v {
				pick := func(from int, inside bool) int32 {
					if inside {
						return v[from]
					}
					return own
				}
				want = append(want, v[own&31], pick(l-3, l >= 3), pick(l+5, l+5 <= 31), v[l^9],
					v[l&^7+int(own&7)], pick(l-1, l%8 >= 1), pick(l+2, l%16+2 < 16), v[l^2])
			}
		})
		out := alloc[int32](g, 8*n)
		g.launch(s, "warp_shuffle", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"warp", "warp_shuffle_predicate", func(g *gpu) {
		s, n := g.wholeWarps()
		in := g.ints(n, 1000)
		var want []int32
		eachWarp(in, func(v []int32, _ int) {
			for l := range v {
				if l+7 <= 31 {
					want = append(want, v[l+7], 1)
				} else {
					want = append(want, v[l], 0)
				}
			}
		})
		out := alloc[int32](g, 2*n)
		g.launch(s, "warp_shuffle_predicate", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"warp", "warp_divergent", func(g *gpu) {
		s, n := g.wholeWarps()
		in := g.ints(n, 1000)
		var want []int32
		eachWarp(in, func(v []int32, _ int) {
			var masks [2]uint32
			var sums [2]int32
			for l, x := range v {
				masks[x&1] |= 1 << l
				sums[x&1] += x
			}
			for _, x := range v {
				want = append(want, int32(masks[x&1]), sums[x&1])
			}
		})
		out := alloc[int32](g, 2*n)
		g.launch(s, "warp_divergent", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"warp", "warp_compact", func(g *gpu) {
		s, n := g.wholeWarps()
		in := g.ints(n, 5)
		out, counts := alloc[int32](g, n), alloc[int32](g, n/32)
		want, wantCounts := read(g, out), make([]int32, 0, n/32)
		eachWarp(in, func(v []int32, first int) {
			kept := slices.DeleteFunc(slices.Clone(v), func(x int32) bool { return x <= 0 })
			copy(want[first:], kept)
			wantCounts = append(wantCounts, int32(len(kept)))
		})
		g.launch(s, "warp_compact", put(g, in), out, counts)
		same(g, "out", out, want)
		same(g, "counts", counts, wantCounts)
	}},
	{"warp", "warp_aggregate", func(g *gpu) {
		s, n := g.wholeWarps()
		in := g.ints(n, 5)
		want, total := make([]int32, n), int32(17)
		for i, v := range in {
			want[i] = int32(b2u(v > 0))
			total += want[i]
		}
		counter, seen := put(g, []int32{17}), alloc[int32](g, n)
		g.launch(s, "warp_aggregate", put(g, in), counter, seen)
		same(g, "counter", counter, []int32{total})
		same(g, "seen", seen, want)
	}},
	{"warp", "warp_registers", func(g *gpu) {
		s, n := g.wholeWarps()
		var want []uint32
		for i := range n {
			own := uint32(1) << (i % 32)
			want = append(want, uint32(i%32), own, own-1, own|(own-1), ^(own | (own - 1)), ^(own - 1))
		}
		out := alloc[uint32](g, 6*n)
		g.launch(s, "warp_registers", out)
		same(g, "out", out, want)
	}},

	{"atomics", "atomic_signed", func(g *gpu) {
		n := g.size(3000)
		in, start := random(n, func() int32 { return int32(g.rng.Uint32()) }), g.ints(5, 1000)
		want := slices.Clone(start)
		for _, v := range in {
			want = []int32{want[0] + v, want[1] - v, min(want[2], v), max(want[3], v)}
		}
		cells := unordered(g, put(g, start))
		g.launch(g.cover(n), "atomic_signed", put(g, in), cells, n)
		same(g, "c", part(cells, 0, 4), want)
		if last := read(g, cells)[4]; !slices.Contains(in, last) {
			g.Fatalf("c[4] = %d, which nobody put there", last)
		}
	}},
	{"atomics", "atomic_unsigned", func(g *gpu) {
		n := g.size(3000)
		in, start := g.words(n), g.words(6)
		start = append(start, g.rng.Uint32N(12), g.rng.Uint32N(12))
		want := slices.Clone(start)
		for _, v := range in {
			up, down := want[6]+1, want[7]-1
			if want[6] >= 9 {
				up = 0
			}
			if want[7] == 0 || want[7] > 9 {
				down = 9
			}
			want = []uint32{want[0] + v, min(want[1], v), max(want[2], v), want[3] & v, want[4] | v, want[5] ^ v, up, down}
		}
		cells := put(g, start)
		g.launch(g.cover(n), "atomic_unsigned", put(g, in), cells, n)
		same(g, "c", cells, want)
	}},
	{"atomics", "atomic_wide", func(g *gpu) {
		n := g.size(1000)
		in, start := random(n, g.rng.Uint64), random(8, g.rng.Uint64)
		want, signed := slices.Clone(start), []int64{0, 0}
		for _, v := range in {
			want = []uint64{want[0] + v, min(want[1], v), max(want[2], v), want[3] & v, want[4] | v, want[5] ^ v, 0, want[7]*3 + 1}
			signed = []int64{min(signed[0], int64(v)), max(signed[1], int64(v))}
		}
		cells, extremes := unordered(g, put(g, start)), zero[int64](g, 2)
		g.launch(g.cover(n), "atomic_wide", put(g, in), cells, extremes, n)
		want[6] = read(g, cells)[6]
		if !slices.Contains(in, want[6]) {
			g.Fatalf("c[6] = %d, which nobody put there", want[6])
		}
		same(g, "c", cells, want)
		same(g, "s", extremes, signed)
	}},
	{"atomics", "atomic_float", func(g *gpu) {
		n := g.size(1000)
		in, sum, slack := g.floats(n, 0, 100), 0.0, 1.0
		if g.rng.IntN(2) == 0 { // exact
			for i := range in {
				in[i] = float32(g.rng.IntN(100))
			}
			slack = 0
		}
		for _, v := range in {
			sum += float64(v)
		}
		f, d := unordered(g, zero[float32](g, 1)), unordered(g, zero[float64](g, 1))
		top := zero[uint32](g, 1)
		g.launch(g.cover(n), "atomic_float", put(g, in), f, d, top, n)
		near(g, "f", f, []float64{sum}, func(int) float64 { return slack * sum * float64(n) * 0x1p-23 })
		near(g, "d", d, []float64{sum}, func(int) float64 { return slack * sum * float64(n) * 0x1p-52 })
		same(g, "m", top, []uint32{math.Float32bits(slices.Max(in))})
	}},
	{"atomics", "atomic_old_values", func(g *gpu) {
		n := g.size(2000)
		counter, wrap, baton := zero[uint32](g, 1), zero[uint32](g, 1), unordered(g, zero[uint32](g, 1))
		slots, ring, last := unordered(g, alloc[uint32](g, n)), unordered(g, alloc[uint32](g, n)), unordered(g, alloc[uint32](g, n))
		g.launch(g.cover(n), "atomic_old_values", counter, wrap, baton, slots, ring, last, n)
		same(g, "counter", counter, []uint32{uint32(n)})
		same(g, "wrap", wrap, []uint32{uint32(n % 5)})
		permutation(g, "slots", read(g, slots))
		permutation(g, "last and the baton", append(read(g, last), read(g, baton)...))
		var turns [5]int
		for i, r := range read(g, ring) {
			if r > 4 {
				g.Fatalf("ring[%d] = %d, want 0 to 4", i, r)
			}
			turns[r]++
		}
		for r, got := range turns {
			if want := (n + 4 - r) / 5; got != want {
				g.Fatalf("%d came up %d times, want %d", r, got, want)
			}
		}
	}},
	{"atomics", "atomic_scopes", func(g *gpu) {
		n := g.size(3000)
		s := g.cover(n)
		in, total := g.ints(n, 1<<20), int32(0)
		var want []int32
		for b := range int(s.grid.X) {
			row := []int32{0, math.MinInt32, -1, 0}
			for i := b * int(s.block.X); i < min(n, (b+1)*int(s.block.X)); i++ {
				row = []int32{row[0] + in[i], max(row[1], in[i]), row[2] & in[i], row[3] + in[i]}
				total += in[i]
			}
			want = append(want, row...)
		}
		out, sum := zero[int32](g, len(want)), zero[int32](g, 1)
		g.launch(s, "atomic_scopes", put(g, in), out, sum, n)
		same(g, "out", out, want)
		same(g, "total", sum, []int32{total})
	}},
	{"atomics", "atomic_ptx", func(g *gpu) {
		n := g.size(3000)
		in := g.words(n)
		want := []uint32{5, 6, 7, 8}
		for _, v := range in {
			want = []uint32{want[0] + v, max(want[1], v), want[2] + v, want[3] + 1}
		}
		cells := put(g, []uint32{5, 6, 7, 8})
		g.launch(g.cover(n), "atomic_ptx", put(g, in), cells, n)
		same(g, "c", cells, want)
	}},

	{"spinlock", "spinlock_inside", func(g *gpu) { spinlock(g, "spinlock_inside") }},
	{"spinlock", "spinlock_outside", func(g *gpu) { spinlock(g, "spinlock_outside") }},
	{"spinlock", "ticket_lock", func(g *gpu) {
		s := line(g.times(3), 1+g.rng.IntN(70))
		s.cooperative = true
		n := s.grid.X * s.block.X
		next, serving, order := zero[uint32](g, 1), zero[uint32](g, 1), unordered(g, alloc[uint32](g, int(n)))
		g.launch(s, "ticket_lock", next, serving, order)
		same(g, "next", next, []uint32{n})
		same(g, "serving", serving, []uint32{n})
		permutation(g, "order", read(g, order))
	}},
	{"spinlock", "flag_handover", func(g *gpu) {
		s := line(2, g.block(1024))
		s.cooperative = true
		var wantData, wantOut []int32
		for t := range int32(s.block.X) {
			wantData, wantOut = append(wantData, 3*t+1), append(wantOut, 3*t+2)
		}
		data, flag, out := alloc[int32](g, len(wantData)), zero[int32](g, 1), alloc[int32](g, len(wantOut))
		g.launch(s, "flag_handover", data, flag, out)
		same(g, "data", data, wantData)
		same(g, "flag", flag, []int32{1})
		same(g, "out", out, wantOut)
	}},

	{"memory", "local_walk", func(g *gpu) {
		n := g.size(2000)
		start, want := random(n, func() int32 { return int32(g.rng.Uint32()) }), make([]int32, n)
		for i := range want {
			path := func(k int) int { return (k*7 + i) % 32 }
			p := int(start[i] & 31)
			for range 4 {
				p = path(p)
			}
			want[i] = int32(p + 100*(path(0)+path(31)))
		}
		out := alloc[int32](g, n)
		g.launch(g.cover(n), "local_walk", put(g, start), out, n)
		same(g, "out", out, want)
	}},
	{"memory", "constant_lookup", func(g *gpu) {
		n := g.size(2000)
		in, want := g.ints(n, 1000), make([]int32, n)
		for i := range want {
			k := in[i] & 15
			want[i] = k*k + []int32{-3, 5, -7, 11}[i&3]
		}
		out, times := alloc[int32](g, n), g.times(3)
		for range times {
			g.launch(g.cover(n), "constant_lookup", put(g, in), out, n)
		}
		same(g, "out", out, want)
		same(g, "launches", variable[uint32](g, "launches"), []uint32{uint32(times)})
	}},
	{"memory", "constant_polynomial", func(g *gpu) {
		n := g.size(2000)
		x, c := g.floats(n, -2, 2), g.floats(4, -2, 2)
		zeros, want := make([]float32, n), make([]float32, n)
		for i := range want {
			zeros[i] = fma32(0, x[i], 0)
			want[i] = fma32(fma32(fma32(c[3], x[i], c[2]), x[i], c[1]), x[i], c[0])
		}
		in, out := put(g, x), alloc[float32](g, n)
		g.launch(g.cover(n), "constant_polynomial", in, out, n)
		same(g, "out before the coefficients are written", out, zeros)
		write(g, variable[float32](g, "coefficients"), c)
		g.launch(g.cover(n), "constant_polynomial", in, out, n)
		same(g, "out", out, want)
	}},
	{"memory", "narrow_types", func(g *gpu) {
		n := g.size(2000)
		in8 := random(n, func() uint8 { return uint8(g.rng.Uint32()) })
		in16 := random(n, func() int16 { return int16(g.rng.Uint32()) })
		want8, want16, want32 := make([]uint8, n), make([]int16, n), make([]int32, n)
		for i := range n {
			want8[i] = in8[i] + 1
			want16[i] = int16(int8(in8[i])) * 3
			want32[i] = int32(in16[i]>>1) + int32(b2u(in8[i] < 128))
		}
		out8, out16, out32 := alloc[uint8](g, n), alloc[int16](g, n), alloc[int32](g, n)
		g.launch(g.cover(n), "narrow_types", put(g, in8), put(g, in16), out8, out16, out32, n)
		same(g, "out8", out8, want8)
		same(g, "out16", out16, want16)
		same(g, "out32", out32, want32)
	}},
	{"memory", "switch_dense", func(g *gpu) {
		n := g.size(2000)
		op, a, b := random(n, func() uint32 { return g.rng.Uint32N(12) }), g.words(n), g.words(n)
		op[0] = 1 << 31
		want := make([]uint32, n)
		for i := range want {
			x, y := a[i], b[i]
			results := []uint32{x + y, x - y, x * y, x & y, x | y, x ^ y, x << (y & 31), x >> (y & 31), min(x, y), max(x, y), ^x}
			want[i] = results[min(op[i], 10)]
		}
		out := alloc[uint32](g, n)
		g.launch(g.cover(n), "switch_dense", put(g, op), put(g, a), put(g, b), out, n)
		same(g, "out", out, want)
	}},
	{"memory", "switch_machine", func(g *gpu) {
		n := g.size(2000)
		program, start := g.words(n), g.words(n)
		want := slices.Clone(start)
		for i, p := range program {
			v := uint32(1)
		steps:
			for k := range 8 {
				switch p >> (4 * k) & 15 {
				case 0:
					v++
				case 1:
					v *= 3
				case 2:
					v -= 7
				case 3:
					v ^= uint32(i)
				case 4:
					v = -v
				case 5:
					want[i] += v
				case 6:
					break steps
				case 7:
					v <<= 2
				}
			}
			want[i] ^= v
		}
		out := put(g, start)
		g.launch(g.cover(n), "switch_machine", put(g, program), out, n)
		same(g, "out", out, want)
	}},
	{"memory", "dynamic_reverse", func(g *gpu) {
		s := line(g.times(5), g.block(1024))
		s.shared = int(4 * s.block.X)
		block := int(s.block.X)
		data := random(block*int(s.grid.X), func() int32 { return int32(g.rng.Uint32()) })
		out := put(g, data)
		for b := 0; b < len(data); b += block {
			slices.Reverse(data[b : b+block])
		}
		g.launch(s, "dynamic_reverse", out)
		same(g, "data", out, data)
	}},
	{"memory", "grid_3d", func(g *gpu) {
		side := func(limit uint32) uint32 { return 1 + g.rng.Uint32N(limit) }
		s := extent{grid: shape.Dim{X: side(4), Y: side(3), Z: side(3)}, block: shape.Dim{X: side(9), Y: side(6), Z: side(5)}}
		var want []int32
		for b := range uint32(s.grid.Count()) {
			for t := range uint32(s.block.Count()) {
				for _, v := range []uint32{
					t % s.block.X, t / s.block.X % s.block.Y, t / s.block.X / s.block.Y,
					b % s.grid.X, b / s.grid.X % s.grid.Y, b / s.grid.X / s.grid.Y,
					uint32(s.block.Count()), uint32(s.grid.Count()),
				} {
					want = append(want, int32(v))
				}
			}
		}
		out := alloc[int32](g, len(want))
		g.launch(s, "grid_3d", out)
		same(g, "out", out, want)
	}},
	{"memory", "struct_parameter", func(g *gpu) {
		count, kind, scale := g.size(2000), int8(g.small(100)), g.rng.NormFloat64()
		shift, tail := g.floats(3, -5, 5), [2]int16{int16(g.small(1000)), int16(g.small(1000))}
		job := make([]byte, 32)
		job[0] = byte(kind)
		binary.LittleEndian.PutUint32(job[4:], uint32(count))
		binary.LittleEndian.PutUint64(job[8:], math.Float64bits(scale))
		for k, f := range shift {
			binary.LittleEndian.PutUint32(job[16+4*k:], math.Float32bits(f))
		}
		for k, v := range tail {
			binary.LittleEndian.PutUint16(job[28+2*k:], uint16(v))
		}
		want := make([]float64, count)
		for i := range want {
			sum := float64(scale * float64(i))
			for _, f := range shift {
				sum += float64(f)
			}
			sum += float64(kind)
			want[i] = sum + float64(tail[i&1])
		}
		out := alloc[float64](g, count)
		g.launch(g.stride(), "struct_parameter", job, out)
		same(g, "out", out, want)
	}},
	{"memory", "generic_pointer", func(g *gpu) {
		n := g.size(2000)
		in, want := g.ints(n, 1000), make([]int32, n)
		devIn, out := put(g, in), alloc[int32](g, n)
		for i := range in {
			want[i] = in[i] + int32(1000*(i%3))
			in[i] += int32(b2u(i%3 == 0))
		}
		block := g.block(256)
		g.launch(line(ceil(n, block), block), "generic_pointer", devIn, out, n)
		same(g, "in", devIn, in)
		same(g, "out", out, want)
	}},
	{"memory", "barrier_reduce", func(g *gpu) {
		s := line(g.times(6), g.warps(1024))
		block := int(s.block.X)
		in := g.ints(block*int(s.grid.X), 10)
		in[0] = 1
		for i := range in[:block] { // the first block all, the last none
			in[i] = in[i]*in[i] + 1
			if s.grid.X > 1 {
				in[len(in)-1-i] = 0
			}
		}
		var want []int32
		for b := 0; b < len(in); b += block {
			var count int32
			for _, v := range in[b : b+block] {
				count += int32(b2u(v > 0))
			}
			want = append(want, count, int32(b2u(int(count) == block)), int32(b2u(count > 0)))
		}
		out := alloc[int32](g, len(want))
		g.launch(s, "barrier_reduce", put(g, in), out)
		same(g, "out", out, want)
	}},

	{"recursion", "recursion_ackermann", func(g *gpu) {
		n := g.size(300)
		m, k, want := make([]int32, n), make([]int32, n), make([]int32, n)
		for i := range want {
			m[i], k[i] = g.rng.Int32N(3), g.rng.Int32N(9)
			want[i] = []int32{k[i] + 1, k[i] + 2, 2*k[i] + 3}[m[i]] // known in closed form
		}
		out := alloc[int32](g, n)
		g.launch(g.cover(n), "recursion_ackermann", put(g, m), put(g, k), out, n)
		same(g, "out", out, want)
	}},
	{"recursion", "recursion_fibonacci", func(g *gpu) {
		n := g.size(300)
		want := make([]uint32, n)
		for i := range want {
			a, b := uint32(0), uint32(1)
			for range i % 16 {
				a, b = b, a+b
			}
			want[i] = a
		}
		out := alloc[uint32](g, n)
		g.launch(g.cover(n), "recursion_fibonacci", out, n)
		same(g, "out", out, want)
	}},
	{"recursion", "recursion_mutual", func(g *gpu) {
		n := g.size(200)
		female, male := []int32{1}, []int32{0}
		for k := int32(1); k < 12; k++ {
			male = append(male, k-female[male[k-1]])
			female = append(female, k-male[female[k-1]])
		}
		var want []int32
		for i := range n {
			want = append(want, female[i%12], male[i%12])
		}
		out := alloc[int32](g, 2*n)
		g.launch(g.cover(n), "recursion_mutual", out, n)
		same(g, "out", out, want)
	}},
	{"recursion", "recursion_quicksort", func(g *gpu) {
		s, length := line(g.times(3), 1+g.rng.IntN(100)), 1+g.rng.IntN(32)
		data := g.ints(length*int(s.grid.X*s.block.X), 30)
		out := put(g, data)
		for run := range slices.Chunk(data, length) {
			slices.Sort(run)
		}
		g.launch(s, "recursion_quicksort", out, length)
		same(g, "data", out, data)
	}},
	{"recursion", "recursion_struct", func(g *gpu) {
		s, length := line(g.times(3), 1+g.rng.IntN(100)), 1+g.rng.IntN(32)
		data := random(length*int(s.grid.X*s.block.X), func() int32 { return int32(g.rng.Uint32()) })
		var want []int64
		for run := range slices.Chunk(data, length) {
			var sum int64
			for _, v := range run {
				sum += int64(v)
			}
			want = append(want, sum)
		}
		out := alloc[int64](g, len(want))
		g.launch(s, "recursion_struct", put(g, data), out, length)
		same(g, "out", out, want)
	}},

	{"indirect", "indirect_table", func(g *gpu) {
		n := g.size(2000)
		code, a, b := g.ints(n, 1000), g.ints(n, 1<<30), g.ints(n, 1<<30)
		want := make([]int32, n)
		for i := range want {
			want[i] = operation(int(code[i]&3), a[i], b[i])
		}
		out := alloc[int32](g, n)
		g.launch(g.cover(n), "indirect_table", put(g, code), put(g, a), put(g, b), out, n)
		same(g, "out", out, want)
	}},
	{"indirect", "indirect_handles indirect_pointer", func(g *gpu) {
		n := g.size(2000)
		a, want := g.ints(n, 1<<30), make([]int32, n)
		handles, in, out := alloc[uint64](g, 4), put(g, a), alloc[int32](g, n)
		g.launch(line(1, 1), "indirect_handles", handles)
		for code, handle := range read(g, handles) {
			for i := range want {
				want[i] = operation(code, a[i], int32(i))
			}
			g.launch(g.cover(n), "indirect_pointer", handle, in, out, n)
			same(g, fmt.Sprintf("out by operation %d", code), out, want)
		}
	}},
	{"indirect", "indirect_virtual", func(g *gpu) {
		n := g.size(2000)
		size, want := g.floats(n, -10, 10), make([]float32, n)
		for i, s := range size {
			want[i] = s * 0.5
			if i%2 == 0 {
				want[i] = s * s
			}
		}
		out := alloc[float32](g, n)
		g.launch(g.cover(n), "indirect_virtual", put(g, size), out, n)
		same(g, "out", out, want)
	}},

	{"print", "print_lines", func(g *gpu) {
		n := g.size(100)
		in, want := g.ints(n, 800_000_000), make([]string, n)
		for i, v := range in {
			parity := "even"
			if v%2 != 0 {
				parity = "odd"
			}
			want[i] = fmt.Sprintf("thread %d: %d %.3f %s%%\n", i, int64(v)*10_000_000_000, float64(v)/8, parity)
		}
		out := alloc[int32](g, n)
		g.launch(g.cover(n), "print_lines", put(g, in), out, n)
		same(g, "out", out, slices.Repeat([]int32{4}, n))
		got := slices.Sorted(slices.Values(g.printed))
		slices.Sort(want)
		if !slices.Equal(got, want) {
			g.Fatalf("printed %q, want %q in any order", got, want)
		}
	}},
	{"print", "print_plain", func(g *gpu) {
		g.launch(g.stride(), "print_plain")
		if !slices.Equal(g.printed, []string{"ready\n"}) {
			g.Fatalf("printed %q, want one line", g.printed)
		}
	}},
	{"print", "trap_negative", func(g *gpu) {
		n := g.size(2000)
		in, want := random(n, func() int32 { return g.rng.Int32N(1 << 30) }), make([]int32, n)
		for i, v := range in {
			want[i] = v + 1
		}
		out := alloc[int32](g, n)
		g.launch(g.cover(n), "trap_negative", put(g, in), out, n)
		same(g, "out", out, want)
	}},
}

// spinlock counts threads behind a lock.
func spinlock(g *gpu, kernel string) {
	s := line(g.times(4), g.size(16*g.times(8)))
	n := uint64(s.grid.X * s.block.X)
	lock, counter, sum := zero[int32](g, 1), put(g, []int32{1000}), put(g, []uint64{7})
	g.launch(s, kernel, lock, counter, sum)
	same(g, "lock", lock, []int32{0})
	same(g, "counter", counter, []int32{1000 + int32(n)})
	same(g, "sum", sum, []uint64{7 + n*(n-1)/2})
}

// operation is what the table of indirect.cu holds.
func operation(code int, a, b int32) int32 {
	return []int32{a + b, a - b, a * b, a ^ b}[code]
}
