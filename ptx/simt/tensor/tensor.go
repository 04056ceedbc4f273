// Package tensor computes what the tensor core of a GPU does: products of small
// matrices, with the order, the width and the rounding of its sums.
//
// It knows numbers and their formats only: no register, no lane, no memory.
//
// NVIDIA does not document how its tensor cores add. What is done here is what an
// H200 does, and Product says what that is. It was found by experiments, which
// began with published measurements (Fasi, Higham, Mikaitis and Pranesh, PeerJ
// Computer Science 2021; Khattak and Mikaitis, arXiv 2512.07004; Xie and others,
// arXiv 2511.10909). scripts/gpu-tensor repeats them on a GPU, and a test of
// package simt compares with what it recorded.
package tensor

import (
	"math"
	"math/bits"
)

// Product is a kind of product: D = A*B + C, where A has M rows and K columns, B
// has K rows and N columns, and C and D have M rows and N columns.
//
// Of floats of at most 19 bits, products are exact. Up to Group products and
// the element of C, or what was there before, are added at a time: all are
// brought to the largest exponent among them, where a product's exponent is the
// sum of those of its factors, and cut off there behind 25 bits of fraction.
// The sum of these is exact. It is cut off to an f32, and rounded to nearest to
// an f16. Zeros have no exponent. Subnormal numbers count in full, in and out.
// Too large a sum is infinite, and a sum of nothing but zeros is +0. A NaN that
// comes out is 0x7fffffff or 0x7fff.
//
// Floats of 8 bits are the tensor core's own only in wgmma, for which Short is set:
// 32 products are added at a time, 13 bits of fraction are kept, and of a sum in
// f32 no more than 13 bits remain either. Elsewhere the compiler makes halves of
// them: first the products of the first two of every four elements are added up,
// then those of the other two are added to that, and at last C, with one rounding
// to nearest.
//
// Of f64, each product is added with one rounding to nearest, in the order of K.
//
// Integers are added exactly, and the lowest 32 bits remain, or with Saturate the
// nearest number of 32 bits.
type Product struct {
	M, N, K  int
	A, B     Format
	C, D     Format // F16, F32, F64 or S32
	Saturate bool
	And      bool // of bits: those count that both have, else those in which they differ
	Short    bool
	Tile     bool // it is a wmma: of TF32 four products are added at a time
}

// The sums of a tensor core of Hopper.
const (
	width, shortWidth = 25, 13 // bits of fraction that are kept when numbers are aligned
	// group is how many products are added at a time: 16 of 16 bits each. Those of TF32
	// are half as many, or a quarter in a wmma.
	group, shortGroup = 16, 32
)

// The NaN that comes out.
const (
	nan16 = 0x7fff
	nan32 = 0x7fffffff
)

// Group returns how many products are added at a time.
func (p *Product) Group() int {
	switch {
	case p.Short:
		return min(p.K, shortGroup)
	case p.converted():
		return p.K / 2
	case p.A == TF32 && p.Tile:
		return min(p.K, group/4)
	case p.A == TF32:
		return min(p.K, group/2)
	}
	return min(p.K, group)
}

// converted says whether the factors are floats of 8 bits that are multiplied as halves.
func (p *Product) converted() bool { return (p.A == E4M3 || p.A == E5M2) && !p.Short }

// position returns which of K products is the k-th to be added.
func (p *Product) position(k int) int {
	if !p.converted() {
		return k
	}
	return k%4/2*(p.K/2) + k/4*2 + k%2
}

// Width returns how many bits of fraction are kept when numbers are aligned.
func (p *Product) Width() int {
	if p.Short {
		return shortWidth
	}
	return width
}

// Unit multiplies. It holds nothing but room to work in.
type Unit struct {
	a, b               []number
	picked             []uint64
	strangeA, strangeB []bool // rows of a, columns of b: something there is not finite
	x, y               []int32
}

// Multiply computes d. Elements are bits; a, c and d lie row by row, b column by
// column. d may be c.
func (u *Unit) Multiply(p *Product, d, c, a, b []uint64) {
	a, b = a[:p.M*p.K], b[:p.N*p.K]
	switch {
	case p.A == F64:
		p.doubles(d, c, a, b)
	case p.A.Float():
		u.a, u.strangeA = p.decodeAll(p.A, a, u.a, u.strangeA)
		u.b, u.strangeB = p.decodeAll(p.B, b, u.b, u.strangeB)
		u.floats(p, d, c)
	default:
		u.x, u.y = values(p.A, a, u.x), values(p.B, b, u.y)
		u.integers(p, d, c)
	}
}

