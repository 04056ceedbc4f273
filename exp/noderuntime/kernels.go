package noderuntime

import (
	"bytes"
	"embed"
	"encoding/binary"
	"fmt"
	"math"

	"muster/device"
)

//go:embed kernels/*.ptx
var images embed.FS

// kernel is one of the kernels that scripts launch. How long a launch takes is
// up to its units.
type kernel struct {
	file, name string
	block      device.Dim
	build      func(units, calls int, memory uint64) (body, error)
}

// body is a script's data, and what becomes of them.
type body struct {
	grid   device.Dim
	size   uint64  // bytes from the base on
	in     []piece // copied in before the first launch
	out    piece   // copied out after the last; data is what is expected
	params func(base uint64, call int) []byte
	check  func(got []byte) error // nil: must be equal
}

// piece is a part of a script's memory.
type piece struct {
	offset uint64
	data   []byte
}

func (k *kernel) image() []byte {
	text, err := images.ReadFile("kernels/" + k.file + ".ptx")
	if err != nil {
		panic(err) // it is embedded
	}
	return text
}

func (b *body) verify(got []byte) error {
	if b.check != nil {
		return b.check(got)
	}
	if !bytes.Equal(got, b.out.data) {
		for i := range got {
			if got[i] != b.out.data[i] {
				return fmt.Errorf("the result differs from byte %d of %d on", i, len(got))
			}
		}
	}
	return nil
}

var (
	saxpy     = &kernel{file: "vecadd", name: "saxpy", block: device.Dim{X: 256, Y: 1, Z: 1}, build: buildSaxpy}
	vecadd    = &kernel{file: "vecadd", name: "vecadd", block: device.Dim{X: 256, Y: 1, Z: 1}, build: buildVecadd}
	matmul    = &kernel{file: "matmul", name: "matmul_tiled", block: device.Dim{X: 16, Y: 16, Z: 1}, build: buildMatmul}
	options   = &kernel{file: "blackscholes", name: "black_scholes", block: device.Dim{X: 256, Y: 1, Z: 1}, build: buildOptions}
	transpose = &kernel{file: "transpose", name: "transpose_tiled", block: device.Dim{X: 32, Y: 8, Z: 1}, build: buildTranspose}
	reduce    = &kernel{file: "reduce", name: "reduce_shared", block: device.Dim{X: 256, Y: 1, Z: 1}, build: buildReduce}
)

// tooLarge says that a launch would need more data than the script has.
type tooLarge struct{ most int }

func (e tooLarge) Error() string { return fmt.Sprintf("at most %d units fit", e.most) }

// fit bounds the units by the memory that a script has.
func fit(units, most int) error {
	if units > most {
		return tooLarge{most}
	}
	return nil
}

// floats returns n small whole numbers, so that sums are exact.
func floats(n int, of func(i int) float32) []byte {
	b := make([]byte, 4*n)
	for i := range n {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(of(i)))
	}
	return b
}

func floatAt(b []byte, i int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
}

