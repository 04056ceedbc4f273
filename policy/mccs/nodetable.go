package mccs

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// nodeTable are the nodes that a library knows, and what they weigh.
type nodeTable struct {
	nodes  []*Node // as the view numbers them
	list   []*Node // as GetNodeList lists them
	byName map[string]*Node
	// weights that were set, by name, and of the first nodes.
	weights map[string]int
	inOrder []int
	spare   int // how many nodes have less than their weight
	// unsorted: the list of nodes is to be sorted by weight.
	unsorted bool
	sorts    bool
}

// GetNodeList is the list of nodes: those of the cluster in its order, and those that the
// program has added, where it has added them. After SortNodes larger weights stand first.
// The list must not be changed.
func (t *nodeTable) GetNodeList() []*Node {
	if t.unsorted && t.sorts {
		t.sortNodes()
	}
	return t.list
}

// SortNodes keeps the list of nodes in order of their weights, larger ones first, and
// equal ones as they were.
func (t *nodeTable) SortNodes() {
	t.sorts, t.unsorted = true, true
}

func (t *nodeTable) sortNodes() {
	t.unsorted = false
	slices.SortStableFunc(t.list, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(uint32(a.index), uint32(b.index)))
	})
}

// weightOf is the weight of a node of the cluster.
func (t *nodeTable) weightOf(n *Node) int {
	if w, set := t.weights[n.Name]; set {
		return w
	}
	if int(n.index) < len(t.inOrder) {
		return t.inOrder[n.index]
	}
	return len(n.spec.GPUs)
}

// SetWeights sets the weights of nodes: "8/4/4" those of the first nodes of the
// cluster, "a*8/b*4" those of nodes by name. Nodes that are not named weigh as much as they
// have GPUs. It holds for nodes that join later, too.
func (t *nodeTable) SetWeights(text string) error {
	clear(t.weights)
	t.inOrder = nil
	for item := range strings.SplitSeq(text, "/") {
		if item == "" {
			continue
		}
		name, number, named := strings.Cut(item, "*")
		if !named {
			number = name
		}
		w, err := strconv.Atoi(number)
		if err != nil || w < 0 || w > maxWeight {
			return fmt.Errorf("weight %q: write the weights of the first nodes as 8/4/4, or those of some as node1*8/node2*4", item)
		}
		if named {
			t.weights[name] = w
		} else {
			t.inOrder = append(t.inOrder, w)
		}
	}
	for _, n := range t.nodes {
		n.setWeight(t.weightOf(n))
	}
	t.unsorted = true
	return nil
}

// maxWeight keeps sums of weights far from overflow.
const maxWeight = 1 << 20
