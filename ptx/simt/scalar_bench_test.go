package simt_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"muster/ptx/simt"
)

// benchmarkWork is the useful work that is timed, under the same names and in
// the same units, in scalar Go, on PoCL and on the engine. The names are those
// of the files in ptx/testdata/kernels; the kernels are vecadd, matmul_tiled,
// nbody_accelerate, needleman_diagonal and reduce_shared.
type benchmarkWork struct {
	name   string
	n      int // elements, rows, bodies or cells a side
	amount float64
	unit   string // of amount a second
}

func (w benchmarkWork) String() string { return fmt.Sprintf("%s/n=%d", w.name, w.n) }

var benchmarkWorks = []benchmarkWork{
	{"vecadd", 1 << 22, (1 << 22) / 1e9, "Gelem/s"},
	{"matmul", 256, 2 * 256 * 256 * 256 / 1e9, "GFLOP/s"},
	{"matmul", 512, 2 * 512 * 512 * 512 / 1e9, "GFLOP/s"},
	{"nbody", 1024, 1024 * 1024 / 1e9, "Ginteractions/s"},
	{"nbody", 4096, 4096 * 4096 / 1e9, "Ginteractions/s"},
	{"needleman", 2048, 2048 * 2048 / 1e6, "Mcell/s"},
	{"reduce", 1 << 22, (1 << 22) / 1e9, "Gelem/s"},
}

// reportRate runs the work b.N times and reports the rate of the median run, since
// machines that others use too have slow moments, and that of the run which took the
// least processor time.
func (w benchmarkWork) reportRate(b *testing.B, run func()) {
	run() // touches memory and fills caches
	var times []time.Duration
	least := math.Inf(1)
	for b.Loop() {
		start, processor := time.Now(), simt.ProcessorSeconds()
		run()
		times = append(times, time.Since(start))
		least = min(least, simt.ProcessorSeconds()-processor)
	}
	slices.Sort(times)
	b.ReportMetric(w.amount/times[len(times)/2].Seconds(), w.unit)
	b.ReportMetric(w.amount/least, "best-"+w.unit[:len(w.unit)-1]+"cpu-s")
}

func BenchmarkScalarGo(b *testing.B) {
	scalar := map[string]func(n int) func(){
		"vecadd": func(n int) func() {
			x, y, z := fractions(n), fractions(n), make([]float32, n)
			return func() { scalarVecadd(x, y, z) }
		},
		"matmul": func(n int) func() {
			x, y, z := fractions(n*n), fractions(n*n), make([]float32, n*n)
			return func() { scalarMatmul(x, y, z, n) }
		},
		"nbody": func(n int) func() {
			bodies, accel := make([][4]float32, n), make([][3]float32, n)
			for i, f := range fractions(4 * n) {
				bodies[i/4][i%4] = f
			}
			for i := range bodies {
				bodies[i][3]++ // masses are positive
			}
			return func() { scalarNbody(bodies, accel, 0.01) }
		},
		"needleman": func(n int) func() {
			score, similarity := alignment(n, 10)
			return func() { scalarNeedleman(score, similarity, n+1, 10) }
		},
		"reduce": func(n int) func() {
			in, out := fractions(n), make([]float32, n/256)
			return func() { scalarReduce(in, out) }
		},
	}
	for _, w := range benchmarkWorks {
		b.Run(w.String(), func(b *testing.B) { w.reportRate(b, scalar[w.name](w.n)) })
	}
}

// fractions returns n floats from -0.5 to 0.5, the same every time.
func fractions(n int) []float32 {
	all := make([]float32, n)
	state := uint32(1)
	for i := range all {
		state = state*1664525 + 1013904223
		all[i] = float32(state>>8)/(1<<24) - 0.5
	}
	return all
}

// alignment returns the scores with their first row and column, and
// similarities from -10 to 10, for sequences of n.
func alignment(n int, penalty int32) (score, similarity []int32) {
	width := n + 1
	score, similarity = make([]int32, width*width), make([]int32, width*width)
	for i, f := range fractions(width * width) {
		similarity[i] = int32(f * 21)
	}
	for i := range width {
		score[i], score[i*width] = -penalty*int32(i), -penalty*int32(i)
	}
	return score, similarity
}

func scalarVecadd(a, b, c []float32) {
	for i := range c {
		c[i] = a[i] + b[i]
	}
}

// scalarMatmul goes along rows, which is the fast order; each element is summed
// in the order of the kernel.
func scalarMatmul(a, b, c []float32, n int) {
	for i := range n {
		row := c[i*n:][:n]
		clear(row)
		for k := range n {
			x := a[i*n+k]
			for j, y := range b[k*n:][:n] {
				row[j] += x * y
			}
		}
	}
}

func scalarNbody(bodies [][4]float32, accel [][3]float32, softening float32) {
	for i, me := range bodies {
		var ax, ay, az float32
		for j := range bodies {
			other := &bodies[j]
			dx, dy, dz := other[0]-me[0], other[1]-me[1], other[2]-me[2]
			u := 1 / float32(math.Sqrt(float64(dx*dx+(dy*dy+(dz*dz+softening)))))
			s := other[3] * (u * u * u)
			ax += dx * s
			ay += dy * s
			az += dz * s
		}
		accel[i] = [3]float32{ax, ay, az}
	}
}

func scalarNeedleman(score, similarity []int32, width int, penalty int32) {
	for i := 1; i < width; i++ {
		above, row := score[(i-1)*width:][:width], score[i*width:][:width]
		gain := similarity[i*width:][:width]
		for j := 1; j < width; j++ {
			row[j] = max(above[j-1]+gain[j], max(row[j-1], above[j])-penalty)
		}
	}
}

// scalarReduce writes one sum for each 256 elements.
func scalarReduce(in, out []float32) {
	for b := range out {
		var sum float32
		for _, x := range in[b*256:][:256] {
			sum += x
		}
		out[b] = sum
	}
}

// What is timed must be right: small cases worked out by hand.
func TestScalarWork(t *testing.T) {
	c := make([]float32, 3)
	scalarVecadd([]float32{1, 2, 3}, []float32{10, 20, 30}, c)
	wantAll(t, "vecadd", c, []float32{11, 22, 33})

	c = []float32{9, 9, 9, 9}
	scalarMatmul([]float32{1, 2, 3, 4}, []float32{5, 6, 7, 8}, c, 2)
	wantAll(t, "matmul", c, []float32{19, 22, 43, 50})

	accel := make([][3]float32, 2)
	scalarNbody([][4]float32{{0, 0, 0, 2}, {3, 0, 4, 5}}, accel, 75) // 25 + 75 = 10²
	for i, want := range [][3]float64{{15e-3, 0, 20e-3}, {-6e-3, 0, -8e-3}} {
		for x := range 3 {
			if got := float64(accel[i][x]); math.Abs(got-want[x]) > 1e-8 {
				t.Errorf("nbody: body %d axis %d: %v, want %v", i, x, got, want[x])
			}
		}
	}

	score := []int32{0, -2, -4, -2, 0, 0, -4, 0, 0}
	scalarNeedleman(score, []int32{0, 0, 0, 0, 3, -9, 0, 1, 4}, 3, 2)
	wantAll(t, "needleman", score, []int32{0, -2, -4, -2, 3, 1, -4, 1, 7})

	in := make([]float32, 512)
	for i := range in {
		in[i] = float32(i)
	}
	sums := make([]float32, 2)
	scalarReduce(in, sums)
	wantAll(t, "reduce", sums, []float32{255 * 128, 255*128 + 256*256})
}

func wantAll[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}
