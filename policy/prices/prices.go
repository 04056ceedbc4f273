// Package prices says what the time of a node is worth to each kind of work:
// the dual of a small linear program over node configurations.
//
// A configuration is a set of units of work that one node can do at the same
// time. To get all the work done in the least time is to choose how long each
// configuration is used; the dual variables of that program are the prices. A
// kind whose price is 0 fits beside the others for nothing; kinds that nothing
// fits beside cost a whole node.
//
// The package knows numbers only: no job, no cluster, no clock. Prices are
// whole numbers, and what they prove is proven in whole numbers: whatever the
// floating-point part comes up with, the sum of prices over any configuration
// of a node is at most the Node value that is returned with them.
package prices

import "slices"

// Kind is a kind of work: what one unit takes of a node while it is done.
type Kind struct {
	Cores, GPUs int32
	// Demand is the work in all: units times the time that each takes.
	Demand int64
}

// Nodes are nodes of one type.
type Nodes struct {
	Cores, GPUs int32
	Count       int64
}

// Table has the worth of what is free of a node.
type Table struct {
	// Kind is the price of a unit of each kind.
	Kind []int64
	// Node is the worth of a whole idle node of each type: no configuration of
	// such a node is worth more.
	Node []int64

	gpus  int32
	worth []int64
}

// Worth is the value of the best use of this many free cores and GPUs.
func (t *Table) Worth(cores, gpus int32) int64 { return t.worth[cores*(t.gpus+1)+gpus] }

// Unit is about what a whole node is worth to the work that needs it most.
const Unit = 1 << 20

// maxCuts bounds the configurations that the program is told of.
const maxCuts = 200

// Solve finds prices for which the work is worth as much as possible against
// the worth of all nodes. Kinds that fit on no node are worth nothing.
func Solve(kinds []Kind, nodes []Nodes) *Table {
	price := make([]float64, len(kinds))
	var cuts []cut
	for len(cuts) < maxCuts {
		value := best(kinds, nodes, cuts, price)
		added := false
		t := tabulate(kinds, nodes, whole(price))
		for i := range nodes {
			// What the program believes such a node to be worth, against the truth.
			if t.Node[i] > whole1(value[i])+Unit/1024 {
				cuts = append(cuts, cut{int32(i), t.configuration(kinds, nodes[i])})
				added = true
			}
		}
		if !added {
			break
		}
	}
	return tabulate(kinds, nodes, whole(price))
}

// With values the nodes with prices that were found elsewhere.
func With(kinds []Kind, nodes []Nodes, price []int64) *Table { return tabulate(kinds, nodes, price) }

func whole(price []float64) []int64 {
	out := make([]int64, len(price))
	for i, p := range price {
		out[i] = whole1(p)
	}
	return out
}

func whole1(p float64) int64 { return int64(float64(p * Unit)) }

// cut is a configuration of one type of nodes: units by kind.
type cut struct {
	node  int32
	units []int32
}

// tabulate works out the worth of every amount of free resources.
func tabulate(kinds []Kind, nodes []Nodes, price []int64) *Table {
	t := &Table{Kind: price, Node: make([]int64, len(nodes))}
	cores := int32(0)
	for _, n := range nodes {
		cores, t.gpus = max(cores, n.Cores), max(t.gpus, n.GPUs)
	}
	t.worth = make([]int64, (cores+1)*(t.gpus+1))
	for c := range cores + 1 {
		for g := range t.gpus + 1 {
			w := int64(0)
			for i := range kinds {
				if k := &kinds[i]; k.Cores <= c && k.GPUs <= g && k.Cores+k.GPUs > 0 {
					w = max(w, t.Worth(c-k.Cores, g-k.GPUs)+price[i])
				}
			}
			t.worth[c*(t.gpus+1)+g] = w
		}
	}
	for i, n := range nodes {
		t.Node[i] = t.Worth(n.Cores, n.GPUs)
	}
	return t
}

// configuration is a set of units that is worth as much as the node.
func (t *Table) configuration(kinds []Kind, n Nodes) []int32 {
	units := make([]int32, len(kinds))
	c, g := n.Cores, n.GPUs
search:
	for {
		for i := range kinds {
			k := &kinds[i]
			if k.Cores <= c && k.GPUs <= g && k.Cores+k.GPUs > 0 && t.Kind[i] > 0 &&
				t.Worth(c, g) == t.Worth(c-k.Cores, g-k.GPUs)+t.Kind[i] {
				units[i]++
				c, g = c-k.Cores, g-k.GPUs
				continue search
			}
		}
		return units
	}
}

// Configuration is a set of units of the kinds that fills a node of some type
// at the highest worth: units by kind.
func (t *Table) Configuration(kinds []Kind, n Nodes) []int32 { return t.configuration(kinds, n) }

// best solves the program with the cuts known so far, into price: maximise the
// sum of demand x price, where each cut is worth at most its node's value, and
// all nodes together are worth as many as there are. It returns the values of the types.
//
// The variables are prices, then node values; the rows are cuts (units x price -
// value <= 0), one row a kind that keeps prices finite while no cut knows them
// (price <= the value of a node that could do it alone), and the sum of all values.
func best(kinds []Kind, nodes []Nodes, cuts []cut, price []float64) []float64 {
	k, n := len(kinds), len(nodes)
	all, work := 0.0, 0.0
	for _, t := range nodes {
		all += float64(t.Count)
	}
	for i := range kinds {
		work += float64(kinds[i].Demand)
	}
	s := newSimplex(k + n)
	for i := range kinds {
		fits := false
		for j := range nodes {
			if kinds[i].Cores <= nodes[j].Cores && kinds[i].GPUs <= nodes[j].GPUs {
				row := s.row(0)
				row[i], row[k+j] = 1, -1
				fits = true
			}
		}
		if !fits {
			s.row(0)[i] = 1
		}
		s.goal[i] = float64(kinds[i].Demand) / max(1, work)
	}
	for _, c := range cuts {
		row := s.row(0)
		for i, u := range c.units {
			row[i] = float64(u)
		}
		row[k+int(c.node)] = -1
	}
	sum := s.row(1)
	for j := range nodes {
		sum[k+j] = float64(nodes[j].Count) / max(1, all)
	}
	x := s.solve()
	copy(price, x[:k])
	return slices.Clone(x[k:])
}
