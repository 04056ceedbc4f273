package winner

import (
	"math"
	"slices"
)

// tableau is the linear program of a part in the form that the dual simplex
// works on: the basic variables and the objective as functions of the free
// (nonbasic) variables, which are 0.
//
//	basic[i] = beta[i] - sum over j of a[i][j] * free[j]
//	value    = z       - sum over j of d[j]    * free[j]
//
// Variables below the number of bids are bids; the others are the slack
// variables of rows: what the right side leaves. The dual simplex keeps d[j] >=
// 0, so that z is always an upper bound of the program, and repairs beta[i] < 0
// step by step. A row that is added later makes some beta negative and leaves d
// as it is: that is why it suits cutting planes and branching.
//
// The matrix is dense. Only rows that have mattered are in it, so it stays
// small. It proves nothing: it finds prices for rows, with which tree.prove
// computes a bound in integers. So its tolerances need not be safe, only
// consistent (tolerance.go).
type tableau struct {
	rows, cols int
	a          []float64 // row-major, rows times cols
	beta, d    []float64
	z          float64
	basic      []int32 // by row: its variable
	free       []int32 // by column: its variable
	// weight scales the errors of rows in leaving: a row with large entries has
	// large errors sooner, without being a better choice (devex pricing).
	weight []float64
	keep   []int32 // scratch
	some   []int32 // scratch: the columns in which a row is not 0
}

func (w *tableau) row(i int) []float64 { return w.a[i*w.cols : (i+1)*w.cols] }

// pivot swaps the basic variable of row r with the free one of column c. It
// returns the number of cells changed. If the pivot row is mostly 0, it visits
// only the columns that are not (some).
func (w *tableau) pivot(r, c int) int64 {
	pr := w.row(r)
	inv := 1 / pr[c]
	w.some = w.some[:0]
	for j, v := range pr {
		if v < pivotNoise && v > -pivotNoise {
			pr[j] = 0
			continue
		}
		pr[j] = v * inv
		if j != c {
			w.some = append(w.some, int32(j))
		}
	}
	pr[c] = inv
	w.beta[r] *= inv
	work := int64(w.cols)
	br := w.beta[r]
	sparse := len(w.some)*3 < w.cols
	heavy := w.weight[r] * inv * inv
	w.weight[r] = max(heavy, 1)
	for i := range w.rows {
		if i == r {
			continue
		}
		ri := w.row(i)
		f := ri[c]
		if f == 0 {
			continue
		}
		ri[c] = 0
		if f < factorNoise && f > -factorNoise {
			continue
		}
		w.beta[i] -= float64(f * br)
		w.weight[i] = max(w.weight[i], f*f*heavy)
		if sparse {
			for _, j := range w.some {
				ri[j] -= float64(f * pr[j])
			}
			ri[c] = -float64(f * inv)
			work += int64(len(w.some))
			continue
		}
		subtract(ri, pr, f)
		work += int64(w.cols)
	}
	f := w.d[c]
	w.d[c] = 0
	subtract(w.d[:w.cols], pr, f)
	w.z -= float64(f * br)
	w.basic[r], w.free[c] = w.free[c], w.basic[r]
	return work
}

// subtract takes f times y off x. The conversion keeps a compiler from fusing
// both operations, which would round differently on other machines.
func subtract(x, y []float64, f float64) {
	y = y[:len(x)]
	for len(x) >= 4 {
		x[0] -= float64(f * y[0])
		x[1] -= float64(f * y[1])
		x[2] -= float64(f * y[2])
		x[3] -= float64(f * y[3])
		x, y = x[4:], y[4:]
	}
	for j := range x {
		x[j] -= float64(f * y[j])
	}
}

// leaving is the row whose basic variable is most wrong: below 0, or above 0
// although the branch forces it to 0 (zero). It is -1 if no row is: then the
// solution is optimal.
func (w *tableau) leaving(zero []bool) int {
	found, most := -1, 0.0
	for i, v := range w.beta[:w.rows] {
		if v < -feasible || v > feasible && isZero(zero, w.basic[i]) {
			if far := v * v; far > most*w.weight[i] {
				found, most = i, far/w.weight[i]
			}
		}
	}
	return found
}

