package simt_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"muster/ptx"
	"muster/ptx/simt"
	"muster/ptx/simt/shape"
)

// halfOf returns the bits of a small multiple of 1/64 as an f16, which has all of them.
func halfOf(n int) uint16 {
	if n == 0 {
		return 0
	}
	sign, size := uint16(0), n
	if n < 0 {
		sign, size = 0x8000, -n
	}
	exponent := 0
	for size>>(exponent+1) != 0 {
		exponent++
	}
	return sign | uint16(exponent-6+15)<<10 | uint16(size<<10>>exponent)&0x3ff
}

// The product of matrices that compilers make of tl.dot: cp.async, ldmatrix and
// mma, in both engines, in all widths, stopped on the way and carried from one
// engine to the other. All sums are exact, so that their order does not matter.
func TestDot(t *testing.T) {
	source, err := os.ReadFile("../../examples/ptx/dot.ptx")
	if err != nil {
		t.Fatal(err)
	}
	module, err := ptx.Parse("dot.ptx", string(source))
	if err != nil {
		t.Fatal(err)
	}
	const m, n, k = 128, 64, 72 // the last step has less than 32
	rng := rand.New(rand.NewPCG(1, 2))
	a, b := make([]int, m*k), make([]int, k*n)
	for i := range a {
		a[i] = rng.IntN(129) - 64
	}
	for i := range b {
		b[i] = rng.IntN(129) - 64
	}
	for _, v := range []struct {
		launch simt.Launch
		budget uint64
	}{
		{simt.Launch{Engine: simt.Interpret}, endless},
		{simt.Launch{Engine: simt.Compile}, endless},
		{simt.Launch{Engine: simt.Compile, Width: 32, Workers: 2}, endless},
		{simt.Launch{Engine: simt.Interpret, Width: 64}, 97},
	} {
		t.Run(fmt.Sprintf("width %d, engine %v, steps of %d", v.launch.Width, v.launch.Engine, v.budget), func(t *testing.T) {
			memory := &testMemory{}
			in, out := memory.add(t, inAddress, 2*(m*k+k*n)), memory.add(t, outAddress, 4*m*n)
			for i, x := range append(append([]int(nil), a...), b...) {
				binary.LittleEndian.PutUint16(in[2*i:], halfOf(x))
			}
			program, err := simt.Load("dot.ptx", module, memory.place)
			if err != nil {
				t.Fatal(err)
			}
			l := v.launch
			l.Grid, l.Block, l.Shared, l.Memory = shape.Dim{X: n / 64, Y: m / 64, Z: 1}, shape.Dim{X: 128, Y: 1, Z: 1}, 16<<10, memory
			for _, p := range []uint64{inAddress, inAddress + 2*m*k, outAddress, m | n<<32, k} {
				l.Params = binary.LittleEndian.AppendUint64(l.Params, p)
			}
			kernel := program.Kernel("dot")
			l.Params = l.Params[:kernel.ParamSize]
			x, err := kernel.Start(l)
			if err != nil {
				t.Fatal(err)
			}
			for err = x.RunFor(v.budget); errors.Is(err, simt.ErrStopped); err = x.RunFor(v.budget) {
				state, failed := x.Save()
				if failed != nil {
					t.Fatal(failed)
				}
				l.Engine = otherEngine(l.Engine)
				if x, failed = kernel.Resume(simt.Launch{Memory: memory, Engine: l.Engine}, state); failed != nil {
					t.Fatal(failed)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range m * n {
				sum := 0
				for j := range k {
					sum += a[i/n*k+j] * b[j*n+i%n]
				}
				if got, want := math.Float32frombits(binary.LittleEndian.Uint32(out[4*i:])), float32(sum)/4096; got != want {
					t.Fatalf("seed (1, 2): row %d, column %d is %v, want %v", i/n, i%n, got, want)
				}
			}
		})
	}
}
