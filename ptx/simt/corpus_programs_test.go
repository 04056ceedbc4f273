package simt_test

import (
	"math"
	"slices"
)

// ceil returns how many pieces of a size cover n.
func ceil(n, size int) int { return (n + size - 1) / size }

// treeSum adds a power of two of values as blocks do: v[t] += v[t+h] for
// t < h, h halving.
func treeSum[T float32 | float64](values []T) T {
	v := slices.Clone(values)
	for h := len(v) / 2; h > 0; h /= 2 {
		for t := range h {
			v[t] += v[t+h]
		}
	}
	return v[0]
}

// Whole programs: what people run GPUs for.
var programs = []entry{
	{"vecadd", "vecadd", func(g *gpu) {
		n := g.size(20000)
		a, b := g.floats(n, -1e3, 1e3), g.floats(n, -1e3, 1e3)
		want := make([]float32, n)
		for i := range want {
			want[i] = a[i] + b[i]
		}
		c := alloc[float32](g, n)
		g.launch(g.cover(n), "vecadd", put(g, a), put(g, b), c, n)
		same(g, "c", c, want)
	}},
	{"vecadd", "vecadd4", func(g *gpu) {
		n := g.size(4000)
		a, b := g.floats(4*n, -1e3, 1e3), g.floats(4*n, -1e3, 1e3)
		want := make([]float32, 4*n)
		for i := range want {
			want[i] = a[i] + b[i]
		}
		c := alloc[float32](g, 4*n)
		g.launch(g.cover(n), "vecadd4", put(g, a), put(g, b), c, n)
		same(g, "c", c, want)
	}},
	{"vecadd", "saxpy", func(g *gpu) {
		n := g.size(10000)
		x, y, alpha := g.floats(n, -10, 10), g.floats(n, -10, 10), g.between(-3, 3)
		want := make([]float32, n)
		for i := range want {
			want[i] = fma32(alpha, x[i], y[i])
		}
		out := put(g, y)
		g.launch(g.stride(), "saxpy", n, alpha, put(g, x), out)
		same(g, "y", out, want)
	}},
	{"matmul", "matmul_tiled", func(g *gpu) {
		m, n, k := 1+g.rng.IntN(48), 1+g.rng.IntN(48), 1+g.rng.IntN(48)
		a, b := g.floats(m*k, -2, 2), g.floats(k*n, -2, 2)
		c := alloc[float32](g, m*n)
		g.launch(plane(ceil(n, 16), ceil(m, 16), 16, 16), "matmul_tiled", put(g, a), put(g, b), c, m, n, k)
		same(g, "c", c, product(a, b, m, n, k))
	}},
	{"matmul", "matmul_naive", func(g *gpu) {
		m, n, k := 1+g.rng.IntN(48), 1+g.rng.IntN(48), 1+g.rng.IntN(48)
		a, b := g.floats(m*k, -2, 2), g.floats(k*n, -2, 2)
		c := alloc[float32](g, m*n)
		width, height := 1+g.rng.IntN(32), 1+g.rng.IntN(32)
		g.launch(plane(ceil(n, width), ceil(m, height), width, height), "matmul_naive", put(g, a), put(g, b), c, m, n, k)
		same(g, "c", c, product(a, b, m, n, k))
	}},
	{"transpose", "transpose_tiled", func(g *gpu) {
		rows, cols := g.size(100), g.size(100)
		in := g.floats(rows*cols, -1, 1)
		out := alloc[float32](g, rows*cols)
		g.launch(plane(ceil(cols, 32), ceil(rows, 32), 32, 8), "transpose_tiled", put(g, in), out, rows, cols)
		same(g, "out", out, transposed(in, rows, cols))
	}},
	{"transpose", "transpose_naive", func(g *gpu) {
		rows, cols := g.size(80), g.size(80)
		in := random(rows*cols, g.rng.NormFloat64)
		out := alloc[float64](g, rows*cols)
		width, height := 1+g.rng.IntN(32), 1+g.rng.IntN(32)
		g.launch(plane(ceil(cols, width), ceil(rows, height), width, height), "transpose_naive", put(g, in), out, rows, cols)
		same(g, "out", out, transposed(in, rows, cols))
	}},
	{"reduce", "reduce_shared", func(g *gpu) {
		n := g.size(4000)
		in := g.floats(n, -1, 1)
		blocks := ceil(n, 256)
		padded := append(slices.Clone(in), make([]float32, blocks*256-n)...)
		want := make([]float32, blocks)
		for b := range want {
			want[b] = treeSum(padded[256*b : 256*b+256])
		}
		out := alloc[float32](g, blocks)
		g.launch(line(blocks, 256), "reduce_shared", put(g, in), out, n)
		same(g, "out", out, want)
	}},
	{"reduce", "reduce_shuffle", func(g *gpu) {
		n := g.size(8000)
		in := g.floats(n, -1, 1)
		s := line(g.times(4), g.warps(1024))
		block, threads := int(s.block.X), int(s.block.X*s.grid.X)
		want := make([]float32, s.grid.X)
		for b := range want {
			var warps [32]float32
			for w := range block / 32 {
				var lanes [32]float32
				for l := range lanes {
					for i := b*block + 32*w + l; i < n; i += threads {
						lanes[l] += in[i]
					}
				}
				warps[w] = shuffleSum(lanes)
			}
			want[b] = shuffleSum(warps)
		}
		out := alloc[float32](g, len(want))
		g.launch(s, "reduce_shuffle", put(g, in), out, n)
		same(g, "out", out, want)
	}},
	{"reduce", "reduce_volatile", func(g *gpu) {
		n := g.size(4000)
		in := g.floats(n, -1, 1)
		blocks := ceil(n, 512)
		padded := append(slices.Clone(in), make([]float32, blocks*512-n)...)
		want := make([]float32, blocks)
		for b := range want {
			var s [256]float32
			for t := range s {
				s[t] = padded[512*b+t] + padded[512*b+256+t]
			}
			want[b] = treeSum(s[:])
		}
		out := alloc[float32](g, blocks)
		g.launch(line(blocks, 256), "reduce_volatile", put(g, in), out, n)
		same(g, "out", out, want)
	}},
	{"scan", "scan_blelloch scan_offsets", func(g *gpu) {
		block := 1 << g.rng.IntN(10)
		segment := 2 * block
		n := min(g.size(6000), 40*segment)
		in := g.words(n)
		segments := ceil(n, segment)
		within, sums, whole := make([]uint32, n), make([]uint32, segments), make([]uint32, n)
		for i := range n {
			if i%segment != 0 {
				within[i] = within[i-1] + in[i-1]
			}
			if i != 0 {
				whole[i] = whole[i-1] + in[i-1]
			}
			sums[i/segment] += in[i]
		}
		offsets := make([]uint32, segments)
		for b := range segments - 1 {
			offsets[b+1] = offsets[b] + sums[b]
		}
		out, outSums := alloc[uint32](g, n), alloc[uint32](g, segments)
		s := line(segments, block)
		s.shared = 8 * block
		g.launch(s, "scan_blelloch", put(g, in), out, outSums, n)
		same(g, "out", out, within)
		same(g, "sums", outSums, sums)
		g.launch(g.cover(n), "scan_offsets", out, put(g, offsets), segment, n)
		same(g, "data", out, whole)
	}},
	{"scan", "scan_warp", func(g *gpu) {
		s := line(g.times(4), g.warps(1024))
		in := g.words(int(s.grid.X * s.block.X))
		want := slices.Clone(in)
		for i := range want {
			if i%32 != 0 {
				want[i] += want[i-1]
			}
		}
		out := alloc[uint32](g, len(in))
		g.launch(s, "scan_warp", put(g, in), out)
		same(g, "out", out, want)
	}},
	{"histogram", "histogram_global", func(g *gpu) {
		n := g.size(10000)
		data := random(n, func() uint8 { return uint8(g.rng.IntN(1 + g.rng.IntN(256))) })
		start := g.words(256)
		counts := put(g, start)
		g.launch(g.stride(), "histogram_global", put(g, data), counts, n)
		same(g, "counts", counts, histogram(start, data))
	}},
	{"histogram", "histogram_shared", func(g *gpu) {
		n := g.size(3000)
		words := g.words(n)
		var data []uint8
		for _, w := range words {
			data = append(data, uint8(w), uint8(w>>8), uint8(w>>16), uint8(w>>24))
		}
		start := g.words(256)
		counts := put(g, start)
		g.launch(g.stride(), "histogram_shared", put(g, words), counts, n)
		same(g, "counts", counts, histogram(start, data))
	}},
	{"bitonic", "bitonic_segments", func(g *gpu) {
		segments := g.times(6)
		data := g.words(512 * segments)
		want := slices.Clone(data)
		for s := range segments {
			part := want[512*s : 512*s+512]
			slices.Sort(part)
			if s%2 == 1 {
				slices.Reverse(part)
			}
		}
		out := put(g, data)
		g.launch(line(segments, 256), "bitonic_segments", out)
		same(g, "data", out, want)
	}},
	{"bitonic", "bitonic_step", func(g *gpu) {
		n := 1 << (1 + g.rng.IntN(9))
		data := random(n, func() uint32 { return g.rng.Uint32N(1000) })
		out := put(g, data)
		block := 1 << g.rng.IntN(8)
		s := line(ceil(n, min(n, block)), min(n, block))
		for size := 2; size <= n; size *= 2 {
			for stride := size / 2; stride > 0; stride /= 2 {
				g.launch(s, "bitonic_step", out, stride, size)
			}
		}
		slices.Sort(data)
		same(g, "data", out, data)
	}},
	{"bitonic", "bitonic_segments bitonic_step", func(g *gpu) {
		n := 1024 << g.rng.IntN(2)
		data := g.words(n)
		out := put(g, data)
		g.launch(line(n/512, 256), "bitonic_segments", out)
		for size := 1024; size <= n; size *= 2 {
			for stride := size / 2; stride > 0; stride /= 2 {
				g.launch(line(n/128, 128), "bitonic_step", out, stride, size)
			}
		}
		slices.Sort(data)
		same(g, "data", out, data)
	}},
	{"blackscholes", "black_scholes", func(g *gpu) {
		n := g.size(3000)
		price, strike, years := g.floats(n, 5, 100), g.floats(n, 5, 100), g.floats(n, 0.1, 10)
		r, v := g.between(0.005, 0.05), g.between(0.1, 0.5)
		call, puts := make([]float64, n), make([]float64, n)
		for i := range n {
			call[i], puts[i] = blackScholes(float64(price[i]), float64(strike[i]), float64(years[i]), float64(r), float64(v))
		}
		outCall, outPut := alloc[float32](g, n), alloc[float32](g, n)
		g.launch(g.stride(), "black_scholes", put(g, price), put(g, strike), put(g, years), outCall, outPut, r, v, n)
		within := func(i int) float64 { return 1e-4 * float64(price[i]+strike[i]) }
		near(g, "call", outCall, call, within)
		near(g, "put", outPut, puts, within)
	}},
	{"nbody", "nbody_accelerate nbody_move", nbody},
	{"needleman", "needleman_diagonal", func(g *gpu) {
		tiles := g.times(4)
		width, penalty := 16*tiles+1, g.rng.IntN(12)
		score, similarity := g.ints(width*width, 50), g.ints(width*width, 10)
		out := put(g, score)
		gain := put(g, similarity)
		for diagonal := range 2*tiles - 1 {
			first := max(0, diagonal-tiles+1)
			blocks := min(diagonal, tiles-1) - first + 1
			g.launch(line(blocks, 16), "needleman_diagonal", out, gain, width, penalty, diagonal, first)
		}
		for i := 1; i < width; i++ {
			for j := 1; j < width; j++ {
				at := i*width + j
				score[at] = max(score[at-width-1]+similarity[at], score[at-1]-int32(penalty), score[at-width]-int32(penalty))
			}
		}
		same(g, "score", out, score)
	}},
	{"hotspot", "hotspot_step", func(g *gpu) {
		h := newHotspot(g)
		out := alloc[float32](g, h.rows*h.cols)
		g.launch(plane(ceil(h.cols, 16), ceil(h.rows, 16), 16, 16), "hotspot_step",
			put(g, h.temp), put(g, h.power), out, h.rows, h.cols, h.k, h.rx, h.ry, h.rz, h.ambient)
		same(g, "out", out, h.step(h.temp))
	}},
	{"hotspot", "hotspot_pyramid", func(g *gpu) {
		h := newHotspot(g)
		steps := 1 + g.rng.IntN(5)
		width := 16 - 2*steps
		out := alloc[float32](g, h.rows*h.cols)
		g.launch(plane(ceil(h.cols, width), ceil(h.rows, width), 16, 16), "hotspot_pyramid",
			put(g, h.temp), put(g, h.power), out, h.rows, h.cols, steps, h.k, h.rx, h.ry, h.rz, h.ambient)
		want := h.temp
		for range steps {
			want = h.step(want)
		}
		same(g, "out", out, want)
	}},
	{"himeno", "himeno_jacobi", himeno},
	{"backprop", "layer_partial layer_squash layer_delta adjust_weights", backprop},
	{"bfs", "bfs_expand bfs_commit", func(g *gpu) {
		gr := newGraph(g)
		frontier, next, visited := make([]uint8, gr.nodes), make([]uint8, gr.nodes), make([]uint8, gr.nodes)
		frontier[0], visited[0] = 1, 1
		cost := slices.Repeat([]int32{-1}, gr.nodes)
		cost[0] = 0
		start, edges := put(g, gr.start), put(g, gr.edges)
		devFrontier, devNext, devVisited, devCost := put(g, frontier), put(g, next), put(g, visited), put(g, cost)
		more := zero[int32](g, 1)
		for level := 0; ; level++ {
			if level > gr.nodes {
				g.Fatalf("the search has not ended after %d levels", level)
			}
			write(g, more, []int32{0})
			g.launch(g.cover(gr.nodes), "bfs_expand", start, edges, devFrontier, devNext, devVisited, devCost, gr.nodes)
			g.launch(g.cover(gr.nodes), "bfs_commit", devFrontier, devNext, devVisited, more, gr.nodes)
			if read(g, more)[0] == 0 {
				break
			}
		}
		want := gr.levels()
		same(g, "cost", devCost, want)
		for v, c := range want {
			visited[v] = uint8(min(1, c+1))
		}
		same(g, "visited", devVisited, visited)
		same(g, "frontier", devFrontier, make([]uint8, gr.nodes))
		same(g, "next", devNext, make([]uint8, gr.nodes))
	}},
	{"bfs", "bfs_queue", func(g *gpu) {
		gr := newGraph(g)
		want := gr.levels()
		cost := slices.Repeat([]int32{-1}, gr.nodes)
		cost[0] = 0
		start, edges, devCost := put(g, gr.start), put(g, gr.edges), put(g, cost)
		queue, out := unordered(g, zero[int32](g, gr.nodes)), unordered(g, zero[int32](g, gr.nodes))
		tail := zero[int32](g, 1)
		count := 1
		for level := 0; count > 0; level++ {
			write(g, tail, []int32{0})
			g.launch(g.cover(count), "bfs_queue", start, edges, queue, count, out, tail, devCost, level)
			var reached []int32
			for v, c := range want {
				if int(c) == level+1 {
					reached = append(reached, int32(v))
				}
			}
			count = int(read(g, tail)[0])
			if count != len(reached) {
				g.Fatalf("level %d has %d nodes, want %d", level+1, count, len(reached))
			}
			if got := slices.Sorted(slices.Values(read(g, out)[:count])); !slices.Equal(got, reached) {
				g.Fatalf("level %d is %v, want %v", level+1, got, reached)
			}
			queue, out = out, queue
		}
		same(g, "cost", devCost, want)
	}},
}

