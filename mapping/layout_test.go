package mapping

import (
	"math/rand/v2"
	"time"
)

// even is a cluster of equal nodes of 12 cores, of which the first part belongs to application 0, the rest to 1.
func even(nodes, perNode, firstApp int) *Layout {
	l := &Layout{First: []int32{0}, Critical: []bool{false, false}, Bandwidth: 100e6}
	for n := range nodes {
		l.Cores = append(l.Cores, 12)
		owner := int32(0)
		if n >= firstApp {
			owner = 1
		}
		l.Owner = append(l.Owner, owner)
		for range perNode {
			l.NodeOf, l.Speed = append(l.NodeOf, int32(n)), append(l.Speed, 1)
		}
		l.First = append(l.First, int32(len(l.NodeOf)))
	}
	return l
}

// sees is the view of a table by which nothing is behind.
func sees(t *Table) *View {
	return &View{Table: t, Local: t, Rand: rand.New(rand.NewPCG(1, 2))}
}

// ran lets a device have run one kernel of its own node.
func ran(t *Table, d int32, took time.Duration) {
	c := &Call{Node: t.layout.NodeOf[d]}
	expected := t.Assign(c, d)
	t.Begin(d, expected, 0)
	t.Finish(c, d, expected, took)
}

// put assigns calls of a node to a device.
func put(t *Table, node, d int32, calls int) {
	for range calls {
		t.Assign(&Call{Node: node}, d)
	}
}
