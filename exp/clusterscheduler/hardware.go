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
	clock float64 // GHz; that of the GTX 480 is not in the table, and is the card's own
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

// power is how fast a card is, relative to the C2050.
func (c card) power() float64 {
	return float64(c.cores) * c.clock / (float64(c2050.cores) * c2050.clock)
}

// machine is a node of the paper's.
type machine struct {
	name  string
	cards []card
}

// cluster is one of the two that the paper measured.
type cluster struct {
	key, name string
	machines  []machine
	// weights are WG1 to WG3 of Fig. 4-4, by machine; best is that with which Fig. 4-5 is made.
	weights [3][]int
	best    int
}

var highEnd = cluster{"highend", "high-end cluster", []machine{
	{"node1", []card{gtx480, gtx480, gtx480, gtx480}},
	{"node2", []card{k40c, c2075, c2070}},
	{"node3", []card{k20c, c2050}},
}, [3][]int{{4, 3, 2}, {4, 8, 4}, {8, 4, 4}}, 2}

// The text has no weights of the commodity cluster: those here are by the number of GPUs, by
// their cores, and twice that.
var commodity = cluster{"commodity", "commodity cluster", workstations(5, 3),
	[3][]int{{1, 1, 1, 1, 1, 1, 1, 1}, {1, 1, 1, 1, 1, 2, 2, 2}, {2, 2, 2, 2, 2, 4, 4, 4}}, 1}

// workstations have a GPU each: one of them are of type I, the others of type II.
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

// host is a node of a cluster that is started, and how many processes it may have.
type host struct {
	machine
	cores int
}

// plenty are the cores of nodes whose number of processes is left to the policy.
const plenty = 64

// whole are the nodes as they are: the policy says how many processes each has.
func (c *cluster) whole() []host {
	var list []host
	for _, m := range c.machines {
		list = append(list, host{m, plenty})
	}
	return list
}

// mapped are nodes that have exactly these numbers of processes; a node without any is left out.
func (c *cluster) mapped(processes []int) []host {
	var list []host
	for i, n := range processes {
		if n > 0 {
			list = append(list, host{c.machines[i], n})
		}
	}
	return list
}

// slots are the nodes as a batch system sees them that gives each process a GPU: every GPU is
// a place for one process. They stand in the order in which processes are dealt out: the
// first GPU of each node, then the second of each, and so on.
func (c *cluster) slots() []host {
	var list []host
	for gpu := 0; ; gpu++ {
		before := len(list)
		for _, m := range c.machines {
			if gpu < len(m.cards) {
				// What follows the dash tells nodes of one machine apart.
				list = append(list, host{machine{fmt.Sprintf("%s-%d", m.name, gpu), m.cards[gpu : gpu+1]}, 1})
			}
		}
		if len(list) == before {
			return list
		}
	}
}

// kinds are hosts with one GPU each, one of each kind of both clusters, for profiles.
func kinds() []host {
	var list []host
	for _, c := range []card{gtx480, k40c, c2075, c2070, k20c, c2050, quadro2000, gtx460} {
		list = append(list, host{machine{"profile" + fmt.Sprint(len(list)+1), []card{c}}, 1})
	}
	return list
}

// rate is how many operations a second a C2050 does here: so few that all GPUs of a cluster
// together take a part of this machine, and each is what its users wait for.
const rate = 5e6

// Sizes of the GPUs' memory: it is never short here.
const (
	deviceMemory = 1 << 30
	shareMemory  = 32 << 20 // of each device that a job shares: a process takes 2 MiB
)

// devices is what a node is told to stand for the cards of a machine. Of their speeds it only
// matters how they compare.
func (m *machine) devices() string {
	var list []string
	for i, k := range m.cards {
		list = append(list, fmt.Sprintf("soft:name=%s #%d,memory=%d,speed=%.6f,rate=%.0f,workers=1", k.name, i, deviceMemory, k.power()/8, rate*k.power()))
	}
	return strings.Join(list, ";")
}

// simulated is the cluster as the simulator sees it.
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
