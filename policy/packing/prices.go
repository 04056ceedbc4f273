package packing

import (
	"cmp"
	"slices"
)

// prices says what the space on a device of one type is worth to the shares that
// are expected: value[l] is that of l thousandths.
//
// The shares are to be packed into as few devices as possible: cutting stock. In
// the linear relaxation of it, whose columns are the ways to fill one device, the dual price of a
// share is the part of a device that it costs; and the worth of a space is the dearest filling of
// it. A share that goes where it lessens the worth by its own price takes nothing
// from the others; the more it lessens it beyond that, the worse its place.
func (t *Target) prices(kind int) [thousand + 1]int64 {
	var sizes []size
	for i := range t.all {
		k := &t.all[i]
		need := k.need[kind]
		if need >= thousand {
			continue // whole devices, and tasks that want another type
		}
		sizes = addSize(sizes, need, float64(k.weight)*float64(k.gpus))
	}
	w := newCutting(sizes)
	w.solve()
	dearest := w.dearest()
	var value [thousand + 1]int64
	for l := range value {
		value[l] = int64(dearest[l].worth*priceUnit + 0.5)
	}
	return value
}

// priceUnit is the worth of a whole device: prices are rounded to that.
const priceUnit = 1 << 16

type size struct {
	need  int32
	count float64
}

// cutting is the linear program of cutting stock: how many devices use each pattern so that all
// shares are packed on as few devices as possible. It is solved by the revised simplex method;
// patterns are generated when they are needed.
type cutting struct {
	sizes []size
	// inverse of the basis, and the values of its columns.
	inverse [][]float64
	value   []float64
	// cost of each basic column: 1 for a pattern, 0 for a surplus.
	cost  []float64
	price []float64
	fill  []filling
}

// filling is the most valuable way to fill a given space.
type filling struct {
	worth float64
	last  int32 // the share packed last; -1: a thousandth stays empty
}

// tolerance is for what rounding leaves.
const tolerance = 1e-9

// rounds is far more than any workload needs: each brings the program nearer to
// its end, and one that stops early has prices that are still good.
const rounds = 2000

// newCutting starts with devices that hold one size each.
func newCutting(sizes []size) *cutting {
	n := len(sizes)
	w := &cutting{
		sizes: sizes, inverse: make([][]float64, n), value: make([]float64, n), cost: make([]float64, n),
		price: make([]float64, n), fill: make([]filling, thousand+1),
	}
	for i, s := range sizes {
		each := float64(thousand / s.need)
		w.inverse[i] = make([]float64, n)
		w.inverse[i][i] = 1 / each
		w.value[i] = s.count / each
		w.cost[i] = 1
	}
	return w
}

func (w *cutting) solve() {
	n := len(w.sizes)
	column := make([]float64, n)
	for range rounds {
		for j := range w.price {
			w.price[j] = 0
			for i := range n {
				w.price[j] += float64(w.cost[i] * w.inverse[i][j])
			}
		}
		// What helps: a surplus of a share with a negative price, or a pattern that
		// is worth more than a device.
		clear(column)
		cost := 1.0
		least := -1
		for j, p := range w.price {
			if p < -tolerance && (least < 0 || p < w.price[least]) {
				least = j
			}
		}
		if least >= 0 {
			column[least], cost = -1, 0
		} else if !w.pattern(column) {
			return
		}
		if !w.pivot(column, cost) {
			return
		}
	}
}

// pattern finds the dearest filling of a device; false if no pattern is worth
// more than it costs.
func (w *cutting) pattern(column []float64) bool {
	fill := w.dearest()
	if fill[thousand].worth <= 1+tolerance {
		return false
	}
	for l := int32(thousand); l > 0; {
		if s := fill[l].last; s >= 0 {
			column[s]++
			l -= w.sizes[s].need
		} else {
			l--
		}
	}
	return true
}

// dearest is the dearest way to fill each space.
func (w *cutting) dearest() []filling {
	w.fill[0] = filling{last: -1}
	for l := int32(1); l <= thousand; l++ {
		best := filling{w.fill[l-1].worth, -1}
		for i, s := range w.sizes {
			if s.need > l {
				break
			}
			if worth := w.fill[l-s.need].worth + w.price[i]; worth > best.worth+tolerance {
				best = filling{worth, int32(i)}
			}
		}
		w.fill[l] = best
	}
	return w.fill
}

// pivot brings a column into the basis for the one that reaches zero first.
func (w *cutting) pivot(column []float64, cost float64) bool {
	n := len(w.sizes)
	step := make([]float64, n)
	out := -1
	for i := range n {
		for j, c := range column {
			step[i] += float64(w.inverse[i][j] * c)
		}
		if step[i] > tolerance && (out < 0 || w.value[i]*step[out] < w.value[out]*step[i]) {
			out = i
		}
	}
	if out < 0 {
		return false // cannot be: fewer than no devices
	}
	for j := range n {
		w.inverse[out][j] /= step[out]
	}
	w.value[out] /= step[out]
	w.cost[out] = cost
	for i := range n {
		if i == out || step[i] == 0 {
			continue
		}
		for j := range n {
			w.inverse[i][j] -= float64(step[i] * w.inverse[out][j])
		}
		w.value[i] = max(0, w.value[i]-float64(step[i]*w.value[out]))
	}
	return true
}

// Densest bounds from above how full devices of that memory can be when all that
// was counted is packed into them and nothing left out: as a fraction.
func (c *Census) Densest(memory int64) float64 {
	whole, asked := 0.0, 0.0
	var sizes []size
	for key, n := range c.counts {
		need, count := milliOf(key.share, memory), float64(n)*float64(key.gpus)
		switch {
		case count == 0 || need == never:
			continue
		case need == thousand:
			whole += count
			continue
		}
		asked += float64(need) * count
		sizes = addSize(sizes, need, count)
	}
	w := newCutting(sizes)
	w.solve()
	// Scaled so that no filling is worth more than a device, prices bound the
	// number of devices from below, whether the program was solved or not.
	devices, dearest := 0.0, max(1, w.dearest()[thousand].worth)
	for i, s := range sizes {
		devices += float64(max(0, w.price[i]) * s.count)
	}
	return (whole + asked/thousand) / (whole + devices/dearest)
}

// addSize counts shares of one size; the sizes are in order.
func addSize(sizes []size, need int32, count float64) []size {
	at, found := slices.BinarySearchFunc(sizes, need, func(s size, n int32) int { return cmp.Compare(s.need, n) })
	if !found {
		sizes = slices.Insert(sizes, at, size{need: need})
	}
	sizes[at].count += count
	return sizes
}