// product is the plain triple loop with fma.
func product(a, b []float32, m, n, k int) []float32 {
	c := make([]float32, m*n)
	for row := range m {
		for col := range n {
			for i := range k {
				c[row*n+col] = fma32(a[row*k+i], b[i*n+col], c[row*n+col])
			}
		}
	}
	return c
}

func transposed[T number](in []T, rows, cols int) []T {
	out := make([]T, len(in))
	for y := range rows {
		for x := range cols {
			out[x*rows+y] = in[y*cols+x]
		}
	}
	return out
}

// shuffleSum adds the lanes of a warp by shuffles downwards; a lane whose
// partner would be past the end adds itself.
func shuffleSum(v [32]float32) float32 {
	for h := 16; h > 0; h /= 2 {
		old := v
		for l := range v {
			partner := l + h
			if partner > 31 {
				partner = l
			}
			v[l] = old[l] + old[partner]
		}
	}
	return v[0]
}

func histogram(start []uint32, data []uint8) []uint32 {
	counts := slices.Clone(start)
	for _, d := range data {
		counts[d]++
	}
	return counts
}

// blackScholes is the closed formula, in doubles.
func blackScholes(s, x, t, r, v float64) (call, put float64) {
	normal := func(d float64) float64 { return 0.5 * math.Erfc(-d/math.Sqrt2) }
	spread := v * math.Sqrt(t)
	d1 := (math.Log(s/x) + (r+v*v/2)*t) / spread
	d2 := d1 - spread
	discounted := x * math.Exp(-r*t)
	return s*normal(d1) - discounted*normal(d2), discounted*normal(-d2) - s*normal(-d1)
}

