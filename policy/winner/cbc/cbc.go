//go:build cbc

package cbc

// #cgo CFLAGS: -I/usr/include/coin
// #cgo LDFLAGS: -lCbcSolver -lCbc -lCgl -lOsiClp -lClpSolver -lClp -lOsi -lCoinUtils -lm
// #include <stdlib.h>
// #include <Cbc_C_Interface.h>
import "C"

import (
	"fmt"
	"math"
	"slices"
	"unsafe"

	"muster/policy/winner"
)

// Solver gives the program to CBC. It has its own limits: those of package winner count steps that
// CBC does not have.
type Solver struct {
	// Seconds is the time limit of CBC; 0 means none.
	Seconds float64
}

var _ winner.Solver = Solver{}

// model is the program as CBC wants it: columns, rows, and the matrix by column.
type model struct {
	upper, value []float64
	entries      [][]entry // by column
	low, high    []float64 // by row
}

type entry struct {
	row   C.int
	value float64
}

func (m *model) column(upper, value float64) int {
	m.upper = append(m.upper, upper)
	m.value = append(m.value, value)
	m.entries = append(m.entries, nil)
	return len(m.upper) - 1
}

func (m *model) row(low, high float64) int {
	m.low = append(m.low, low)
	m.high = append(m.high, high)
	return len(m.low) - 1
}

func (m *model) set(row, column int, value float64) {
	m.entries[column] = append(m.entries[column], entry{C.int(row), value})
}

// site is what a bid takes of a node: u and r of the paper. Each bid has its own, so that the
// classes of a job may overlap.
type site struct {
	node      int32
	used, add int // columns; -1 where the bid leaves no choice
}

// Solve builds the program and runs CBC. Bids that ask for the same amount on each of all their
// nodes need only their own variable; the others also get u and r.
func (s Solver) Solve(p *winner.Problem, _ winner.Limits) (*winner.Answer, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	m := &model{}
	none := math.Inf(-1)
	jobs := make([]int, p.Jobs)
	for j := range jobs {
		jobs[j] = m.row(none, 1) // (2)
	}
	cores, gpus := make([]int, len(p.Cores)), make([]int, len(p.Cores))
	for n := range cores {
		cores[n] = m.row(none, float64(p.Cores[n])) // (5)
		gpus[n] = m.row(none, float64(p.GPUs[n]))   // (6)
	}
	sites := make([][]site, len(p.Bids))
	for i := range p.Bids {
		b := &p.Bids[i]
		x := m.column(1, float64(b.Value))
		if x != i {
			break
		}
		m.set(jobs[b.Job], x, 1)
	}
	for i := range p.Bids {
		b := &p.Bids[i]
		if b.PerNode > 0 && int(b.Count) == len(b.Nodes) {
			for _, n := range b.Nodes {
				m.set(cores[n], i, float64(b.PerNode))
				if b.GPUs > 0 {
					m.set(gpus[n], i, float64(b.GPUs))
				}
				sites[i] = append(sites[i], site{node: n, used: -1, add: -1})
			}
			continue
		}
		count := m.row(0, 0) // (3)
		m.set(count, i, -float64(b.Count))
		total := -1
		if b.PerNode == 0 {
			total = m.row(0, 0) // (4)
			m.set(total, i, -float64(b.Total))
		}
		for _, n := range b.Nodes {
			at := site{node: n, used: m.column(1, 0), add: -1}
			m.set(count, at.used, 1)
			if b.GPUs > 0 {
				m.set(gpus[n], at.used, float64(b.GPUs))
			}
			if b.PerNode > 0 { // (8)
				m.set(cores[n], at.used, float64(b.PerNode))
			} else {
				most := float64(min(p.Cores[n], b.Total) - 1)
				at.add = m.column(max(most, 0), 0)
				m.set(cores[n], at.used, 1)
				m.set(cores[n], at.add, 1)
				m.set(total, at.used, 1)
				m.set(total, at.add, 1)
				if most > 0 { // (7)
					link := m.row(none, 0)
					m.set(link, at.add, 1)
					m.set(link, at.used, -most)
				}
			}
			sites[i] = append(sites[i], at)
		}
	}
	x, value, bound, proven, err := m.solve(s.Seconds)
	if err != nil {
		return nil, err
	}
	return answer(p, sites, x, value, bound, proven), nil
}