// MultiplySparse computes d where of a only every other element of K is given, and
// picks has its place along K: the others are not there at all, so that not even an
// infinity of b meets them. Sums of a row are those of Multiply over half of K.
func (u *Unit) MultiplySparse(p *Product, d, c, a, b []uint64, picks []int) {
	row := *p
	row.M, row.K = 1, p.K/2
	if len(u.picked) < p.N*row.K {
		u.picked = make([]uint64, p.N*row.K)
	}
	for m := range p.M {
		for n := range p.N {
			for i, k := range picks[m*row.K:][:row.K] {
				u.picked[n*row.K+i] = b[n*p.K+k]
			}
		}
		u.Multiply(&row, d[m*p.N:][:p.N], c[m*p.N:][:p.N], a[m*row.K:], u.picked)
	}
}

func (p *Product) doubles(d, c, a, b []uint64) {
	for m := range p.M {
		for n := range p.N {
			sum := math.Float64frombits(c[m*p.N+n])
			for k := range p.K {
				sum = math.FMA(math.Float64frombits(a[m*p.K+k]), math.Float64frombits(b[n*p.K+k]), sum)
			}
			d[m*p.N+n] = math.Float64bits(sum)
		}
	}
}

func (u *Unit) integers(p *Product, d, c []uint64) {
	for m := range p.M {
		row := u.x[m*p.K:][:p.K]
		for n := range p.N {
			column := u.y[n*p.K:][:len(row)]
			sum := S32.integer(c[m*p.N+n])
			switch {
			case p.A != B1:
				for k, v := range row {
					sum += int64(v * column[k])
				}
			case p.And:
				for k, v := range row {
					sum += int64(v & column[k])
				}
			default:
				for k, v := range row {
					sum += int64(v ^ column[k])
				}
			}
			if p.Saturate {
				sum = min(max(sum, math.MinInt32), math.MaxInt32)
			}
			d[m*p.N+n] = uint64(uint32(sum))
		}
	}
}

// values returns elements that are whole numbers, in room.
func values(f Format, all []uint64, room []int32) []int32 {
	room = room[:0]
	for _, x := range all {
		room = append(room, int32(f.integer(x)))
	}
	return room
}

// floats computes products of floats of few bits.
func (u *Unit) floats(p *Product, d, c []uint64) {
	group, width := p.Group(), p.Width()
	// what a product is shifted by to have so many bits of fraction
	scale := width - formats[p.A].fraction - formats[p.B].fraction
	for m := range p.M {
		row := u.a[m*p.K:][:p.K]
		for n := range p.N {
			column := u.b[n*p.K:][:p.K]
			acc := number{}
			if !p.converted() {
				acc = p.C.decode(c[m*p.N+n])
			}
			strange := u.strangeA[m] || u.strangeB[n]
			from, value := p.C, uint64(0)
			for k := 0; k < p.K; k += group {
				if k > 0 {
					from, acc = p.D, p.D.decode(value)
				}
				x, y := row[k:][:group], column[k:][:group]
				if strange || acc.kind != finite {
					if bits, ok := p.strange(x, y, acc); ok {
						value = bits
						continue
					}
				}
				value = p.round(dot(x, y, acc, scale, width-formats[from].fraction))
			}
			if p.converted() {
				value = p.add(value, c[m*p.N+n])
			}
			d[m*p.N+n] = value
		}
	}
}

// add adds an element of C to one of D, with one rounding to nearest. The formats of
// the two are the same where this is needed.
func (p *Product) add(x, y uint64) uint64 {
	if p.D == F32 {
		sum := math.Float32frombits(uint32(x)) + math.Float32frombits(uint32(y))
		if sum != sum {
			return nan32
		}
		return uint64(math.Float32bits(sum))
	}
	a, b := F16.decode(x), F16.decode(y)
	switch {
	case a.kind == invalid || b.kind == invalid || a.kind == infinite && b.kind == infinite && a.significand != b.significand:
		return nan16
	case a.kind == infinite:
		return x
	case b.kind == infinite:
		return y
	case a.significand == 0 && b.significand == 0:
		return x & y // -0 only if both are
	}
	// The unit of both is that of the smaller exponent: 41 bits hold the exact sum.
	low := min(a.exponent, b.exponent)
	sum := int64(a.significand)<<(a.exponent-low) + int64(b.significand)<<(b.exponent-low)
	return p.round(sum, low-int32(formats[F16].fraction)+int32(p.Width()))
}