// pack lays out parameters: pointers first, as they need the alignment.
func pack(pointers []uint64, numbers ...uint32) []byte {
	var b []byte
	for _, p := range pointers {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	for _, n := range numbers {
		b = binary.LittleEndian.AppendUint32(b, n)
	}
	return b
}

func line(blocks int) device.Dim { return device.Dim{X: uint32(blocks), Y: 1, Z: 1} }

// buildSaxpy: y += x, each launch once more. A launch too few or too many shows.
func buildSaxpy(units, calls int, memory uint64) (body, error) {
	n := int(memory / 8)
	if err := fit(units, n/256); err != nil {
		return body{}, err
	}
	x := func(i int) float32 { return float32(1 + i%7) }
	touched := 256 * units
	second := uint64(4 * n)
	return body{
		grid: line(units), size: memory,
		in: []piece{{0, floats(n, x)}, {second, floats(n, func(i int) float32 { return float32(i % 5) })}},
		out: piece{second, floats(n, func(i int) float32 {
			y := float32(i % 5)
			if i < touched {
				y += float32(calls) * x(i)
			}
			return y
		})},
		params: func(base uint64, _ int) []byte {
			b := pack(nil, uint32(touched), math.Float32bits(1))
			return append(b, pack([]uint64{base, base + second})...)
		},
	}, nil
}

func buildVecadd(units, _ int, memory uint64) (body, error) {
	n := int(memory / 12)
	if err := fit(units, n/256); err != nil {
		return body{}, err
	}
	touched, size := 256*units, uint64(4*n)
	return body{
		grid: line(units), size: memory,
		in:  []piece{{0, floats(n, func(i int) float32 { return float32(i % 1000) })}, {size, floats(n, func(i int) float32 { return float32(i % 77) })}},
		out: piece{2 * size, floats(touched, func(i int) float32 { return float32(i%1000 + i%77) })},
		params: func(base uint64, _ int) []byte {
			return pack([]uint64{base, base + size, base + 2*size}, uint32(touched))
		},
	}, nil
}

// buildMatmul: each launch makes the next 16 rows of the product, as many tiles
// of them as there are units.
func buildMatmul(units, calls int, memory uint64) (body, error) {
	const tile = 16
	n := int(math.Sqrt(float64(memory/12))) / tile * tile
	if err := fit(units, n/tile); err != nil {
		return body{}, err
	}
	if calls > n/tile {
		calls = n / tile
	}
	size, columns := uint64(4*n*n), tile*units
	a := func(i, j int) float32 { return float32((i + 2*j) % 3) }
	b := func(i, j int) float32 { return float32((3*i + j) % 4) }
	matrix := func(of func(i, j int) float32) []byte {
		return floats(n*n, func(at int) float32 { return of(at/n, at%n) })
	}
	want := floats(calls*tile*n, func(at int) float32 {
		row, column, sum := at/n, at%n, float32(0)
		if column < columns {
			for k := range n {
				sum += a(row, k) * b(k, column)
			}
		}
		return sum
	})
	return body{
		grid: line(units), size: memory,
		in:  []piece{{0, matrix(a)}, {size, matrix(b)}, {2 * size, make([]byte, len(want))}},
		out: piece{2 * size, want},
		params: func(base uint64, call int) []byte {
			rows := uint64(call%calls) * uint64(4*tile*n)
			return pack([]uint64{base + rows, base + size, base + 2*size + rows}, tile, uint32(n), uint32(n))
		},
	}, nil
}

// buildOptions: call and put prices, at the kernel's own precision.
func buildOptions(units, _ int, memory uint64) (body, error) {
	n := int(memory / 20)
	if err := fit(units, n/256); err != nil {
		return body{}, err
	}
	const rate, volatility = 0.02, 0.3
	priced, size := 256*units, uint64(4*n)
	price := func(i int) float32 { return float32(20 + i%80) }
	strike := func(i int) float32 { return float32(10 + i%90) }
	years := func(i int) float32 { return 0.25 * float32(1+i%40) }
	want := floats(priced, func(i int) float32 {
		s, x, t := float64(price(i)), float64(strike(i)), float64(years(i))
		spread := volatility * math.Sqrt(t)
		d1 := (math.Log(s/x) + (rate+volatility*volatility/2)*t) / spread
		normal := func(d float64) float64 { return 0.5 * math.Erfc(-d/math.Sqrt2) }
		return float32(s*normal(d1) - x*math.Exp(-rate*t)*normal(d1-spread))
	})
	return body{
		grid: line(units), size: memory,
		in:  []piece{{0, floats(n, price)}, {size, floats(n, strike)}, {2 * size, floats(n, years)}},
		out: piece{3 * size, want},
		params: func(base uint64, _ int) []byte {
			return append(pack([]uint64{base, base + size, base + 2*size, base + 3*size, base + 4*size}),
				pack(nil, math.Float32bits(rate), math.Float32bits(volatility), uint32(priced))...)
		},
		check: func(got []byte) error {
			for i := range priced {
				if near := float64(floatAt(got, i) - floatAt(want, i)); !(math.Abs(near) <= 1e-4*float64(price(i)+strike(i))) {
					return fmt.Errorf("option %d is priced %v, not %v", i, floatAt(got, i), floatAt(want, i))
				}
			}
			return nil
		},
	}, nil
}

// buildTranspose: columns of tiles of a square matrix, as many as there are units.
func buildTranspose(units, _ int, memory uint64) (body, error) {
	const tile = 32
	n := int(math.Sqrt(float64(memory/8))) / tile * tile
	most := (n / tile) * (n / tile)
	if err := fit(units, most); err != nil {
		return body{}, err
	}
	columns := (units + n/tile - 1) / (n / tile) // of tiles
	size := uint64(4 * n * n)
	value := func(i, j int) float32 { return float32((7*i + j) % 1021) }
	return body{
		grid: device.Dim{X: uint32(columns), Y: uint32(n / tile), Z: 1}, size: memory,
		in:  []piece{{0, floats(n*n, func(at int) float32 { return value(at/n, at%n) })}},
		out: piece{size, floats(columns*tile*n, func(at int) float32 { return value(at%n, at/n) })},
		params: func(base uint64, _ int) []byte {
			return pack([]uint64{base, base + size}, uint32(n), uint32(n))
		},
	}, nil
}

func buildReduce(units, _ int, memory uint64) (body, error) {
	n := int(memory/8) / 256 * 256
	if err := fit(units, n/256); err != nil {
		return body{}, err
	}
	value := func(i int) float32 { return float32(i % 3) }
	size := uint64(4 * n)
	return body{
		grid: line(units), size: memory,
		in: []piece{{0, floats(n, value)}},
		out: piece{size, floats(units, func(block int) float32 {
			sum := float32(0)
			for i := range 256 {
				sum += value(256*block + i)
			}
			return sum
		})},
		params: func(base uint64, _ int) []byte { return pack([]uint64{base, base + size}, uint32(n)) },
	}, nil
}