// nbody takes a few steps. Accelerations are compared within a bound and taken
// over from the device; the moves are exact.
func nbody(g *gpu) {
	n := 128 * g.times(2)
	softening, dt := float32(0.01), float32(0.01)
	bodies := make([]float32, 4*n)
	for i := range n {
		copy(bodies[4*i:], append(g.floats(3, -1, 1), g.between(0.1, 1)))
	}
	velocity := g.floats(3*n, -1, 1)
	devBodies, devVelocity, devAccel := put(g, bodies), put(g, velocity), alloc[float32](g, 3*n)
	for range g.times(3) {
		g.launch(line(n/128, 128), "nbody_accelerate", devBodies, devAccel, n, softening)
		want, bound := accelerations(bodies, n, float64(softening))
		near(g, "accel", devAccel, want, func(i int) float64 { return bound[i] })
		accel := read(g, devAccel)
		g.launch(g.cover(n), "nbody_move", devBodies, devVelocity, devAccel, n, dt)
		for i := range 3 * n {
			velocity[i] = fma32(dt, accel[i], velocity[i])
			at := i/3*4 + i%3
			bodies[at] = fma32(dt, velocity[i], bodies[at])
		}
		same(g, "velocity", devVelocity, velocity)
		same(g, "bodies", devBodies, bodies)
	}
}

