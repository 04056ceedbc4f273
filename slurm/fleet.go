package slurm

import (
	"slices"

	"muster/model"
	"muster/policy"
)

// fleet is the nodes and partitions, as Slurm says they are; it keeps the policy's book of nodes.
type fleet struct {
	*present
	out  *outbox
	book *book

	nodes      []*node
	byName     map[string]*node
	partitions map[string]*partition
	reserved   []Reservation
	largest    int // processors of the largest node
	threads    int
	leastMem   int64
}

type partition struct {
	Partition
	names []string
}

type node struct {
	Node
	number  int32
	crowded bool // a job uses something that the book has no room for
	noted   bool // that it is crowded was logged
	gone    bool
	// book is how many of its GPUs the policy's book has, lends the set of those that are usable.
	book  int
	lends uint64
	odd   bool // its GPUs cannot be entered in the book, and that was logged
}

// crowd closes a node to new jobs, because a job uses something there that the book has no room
// for.
func (fl *fleet) crowd(n int32) {
	node := fl.nodes[n]
	if !node.crowded {
		node.crowded = true
		fl.setNode(node)
	}
	if !node.noted {
		node.noted = true
		fl.out.note("more of node %s is used than is known: nothing is placed there until it is clear", node.Name)
	}
}

// takeNodes brings the nodes up to date. The book cannot shrink a node, so one whose hardware has
// changed is not used.
func (fl *fleet) takeNodes(list []Node) {
	for _, n := range fl.nodes {
		n.gone = true
	}
	added := false
	for i := range list {
		n := fl.byName[list[i].Name]
		if n == nil {
			if n = fl.addNode(list[i]); n == nil {
				continue
			}
			added = true
		}
		n.gone = false
		if n.CPUs != list[i].CPUs || n.Memory != list[i].Memory || n.GPUs != list[i].GPUs {
			fl.out.note("node %s has changed (%d processors, %d GPUs): it is not used until the driver is started again", n.Name, list[i].CPUs, list[i].GPUs)
			n.States = []string{"CHANGED"}
		} else {
			n.States, n.Reason = list[i].States, list[i].Reason
		}
	}
	for _, n := range fl.nodes {
		fl.setNode(n)
	}
	if added {
		fl.setWindows()
		fl.book.due()
	}
}

func (fl *fleet) addNode(f Node) *node {
	m := model.Node{Name: f.Name, Cores: f.CPUs, Memory: f.Memory, GPUs: make([]int, f.GPUs)}
	var types []model.GPUType
	if f.GPUs > 0 {
		kind := f.GPUType
		if kind == "" {
			kind = "gpu"
		}
		types = append(types, model.GPUType{Name: kind, Memory: fl.cfg.GPUMemory, Speed: 1})
	}
	number, err := fl.book.state.AddNode(m, types...)
	if err != nil {
		fl.out.note("node %s is left out: %v", f.Name, err)
		return nil
	}
	n := &node{Node: f, number: number, book: f.GPUs, lends: 1<<f.GPUs - 1}
	fl.nodes = append(fl.nodes, n)
	fl.byName[f.Name] = n
	fl.largest, fl.threads = max(fl.largest, f.CPUs), max(fl.threads, f.Threads)
	if fl.leastMem == 0 || f.Memory < fl.leastMem {
		fl.leastMem = f.Memory
	}
	return n
}

// setNode tells the policy the state of a node.
func (fl *fleet) setNode(n *node) {
	st := policy.NodeUp
	switch {
	case n.gone || n.down():
		st = policy.NodeDown
	case n.crowded || !n.up():
		st = policy.NodeDraining
	}
	if fl.book.state.NodeState(n.number) != st {
		must(fl.book.state.SetNode(n.number, st))
		fl.book.due()
	}
}

// setWindows tells the policy of reservations.
func (fl *fleet) setWindows() {
	var list []policy.Window
	for _, r := range fl.reserved {
		w := policy.Window{Name: r.Name, From: max(0, fl.policyTime(r.From)), Until: fl.policyTime(r.Until), Users: r.Users, Accounts: r.Accounts}
		if w.From >= w.Until {
			continue
		}
		for _, name := range names(r.Nodes) {
			if n := fl.byName[name]; n != nil {
				w.Nodes = append(w.Nodes, n.number)
			}
		}
		if len(w.Nodes) == 0 {
			continue
		}
		if len(list) == policy.MaxWindows {
			fl.out.note("there are more than %d reservations: Slurm itself keeps jobs out of the others", policy.MaxWindows)
			break
		}
		list = append(list, w)
	}
	slices.SortFunc(list, func(a, b policy.Window) int { return int(min(1, max(-1, a.From-b.From))) })
	if sameWindows(list, fl.book.state.Windows()) {
		return
	}
	if err := fl.book.state.SetWindows(list); err != nil {
		fl.out.note("reservations: %v", err)
		return
	}
	fl.book.due()
}

func sameWindows(a, b []policy.Window) bool {
	return slices.EqualFunc(a, b, func(x, y policy.Window) bool {
		return x.Name == y.Name && x.Until == y.Until && (x.From == y.From) && slices.Equal(x.Nodes, y.Nodes) && slices.Equal(x.Users, y.Users) && slices.Equal(x.Accounts, y.Accounts)
	})
}
