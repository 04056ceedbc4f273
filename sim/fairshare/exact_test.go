package fairshare

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The solver of this file knows neither ports nor filling: it makes the
// smallest rate as large as a set of linear constraints allows, then the
// smallest of those that can still rise, and so on, by linear programs in
// exact arithmetic.

// fairest returns the x >= 0 with A x <= b that is max-min fair; b >= 0.
func fairest(a [][]*big.Rat, b []*big.Rat) []*big.Rat {
	vars := len(a[0])
	x := make([]*big.Rat, vars)
	for i := range x {
		x[i] = new(big.Rat)
	}
	free := make([]bool, vars)
	for i := range free {
		free[i] = true
	}
	for left := vars; left > 0; {
		rest := slack(a, b, x)
		// How far can all that are free rise together? The last variable is the rise.
		var rows [][]*big.Rat
		var bounds []*big.Rat
		for i := range a {
			rows = append(rows, append(append([]*big.Rat{}, a[i]...), new(big.Rat)))
			bounds = append(bounds, rest[i])
		}
		for f := range free {
			if free[f] {
				row := unit(vars+1, vars)
				row[f] = big.NewRat(-1, 1)
				rows, bounds = append(rows, row), append(bounds, new(big.Rat))
			}
		}
		rise := maximise(rows, bounds, unit(vars+1, vars))[vars]
		for f := range free {
			if free[f] {
				x[f].Add(x[f], rise)
			}
		}
		// Which of them can rise further, when no other falls?
		rest = slack(a, b, x)
		rises := make([]bool, vars)
		for f := range free {
			if !free[f] || rises[f] {
				continue
			}
			for g, more := range maximise(a, rest, unit(vars, f)) {
				rises[g] = rises[g] || more.Sign() > 0
			}
			if !rises[f] {
				free[f] = false
				left--
			}
		}
	}
	return x
}

// slack is b - A x.
func slack(a [][]*big.Rat, b, x []*big.Rat) []*big.Rat {
	out := make([]*big.Rat, len(b))
	for i := range b {
		out[i] = new(big.Rat).Set(b[i])
		for j := range x {
			out[i].Sub(out[i], new(big.Rat).Mul(a[i][j], x[j]))
		}
	}
	return out
}

// unit is the unit vector i of n.
func unit(n, i int) []*big.Rat {
	v := make([]*big.Rat, n)
	for j := range v {
		v[j] = new(big.Rat)
	}
	v[i].SetInt64(1)
	return v
}

// maximise returns an x >= 0 with A x <= b for which c x is largest; b >= 0.
// It is the simplex method with Bland's rule, which does not go round in circles.
func maximise(a [][]*big.Rat, b, c []*big.Rat) []*big.Rat {
	rows, vars := len(a), len(c)
	width := vars + rows + 1 // variables, slacks, right side
	table := make([][]*big.Rat, rows+1)
	basis := make([]int, rows)
	for i := range table {
		table[i] = make([]*big.Rat, width)
		for j := range table[i] {
			table[i][j] = new(big.Rat)
		}
	}
	for i := range rows {
		for j := range vars {
			table[i][j].Set(a[i][j])
		}
		table[i][vars+i].SetInt64(1)
		table[i][width-1].Set(b[i])
		basis[i] = vars + i
	}
	for j := range vars {
		table[rows][j].Set(c[j])
	}
	for {
		enter := -1
		for j := 0; j < width-1 && enter < 0; j++ {
			if table[rows][j].Sign() > 0 {
				enter = j
			}
		}
		if enter < 0 {
			break
		}
		leave, least := -1, new(big.Rat)
		for i := range rows {
			if table[i][enter].Sign() <= 0 {
				continue
			}
			ratio := new(big.Rat).Quo(table[i][width-1], table[i][enter])
			if d := ratio.Cmp(least); leave < 0 || d < 0 || d == 0 && basis[i] < basis[leave] {
				leave, least = i, ratio
			}
		}
		if leave < 0 {
			panic("fairshare: the linear program has no bound")
		}
		pivot(table, leave, enter)
		basis[leave] = enter
	}
	x := make([]*big.Rat, vars)
	for j := range x {
		x[j] = new(big.Rat)
	}
	for i, j := range basis {
		if j < vars {
			x[j].Set(table[i][width-1])
		}
	}
	return x
}

func pivot(table [][]*big.Rat, row, column int) {
	by := new(big.Rat).Inv(table[row][column])
	for _, v := range table[row] {
		v.Mul(v, by)
	}
	for i := range table {
		if i == row || table[i][column].Sign() == 0 {
			continue
		}
		factor := new(big.Rat).Set(table[i][column])
		for j, v := range table[row] {
			if v.Sign() != 0 {
				table[i][j].Sub(table[i][j], new(big.Rat).Mul(factor, v))
			}
		}
	}
}