// accelerations are computed in doubles; the bound is what n fused additions
// and a reciprocal root good to 22.9 bits, cubed, may be off.
func accelerations(bodies []float32, n int, softening float64) (accel, bound []float64) {
	accel, bound = make([]float64, 3*n), make([]float64, 3*n)
	for i := range n {
		for j := range n {
			var d [3]float64
			q := softening
			for k := range d {
				d[k] = float64(bodies[4*j+k] - bodies[4*i+k])
				q += d[k] * d[k]
			}
			s := float64(bodies[4*j+3]) / (q * math.Sqrt(q))
			for k := range d {
				accel[3*i+k] += d[k] * s
				bound[3*i+k] += math.Abs(d[k]*s) * float64(n+16) * 0x1p-23
			}
		}
	}
	return accel, bound
}

// hotspotCase is a chip with its constants.
type hotspotCase struct {
	rows, cols             int
	temp, power            []float32
	k, rx, ry, rz, ambient float32
}

func newHotspot(g *gpu) hotspotCase {
	h := hotspotCase{rows: 1 + g.rng.IntN(50), cols: 1 + g.rng.IntN(50)}
	h.temp, h.power = g.floats(h.rows*h.cols, 300, 350), g.floats(h.rows*h.cols, 0, 2)
	h.k, h.rx, h.ry, h.rz, h.ambient = g.between(0.01, 0.1), g.between(0.1, 1), g.between(0.1, 1), g.between(0.01, 0.1), 320
	return h
}

