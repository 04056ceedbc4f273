package vec

// loop1 to loop4 do an operation on every lane. They and the function are inlined where a kernel calls
// them with a literal; a function that was handed over is called for each lane, which costs more than most
// operations do.

func loop1[D, A any](d []D, a []A, f func(A) D) {
	a = a[:len(d)]
	for i := range d {
		d[i] = f(a[i])
	}
}

func loop2[D, A, B any](d []D, a []A, b []B, f func(A, B) D) {
	a, b = a[:len(d)], b[:len(d)]
	for i := range d {
		d[i] = f(a[i], b[i])
	}
}

func loop3[D, A, B, C any](d []D, a []A, b []B, c []C, f func(A, B, C) D) {
	a, b, c = a[:len(d)], b[:len(d)], c[:len(d)]
	for i := range d {
		d[i] = f(a[i], b[i], c[i])
	}
}

func loop4[D, A, B, C, E any](d []D, a []A, b []B, c []C, e []E, f func(A, B, C, E) D) {
	a, b, c, e = a[:len(d)], b[:len(d)], c[:len(d)], e[:len(d)]
	for i := range d {
		d[i] = f(a[i], b[i], c[i], e[i])
	}
}

// compare asks word about up to 64 lanes at a time. Bits past the last lane are zero.
func compare[T any](d []uint64, a, b []T, word func(a, b []T) uint64) {
	b = b[:len(a)]
	for w := 0; len(a) > 0; w++ {
		n := min(64, len(a))
		d[w], a, b = word(a[:n], b[:n]), a[n:], b[n:]
	}
}

// which fills a word of bits from its last lane down, so that the first lane ends up lowest with shifts by
// one only. It and the function are inlined, as those of loop1.
func which[T any](a, b []T, is func(a, b T) bool) (bits uint64) {
	b = b[:len(a)]
	for i := len(a) - 1; i >= 0; i-- {
		bits <<= 1
		if is(a[i], b[i]) {
			bits |= 1
		}
	}
	return bits
}