// isZero says that the branch forces variable v to 0. zero covers bids and the
// slack variables of job rows only.
func isZero(zero []bool, v int32) bool { return int(v) < len(zero) && zero[v] }

// entering is the column whose variable becomes basic in place of row r's: the
// one that keeps all d[j] nonnegative (the ratio test). It is -1 if there is
// none: then row r shows that the program has no solution. The test has two
// passes (Harris): the first finds the largest step if each d[j] may become
// negative by little, the second takes the largest pivot element within that
// step, since small ones ruin the tableau.
func (w *tableau) entering(r int, zero []bool, little float64) int {
	row := w.row(r)
	sign := 1.0
	if w.beta[r] < 0 {
		sign = -1
	}
	limit := math.Inf(1)
	for j, v := range row {
		v *= sign
		if v > leastPivot && (max(w.d[j], 0)+little) < limit*v && !isZero(zero, w.free[j]) {
			limit = (max(w.d[j], 0) + little) / v
		}
	}
	found, size := -1, 0.0
	for j, v := range row {
		v *= sign
		if v > leastPivot && v > size && max(w.d[j], 0) <= limit*v && !isZero(zero, w.free[j]) {
			found, size = j, v
		}
	}
	return found
}

// addRow appends a row, divided by its unit; its slack variable becomes basic.
// Bids that are basic are replaced by their own rows. rowOf says in which row a
// bid is basic, colOf in which column it is free; -1 means in none. A bid that
// is in neither was forced to 0 and dropped.
func (w *tableau) addRow(slack int32, unit, rhs float64, bids []int32, coef []int32, rowOf, colOf []int32) int64 {
	need := (w.rows + 1) * w.cols
	if cap(w.a) < need {
		grown := make([]float64, need, need+need/2)
		copy(grown, w.a)
		w.a = grown
	}
	w.a = w.a[:need]
	w.rows++
	r := w.row(w.rows - 1)
	clear(r)
	rhs /= unit
	work := int64(w.cols)
	for k, b := range bids {
		f := float64(coef[k]) / unit
		if c := colOf[b]; c >= 0 {
			r[c] += f
		} else if i := rowOf[b]; i >= 0 {
			subtract(r, w.row(int(i)), f)
			rhs -= float64(f * w.beta[i])
			work += int64(w.cols)
		}
	}
	w.beta = append(w.beta[:w.rows-1], rhs)
	w.weight = append(w.weight[:w.rows-1], 1)
	w.basic = append(w.basic[:w.rows-1], slack)
	return work
}

// copyFrom makes w a copy of v without the columns of variables that are forced
// to 0 and without rows that do not bind. A row goes if its basic variable is a
// slack variable (rowVars or above, so not that of a job row) with a value
// above 0: its constraint does not bind, and separate adds it again if a later
// solution violates it. w may be v itself, because entries only move to lower
// indices.
func (w *tableau) copyFrom(v *tableau, zero []bool, rowVars int32) {
	w.keep = w.keep[:0]
	for j, x := range v.free[:v.cols] {
		if !isZero(zero, x) {
			w.keep = append(w.keep, int32(j))
		}
	}
	rows, cols := v.rows, v.cols
	a, beta, basic, weight := v.a, v.beta, v.basic, v.weight
	free, d := v.free, v.d
	w.free, w.d = w.free[:0], w.d[:0]
	for _, j := range w.keep {
		w.free = append(w.free, free[j])
		w.d = append(w.d, d[j])
	}
	w.z, w.cols, w.rows = v.z, len(w.keep), 0
	w.beta, w.basic, w.a, w.weight = w.beta[:0], w.basic[:0], w.a[:0], w.weight[:0]
	for i := range rows {
		if basic[i] >= rowVars && beta[i] > feasible {
			continue
		}
		w.rows++
		w.beta = append(w.beta, beta[i])
		w.basic = append(w.basic, basic[i])
		w.weight = append(w.weight, weight[i])
		from := a[i*cols : (i+1)*cols]
		if len(w.keep) == cols {
			w.a = append(w.a, from...)
			continue
		}
		for _, j := range w.keep {
			w.a = append(w.a, from[j])
		}
	}
}

// has says whether the variable is in the tableau.
func (w *tableau) has(v int32) bool {
	return slices.Contains(w.basic[:w.rows], v) || slices.Contains(w.free[:w.cols], v)
}