// step returns the temperatures a time step later.
func (h hotspotCase) step(temp []float32) []float32 {
	out := make([]float32, len(temp))
	for row := range h.rows {
		for col := range h.cols {
			at := func(r, c int) float32 {
				return temp[min(max(r, 0), h.rows-1)*h.cols+min(max(c, 0), h.cols-1)]
			}
			c := at(row, col)
			twice := float32(2 * c)
			sum := h.power[row*h.cols+col]
			sum = fma32(float32(at(row-1, col)+at(row+1, col))-twice, h.ry, sum)
			sum = fma32(float32(at(row, col+1)+at(row, col-1))-twice, h.rx, sum)
			sum = fma32(h.ambient-c, h.rz, sum)
			out[row*h.cols+col] = fma32(h.k, sum, c)
		}
	}
	return out
}

// himeno takes a few Jacobi steps, each from the other's result.
func himeno(g *gpu) {
	nx, ny, nz := 1+g.rng.IntN(10), 1+g.rng.IntN(10), 1+g.rng.IntN(14)
	cells := nx * ny * nz
	a, b, c := g.floats(4*cells, 0, 1), g.floats(3*cells, 0, 0.1), g.floats(3*cells, 0, 1)
	p, wrk1, bnd := g.floats(cells, 0, 1), g.floats(cells, 0, 0.1), g.floats(cells, 0, 1)
	omega := float32(0.8)
	blocks := ceil(cells, 128)
	devA, devB, devC, devWrk, devBnd := put(g, a), put(g, b), put(g, c), put(g, wrk1), put(g, bnd)
	now, next, residual := put(g, p), put(g, p), alloc[float32](g, blocks)
	for range g.times(4) {
		g.launch(line(blocks, 128), "himeno_jacobi", devA, devB, devC, now, devWrk, devBnd, next, residual, nx, ny, nz, omega)
		want, squared := slices.Clone(p), make([]float32, 128*blocks)
		for at := range cells {
			i, j, k := at/(ny*nz), at/nz%ny, at%nz
			if i == 0 || i >= nx-1 || j == 0 || j >= ny-1 || k == 0 || k >= nz-1 {
				continue
			}
			q := func(di, dj, dk int) float32 { return p[at+(di*ny+dj)*nz+dk] }
			s0 := a[at] * q(1, 0, 0)
			s0 = fma32(a[cells+at], q(0, 1, 0), s0)
			s0 = fma32(a[2*cells+at], q(0, 0, 1), s0)
			s0 = fma32(b[at], q(1, 1, 0)-q(1, -1, 0)-q(-1, 1, 0)+q(-1, -1, 0), s0)
			s0 = fma32(b[cells+at], q(0, 1, 1)-q(0, -1, 1)-q(0, 1, -1)+q(0, -1, -1), s0)
			s0 = fma32(b[2*cells+at], q(1, 0, 1)-q(-1, 0, 1)-q(1, 0, -1)+q(-1, 0, -1), s0)
			s0 = fma32(c[at], q(-1, 0, 0), s0)
			s0 = fma32(c[cells+at], q(0, -1, 0), s0)
			s0 = fma32(c[2*cells+at], q(0, 0, -1), s0)
			s0 += wrk1[at]
			ss := fma32(s0, a[3*cells+at], -q(0, 0, 0)) * bnd[at]
			want[at] = fma32(omega, ss, q(0, 0, 0))
			squared[at] = ss * ss
		}
		sums := make([]float32, blocks)
		for block := range sums {
			sums[block] = treeSum(squared[128*block : 128*block+128])
		}
		same(g, "next", next, want)
		same(g, "residual", residual, sums)
		p = want
		now, next = next, now
	}
}

