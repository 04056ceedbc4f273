package clusterscheduler

import (
	"fmt"

	"muster/exp/bench"
	"muster/model"
)

type card = bench.Card

// gtx480 has the clock of its specification: Table 4-3 has none, and the recorded measurements were made with it, not
// with that of Table 5-2.
var gtx480 = bench.GTX480.As("GTX 480", 1.40)

// cards are all kinds of cards of Tables 4-3 and 4-4.
var cards = []card{gtx480, bench.K40c, bench.C2075, bench.C2070, bench.K20c, bench.C2050, bench.Quadro2000, bench.GTX460}

// machine is a node of the paper's clusters.
type machine struct {
	name  string
	cards []card
}

// cluster is one of the paper's two clusters.
type cluster struct {
	key, name string
	machines  []machine
	// weights are WG1 to WG3 of Fig. 4-4, one weight per machine. best is the index of those that
	// Fig. 4-5 uses.
	weights [3][]int
	best    int
}

var highEnd = cluster{"highend", "high-end cluster", []machine{
	{"node1", []card{gtx480, gtx480, gtx480, gtx480}},
	{"node2", []card{bench.K40c, bench.C2075, bench.C2070}},
	{"node3", []card{bench.K20c, bench.C2050}},
}, [3][]int{{4, 3, 2}, {4, 8, 4}, {8, 4, 4}}, 2}

// commodity: the text gives no weights for this cluster. Ours are by the number of GPUs, by their
// cores, and twice the latter.
var commodity = cluster{"commodity", "commodity cluster", workstations(5, 3),
	[3][]int{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 2, 2, 2}, {2, 2, 2, 2, 2, 4, 4, 4}}, 1}

// workstations makes nodes with one GPU each: the first one of type I, then two of type II.
func workstations(one, two int) []machine {
	var list []machine
	for i := range one + two {
		c := bench.Quadro2000
		if i >= one {
			c = bench.GTX460
		}
		list = append(list, machine{fmt.Sprintf("node%d", i+1), []card{c}})
	}
	return list
}

var clusters = []*cluster{&highEnd, &commodity}

// host is a node of a cluster to be started. Its cores limit the number of its processes.
type host struct {
	machine
	cores int
}

// plenty is the number of cores of nodes on which the policy alone limits the number of processes.
const plenty = 64

// whole are all nodes of the cluster; the policy chooses the number of processes on each.
func (c *cluster) whole() []host {
	var list []host
	for _, m := range c.machines {
		list = append(list, host{m, plenty})
	}
	return list
}

// mapped are nodes with exactly these numbers of cores, and so of processes. Nodes without any are
// left out.
func (c *cluster) mapped(processes []int) []host {
	var list []host
	for i, n := range processes {
		if n > 0 {
			list = append(list, host{c.machines[i], n})
		}
	}
	return list
}

// slots are the nodes as seen by a batch system that gives each process its own GPU: every GPU is a
// host for one process. Their order is that in which processes are assigned: the first GPU of each
// node, then the second of each, and so on.
func (c *cluster) slots() []host {
	var list []host
	for gpu := 0; ; gpu++ {
		before := len(list)
		for _, m := range c.machines {
			if gpu < len(m.cards) {
				// The suffix after the dash distinguishes the hosts of one machine; machineOf
				// removes it.
				list = append(list, host{machine{fmt.Sprintf("%s-%d", m.name, gpu), m.cards[gpu : gpu+1]}, 1})
			}
		}
		if len(list) == before {
			return list
		}
	}
}

// kinds are hosts for the profile, with one GPU each: one for each kind of card of both clusters.
func kinds() []host {
	var list []host
	for _, c := range cards {
		list = append(list, host{machine{"profile" + fmt.Sprint(len(list)+1), []card{c}}, 1})
	}
	return list
}

// rate is how many operations per second a C2050 executes here. It is so low that all GPUs of a
// cluster together need only a part of this machine, so that programs wait for GPUs and not for
// processors.
const rate = 5e6

// Sizes of the GPUs' memory, which is always sufficient here.
const (
	deviceMemory = 1 << 30
	shareMemory  = 32 << 20 // per shared device and job; a process needs 2 MiB
)

// devices is the option --devices of a node with software GPUs that stand in for the machine's
// cards.
func (m *machine) devices() string {
	return bench.Devices(m.cards, rate, 8, card.Power, func(card) string { return fmt.Sprintf("memory=%d", deviceMemory) })
}

// simulated is the cluster as the simulator's model.
func simulated(hosts []host) *model.Cluster {
	m := &model.Cluster{}
	types := map[string]int{}
	for _, h := range hosts {
		n := model.Node{Name: h.name, Cores: h.cores, Memory: nodeMemory, Link: model.Link{Bandwidth: link}}
		for _, k := range h.cards {
			t, known := types[k.Name]
			if !known {
				t = len(m.GPUTypes)
				types[k.Name] = t
				m.GPUTypes = append(m.GPUTypes, model.GPUType{Name: k.Name, Memory: deviceMemory, Speed: k.Power()})
			}
			n.GPUs = append(n.GPUs, t)
		}
		m.Nodes = append(m.Nodes, n)
	}
	return m
}

const nodeMemory = 8 << 30