// exactly gives the exact division of the flows of a network.
func exactly(capacity []int64, flows [][2]int32) []*big.Rat {
	a, b := make([][]*big.Rat, len(capacity)), make([]*big.Rat, len(capacity))
	for p := range capacity {
		b[p] = big.NewRat(capacity[p], 1)
		for _, ports := range flows {
			uses := int64(0)
			if ports[0] == int32(p) || ports[1] == int32(p) {
				uses = 1
			}
			a[p] = append(a[p], big.NewRat(uses, 1))
		}
	}
	return fairest(a, b)
}

// TestSolver checks the solver against divisions made by hand.
func TestSolver(t *testing.T) {
	for _, c := range []struct {
		capacity []int64
		flows    [][2]int32
		want     string
	}{
		{[]int64{9}, [][2]int32{{0, -1}, {0, -1}, {0, -1}}, "[3 3 3]"},
		{[]int64{10, 4, 100}, [][2]int32{{0, 1}, {0, 1}, {0, 2}}, "[2 2 6]"},
		// A flow through all of a chain, and one through each link.
		{[]int64{10, 6, 3}, [][2]int32{{0, 1}, {1, 2}, {2, -1}, {0, -1}}, "[9/2 3/2 3/2 11/2]"},
		{[]int64{0, 5}, [][2]int32{{0, 1}, {1, -1}}, "[0 5]"},
	} {
		var got []string
		for _, x := range exactly(c.capacity, c.flows) {
			got = append(got, x.RatString())
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v over %v: %v, want %s", c.flows, c.capacity, got, c.want)
		}
	}
}

// TestExact compares with the solver after flows came and went at random. The
// rates may be off by a unit for each flow; in units so small that no division
// has a rest they may not.
func TestExact(t *testing.T) {
	const most, divisible = 7, 420 // flows, and a multiple of all numbers up to that
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 60
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 2))
		kind := kinds[seed%uint64(len(kinds))]
		ports := 2 * (1 + rng.IntN(3))
		capacity := make([]int64, ports)
		for p := range capacity {
			capacity[p] = kind.capacity(rng)
		}
		var flows [][2]int32
		for range 1 + rng.IntN(most) {
			flows = append(flows, kind.flow(rng, ports))
		}
		exact := exactly(capacity, flows)

		for i, f := range wander(rng, capacity, flows, kind) {
			off := new(big.Rat).Sub(exact[i], big.NewRat(f, 1))
			if off.Abs(off).Cmp(big.NewRat(int64(len(flows)), 1)) > 0 {
				t.Fatalf("seed %d, %s: %v over %v: flow %d gets %d, not %s",
					seed, kind.name, flows, capacity, i, f, exact[i].FloatString(2))
			}
		}

		unit := big.NewInt(divisible) // and a multiple of the denominators
		for _, x := range exact {
			d := new(big.Int).Set(x.Denom())
			unit.Mul(unit, d.Div(d, new(big.Int).GCD(nil, nil, unit, x.Denom())))
		}
		for p := range capacity {
			capacity[p] *= unit.Int64()
		}
		for i, f := range wander(rng, capacity, flows, kind) {
			want := new(big.Rat).Mul(exact[i], new(big.Rat).SetInt(unit))
			if want.Cmp(big.NewRat(f, 1)) != 0 {
				t.Fatalf("seed %d, %s: %v over %v: flow %d gets %d, not exactly %s",
					seed, kind.name, flows, capacity, i, f, want.RatString())
			}
		}
	}
}

// wander reaches a network with these flows by way of others, in small steps,
// and returns the rates.
func wander(rng *rand.Rand, capacity []int64, flows [][2]int32, kind kind) []int64 {
	n := New(capacity)
	names := make([]Flow, len(flows))
	var passing []Flow
	for _, i := range rng.Perm(len(flows)) {
		for range rng.IntN(3) {
			ports := kind.flow(rng, len(capacity))
			passing = append(passing, n.Add(ports[0], ports[1]))
			n.Settle()
		}
		names[i] = n.Add(flows[i][0], flows[i][1])
		n.Settle()
	}
	rng.Shuffle(len(passing), func(i, j int) { passing[i], passing[j] = passing[j], passing[i] })
	for _, f := range passing {
		n.Remove(f)
		n.Settle()
	}
	rates := make([]int64, len(flows))
	for i, f := range names {
		rates[i] = n.Rate(f)
	}
	return rates
}
