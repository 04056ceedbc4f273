package prices

// simplex maximises goal . x where rows . x <= right and x >= 0; the right
// sides are not negative, so that all zero is where it starts.
type simplex struct {
	n    int
	goal []float64
	rows [][]float64 // n coefficients and the right side
}

func newSimplex(n int) *simplex { return &simplex{n: n, goal: make([]float64, n)} }

// row adds a row; the caller fills in its coefficients.
func (s *simplex) row(right float64) []float64 {
	r := make([]float64, s.n+1)
	r[s.n] = right
	s.rows = append(s.rows, r)
	return r
}

// tiny is taken for zero.
const tiny = 1e-9

// maxPivots ends a search that goes in circles; what was found by then is used.
const maxPivots = 2000

// solve pivots on the condensed tableau. Products are rounded one by one (the
// conversions), so that every machine computes the same result.
func (s *simplex) solve() []float64 {
	n, m := s.n, len(s.rows)
	cost := make([]float64, n+1)
	copy(cost, s.goal)
	// at[j] and in[i] name the variables of columns and rows: below n those of
	// the caller, then the slack of each row.
	at, in := make([]int, n), make([]int, m)
	for j := range at {
		at[j] = j
	}
	for i := range in {
		in[i] = n + i
	}
	for range maxPivots {
		// Bland's rule: the first variable that gains; it never circles in exact numbers.
		col := -1
		for j := range n {
			if cost[j] > tiny && (col < 0 || at[j] < at[col]) {
				col = j
			}
		}
		if col < 0 {
			break
		}
		row := -1
		least := 0.0
		for i, r := range s.rows {
			if r[col] <= tiny {
				continue
			}
			if q := r[n] / r[col]; row < 0 || q < least-tiny || q <= least+tiny && in[i] < in[row] {
				row, least = i, q
			}
		}
		if row < 0 {
			break // without a limit: no program of this package is
		}
		s.pivot(cost, row, col)
		at[col], in[row] = in[row], at[col]
	}
	x := make([]float64, n)
	for i, v := range in {
		if v < n {
			x[v] = max(0, s.rows[i][n])
		}
	}
	return x
}

func (s *simplex) pivot(cost []float64, row, col int) {
	p := s.rows[row]
	inv := 1 / p[col]
	for j := range p {
		p[j] = float64(p[j] * inv)
	}
	p[col] = inv
	reduce := func(r []float64) {
		f := r[col]
		if f == 0 {
			return
		}
		r[col] = 0
		for j := range r {
			r[j] -= float64(f * p[j])
		}
	}
	for i, r := range s.rows {
		if i != row {
			reduce(r)
		}
	}
	reduce(cost)
}