// decodeAll takes the factors of a row or column apart, in room, in the order in which
// their products are added, and says in which rows there are some that are not finite.
func (p *Product) decodeAll(f Format, all []uint64, room []number, strange []bool) ([]number, []bool) {
	if cap(room) < len(all) {
		room = make([]number, len(all))
	}
	room, strange = room[:len(all)], strange[:0]
	for first := 0; first < len(all); first += p.K {
		odd := false
		for k, x := range all[first:][:p.K] {
			n := f.decode(x)
			room[first+p.position(k)] = n
			odd = odd || n.kind != finite
		}
		strange = append(strange, odd)
	}
	return room, strange
}

// nothing is an exponent below all others.
const nothing = math.MinInt32 / 2

// dot adds products and an accumulator: sum * 2^(exponent-width).
func dot(a, b []number, acc number, scale, accScale int) (sum int64, exponent int32) {
	b = b[:len(a)]
	exponent = nothing
	if acc.significand != 0 {
		exponent = acc.exponent
	}
	var products [shortGroup]int64
	var exponents [shortGroup]int32
	for k := range a {
		product := int64(a[k].significand) * int64(b[k].significand)
		products[k&(shortGroup-1)], exponents[k&(shortGroup-1)] = product, nothing
		if product != 0 {
			e := a[k].exponent + b[k].exponent
			exponents[k&(shortGroup-1)] = e
			exponent = max(exponent, e)
		}
	}
	if exponent == nothing {
		return 0, 0
	}
	if acc.significand != 0 {
		sum = cut(int64(acc.significand)<<max(accScale, 0), exponent-acc.exponent+int32(max(-accScale, 0)))
	}
	for k := range a {
		sum += cut(products[k&(shortGroup-1)]<<scale, exponent-exponents[k&(shortGroup-1)])
	}
	return sum, exponent
}

// cut shifts a number to the right and drops what falls out, towards zero.
func cut(x int64, by int32) int64 {
	by = min(by, 62)
	x += x >> 63 & (1<<by - 1)
	return x >> by
}

// round makes sum * 2^(exponent-width) an element of D.
func (p *Product) round(sum int64, exponent int32) uint64 {
	if sum == 0 {
		return 0
	}
	d, width := &formats[p.D], int32(p.Width())
	sign, size := uint64(0), uint64(sum)
	if sum < 0 {
		sign, size = 1<<(d.exponent+d.fraction), uint64(-sum)
	}
	bias := int32(1)<<(d.exponent-1) - 1
	// The exponent of its highest bit, and that of the lowest bit that remains.
	top := exponent - width + int32(bits.Len64(size)) - 1
	low := max(top, 1-bias) - int32(d.fraction)
	by := low - (exponent - width)
	if by <= 0 {
		size <<= uint(-by)
	} else {
		rest := size & (1<<min(by, 63) - 1)
		size >>= uint(by)
		if half := uint64(1) << min(by-1, 63); p.D == F16 && (rest > half || rest == half && size&1 != 0) {
			size++ // a carry is right: it makes the next exponent, or the smallest normal number
		}
	}
	if p.Short && p.D == F32 {
		size &^= 1<<(d.fraction-shortWidth) - 1
	}
	// size is significand with its highest bit, or a subnormal number.
	value := uint64(low+int32(d.fraction)+bias-1)<<d.fraction + size
	if size == 0 {
		value = 0
	}
	return sign | min(value, (1<<d.exponent-1)<<d.fraction)
}

// strange adds products of which some may not be finite; ok is false if all are.
func (p *Product) strange(a, b []number, acc number) (bits uint64, ok bool) {
	nan, infinity := uint64(nan32), uint64(0x7f800000)
	sign := uint64(1) << 31
	if p.D == F16 {
		nan, infinity, sign = nan16, 0x7c00, 1<<15
	}
	var plus, minus bool
	note := func(kind special, negative bool) {
		if kind == infinite {
			plus, minus = plus || !negative, minus || negative
		}
	}
	if acc.kind == invalid {
		return nan, true
	}
	note(acc.kind, acc.significand < 0)
	for k := range a {
		x, y := a[k], b[k]
		kind := max(x.kind, y.kind)
		if kind == invalid || kind == infinite && (x.significand == 0 || y.significand == 0) {
			return nan, true
		}
		note(kind, (x.significand < 0) != (y.significand < 0))
	}
	switch {
	case plus && minus:
		return nan, true
	case plus:
		return infinity, true
	case minus:
		return sign | infinity, true
	}
	return 0, false
}