// backprop runs one layer forward and back. The squashed values are compared
// within a bound and taken over from the device; the rest is exact but for the
// sum of errors.
func backprop(g *gpu) {
	inputs, hidden := 16*g.times(4), 16*g.times(4)
	tiles := inputs / 16
	in, weights, last := g.floats(inputs, -1, 1), g.floats(inputs*hidden, -1, 1), g.floats(inputs*hidden, -0.1, 0.1)
	bias, target := g.floats(hidden, -1, 1), g.floats(hidden, 0, 1)
	rate, momentum := float32(0.3), float32(0.7)
	devIn, devWeights, devLast := put(g, in), put(g, weights), put(g, last)
	partial, out, delta := alloc[float32](g, tiles*hidden), alloc[float32](g, hidden), alloc[float32](g, hidden)
	failure := unordered(g, zero[float32](g, 1))
	square := plane(hidden/16, tiles, 16, 16)

	g.launch(square, "layer_partial", devIn, devWeights, partial, hidden)
	sums := make([]float32, tiles*hidden)
	for k := range tiles {
		for j := range hidden {
			var products [16]float32
			for y := range products {
				products[y] = weights[(16*k+y)*hidden+j] * in[16*k+y]
			}
			sums[k*hidden+j] = treeSum(products[:])
		}
	}
	same(g, "partial", partial, sums)

	g.launch(g.cover(hidden), "layer_squash", partial, put(g, bias), out, hidden, tiles)
	squashed := make([]float64, hidden)
	for j := range squashed {
		x := bias[j]
		for k := range tiles {
			x += sums[k*hidden+j]
		}
		squashed[j] = 1 / (1 + math.Exp(-float64(x)))
	}
	near(g, "out", out, squashed, func(int) float64 { return 1e-5 })

	g.launch(g.cover(hidden), "layer_delta", out, put(g, target), delta, failure, hidden)
	deltas, total := make([]float32, hidden), 0.0
	for j, o := range read(g, out) {
		deltas[j] = float32(o*(1-o)) * (target[j] - o)
		total += math.Abs(float64(deltas[j]))
	}
	same(g, "delta", delta, deltas)
	near(g, "error", failure, []float64{total}, func(int) float64 { return total * float64(hidden) * 0x1p-23 })

	g.launch(square, "adjust_weights", devWeights, devLast, devIn, delta, hidden, rate, momentum)
	for i := range inputs {
		for j := range hidden {
			at := i*hidden + j
			last[at] = fma32(rate*deltas[j], in[i], momentum*last[at])
			weights[at] += last[at]
		}
	}
	same(g, "weights", devWeights, weights)
	same(g, "last", devLast, last)
}

// graph is in compressed rows.
type graph struct {
	nodes        int
	start, edges []int32
}

func newGraph(g *gpu) graph {
	gr := graph{nodes: g.size(1500), start: []int32{0}}
	degree := 1 + g.rng.IntN(4)
	for range gr.nodes {
		for range g.rng.IntN(2*degree + 1) {
			gr.edges = append(gr.edges, g.rng.Int32N(int32(gr.nodes)))
		}
		gr.start = append(gr.start, int32(len(gr.edges)))
	}
	gr.edges = append(gr.edges, 0) // so that there is always something to pass
	return gr
}

// levels searches from node 0, plainly.
func (gr graph) levels() []int32 {
	cost := slices.Repeat([]int32{-1}, gr.nodes)
	cost[0] = 0
	for queue := []int32{0}; len(queue) > 0; queue = queue[1:] {
		v := queue[0]
		for _, w := range gr.edges[gr.start[v]:gr.start[v+1]] {
			if cost[w] < 0 {
				cost[w] = cost[v] + 1
				queue = append(queue, w)
			}
		}
	}
	return cost
}