func answer(p *winner.Problem, sites [][]site, x []float64, value, bound float64, proven bool) *winner.Answer {
	a := &winner.Answer{Method: "cbc"}
	yes := func(column int) bool { return x[column] > 0.5 }
	for i := range p.Bids {
		if x == nil || !yes(i) {
			continue
		}
		b := &p.Bids[i]
		a.Value += b.Value
		w := winner.Win{Bid: int32(i)}
		for _, at := range sites[i] {
			c := b.PerNode
			if at.used >= 0 && !yes(at.used) {
				continue
			}
			if at.add >= 0 {
				c = 1 + int32(math.Round(x[at.add]))
			}
			w.Nodes = append(w.Nodes, at.node)
			w.Cores = append(w.Cores, c)
		}
		a.Won = append(a.Won, w)
	}
	a.Bound = a.Value
	if !proven {
		// CBC computes with tolerances, so the bound is relaxed by them.
		a.Bound = max(a.Value, int64(math.Floor(bound+1e-6*math.Abs(bound))))
	}
	a.Proven = a.Bound == a.Value
	return a
}

// solve passes the model to CBC.
func (m *model) solve(seconds float64) (x []float64, value, bound float64, proven bool, err error) {
	columns, rows := len(m.upper), len(m.low)
	if columns == 0 {
		return nil, 0, 0, true, nil
	}
	start := make([]C.CoinBigIndex, columns+1)
	var index []C.int
	var coefficient []C.double
	lower, upper, objective := make([]C.double, columns), make([]C.double, columns), make([]C.double, columns)
	for c := range columns {
		slices.SortFunc(m.entries[c], func(x, y entry) int { return int(x.row - y.row) })
		for _, e := range m.entries[c] {
			index = append(index, e.row)
			coefficient = append(coefficient, C.double(e.value))
		}
		start[c+1] = C.CoinBigIndex(len(index))
		upper[c] = C.double(m.upper[c])
		objective[c] = C.double(m.value[c])
	}
	low, high := make([]C.double, rows), make([]C.double, rows)
	for r := range rows {
		low[r], high[r] = C.double(max(m.low[r], -math.MaxFloat64)), C.double(m.high[r])
	}
	c := C.Cbc_newModel()
	defer C.Cbc_deleteModel(c)
	set := func(name, value string) {
		n, v := C.CString(name), C.CString(value)
		C.Cbc_setParameter(c, n, v)
		C.free(unsafe.Pointer(n))
		C.free(unsafe.Pointer(v))
	}
	C.Cbc_loadProblem(c, C.int(columns), C.int(rows), &start[0], first(index), first(coefficient),
		&lower[0], &upper[0], &objective[0], first(low), first(high))
	C.Cbc_setObjSense(c, -1)
	for i := range columns {
		C.Cbc_setInteger(c, C.int(i))
	}
	C.Cbc_setLogLevel(c, 0)
	set("logLevel", "0")
	set("ratioGap", "0")
	set("allowableGap", "0")
	if seconds > 0 {
		set("seconds", fmt.Sprint(seconds))
	}
	C.Cbc_solve(c)
	bound = float64(C.Cbc_getBestPossibleObjValue(c))
	proven = C.Cbc_isProvenOptimal(c) != 0
	if C.Cbc_isProvenInfeasible(c) != 0 || C.Cbc_isAbandoned(c) != 0 {
		return nil, 0, 0, false, fmt.Errorf("gave the program up (status %d): look at the problem with winner.Check and Validate", C.Cbc_status(c))
	}
	if best := C.Cbc_bestSolution(c); best != nil {
		for _, v := range unsafe.Slice(best, columns) {
			x = append(x, float64(v))
		}
		value = float64(C.Cbc_getObjValue(c))
	} else if proven {
		return nil, 0, 0, false, fmt.Errorf("says it is done but has no answer")
	}
	return x, value, bound, proven, nil
}

// first is the address of a slice's elements for C; nil if it is empty.
func first[T any](s []T) *T {
	if len(s) == 0 {
		return nil
	}
	return &s[0]
}
