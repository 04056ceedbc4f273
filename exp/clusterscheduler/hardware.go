package clusterscheduler

import (
	"fmt"
	"strings"

	"muster/model"
)

// card is a GPU of the paper, as Tables 4-3 and 4-4 describe it.
type card struct {
	name  string
	cores int
	clock float64 // GHz; the table lacks that of the GTX 480, so it is from the card's specification
}

var (
	gtx480     = card{"GTX 480", 15 * 32, 1.40}
	k40c       = card{"Tesla K40c", 15 * 192, 0.876}
	c2075      = card{"Tesla C2075", 14 * 32, 1.147}
	c2070      = card{"Tesla C2070", 14 * 32, 1.147}
	k20c       = card{"Tesla K20c", 13 * 192, 0.706}
	c2050      = card{"Tesla C2050", 14 * 32, 1.147}
	quadro2000 = card{"Quadro 2000", 192, 1.2}
	gtx460     = card{"GTX 460", 336, 1.4}
)

// power is the speed of a card relative to the C2050.
func (c card) power() float64 {
	return float64(c.cores) * c.clock / (float64(c2050.cores) * c2050.clock)
}

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
	{"node2", []card{k40c, c2075, c2070}},
	{"node3", []card{k20c, c2050}},
}, [3][]int{{4, 3, 2}, {4, 8, 4}, {8, 4, 4}}, 2}

// commodity: the text gives no weights for this cluster. Ours are by the number of GPUs, by their
// cores, and twice the latter.
var commodity = cluster{"commodity", "commodity cluster", workstations(5, 3),
	[3][]int{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 2, 2, 2}, {2, 2, 2, 2, 2, 4, 4, 4}}, 1}

// workstations makes nodes with one GPU each: the first one of type I, then two of type II.
func workstations(one, two int) []machine {
	var list []machine
	for i := range one + two {
		c := quadro2000
		if i >= one {
			c = gtx460
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
	for _, c := range []card{gtx480, k40c, c2075, c2070, k20c, c2050, quadro2000, gtx460} {
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
// cards. Only the ratios of their speeds matter.
func (m *machine) devices() string {
	var list []string
	for i, k := range m.cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,memory=%d,speed=%.6f,rate=%.0f,workers=1", k.name, i, deviceMemory, k.power()/8, rate*k.power()))
	}
	return strings.Join(list, ";")
}

// simulated is the cluster as the simulator's model.
func simulated(hosts []host) *model.Cluster {
	m := &model.Cluster{}
	types := map[string]int{}
	for _, h := range hosts {
		n := model.Node{Name: h.name, Cores: h.cores, Memory: nodeMemory, Link: model.Link{Bandwidth: link}}
		for _, k := range h.cards {
			t, known := types[k.name]
			if !known {
				t = len(m.GPUTypes)
				types[k.name] = t
				m.GPUTypes = append(m.GPUTypes, model.GPUType{Name: k.name, Memory: deviceMemory, Speed: k.power()})
			}
			n.GPUs = append(n.GPUs, t)
		}
		m.Nodes = append(m.Nodes, n)
	}
	return m
}

const nodeMemory = 8 << 30
