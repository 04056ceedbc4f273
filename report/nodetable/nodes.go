package nodetable

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/head/api"
	"muster/model"
	"muster/wire/status"
)

// nodeColumns are those of muster nodes.
var nodeColumns = []column[api.Node]{
	{"<NODE", "node", func(_ *status.Node, n *api.Node) string { return n.Name }},
	{"<STATE", "state", func(_ *status.Node, n *api.Node) string {
		if !n.Connected {
			return string(n.State) + "*"
		}
		return string(n.State)
	}},
	{"<CORES", "cores_used/cores", func(_ *status.Node, n *api.Node) string { return fmt.Sprintf("%d/%d", n.CoresUsed, n.Cores) }},
	{"<MEMORY", "memory_used_bytes/memory_bytes", func(_ *status.Node, n *api.Node) string { return gigabytes(n.MemoryUsed) + "/" + gigabytes(n.Memory) }},
	{"<GPUS", "devices", func(_ *status.Node, n *api.Node) string { return gpusOf(n) }},
	{"<JOBS", "jobs", func(_ *status.Node, n *api.Node) string { return strconv.Itoa(len(n.Jobs)) }},
	{"<REASON", "reason", func(_ *status.Node, n *api.Node) string { return cmp.Or(n.Reason, "-") }},
}

// WriteNodes lists the nodes of a cluster, as the head knows them.
func WriteNodes(w io.Writer, nodes []api.Node, columns int) error {
	return writeAsSlurm(w, nodeColumns, nodes, "REASON", columns)
}

func gpusOf(n *api.Node) string {
	if len(n.Devices) == 0 {
		return "0"
	}
	used, lost := 0, 0
	for _, d := range n.Devices {
		if d.Used > 0 || len(d.Jobs) > 0 {
			used++
		}
		if !d.Up {
			lost++
		}
	}
	text := fmt.Sprintf("%d/%d", used, len(n.Devices))
	if lost > 0 {
		text += fmt.Sprintf(" (%d down)", lost)
	}
	return text
}

// ClusterDevices is the document of muster devices --cluster --json.
type ClusterDevices struct {
	Nodes []NodeDevices `json:"nodes"`
}

// NodeDevices is the devices of a node, as the head knows them.
type NodeDevices struct {
	Node    string           `json:"node"`
	State   api.NodeState    `json:"state"`
	Devices []api.NodeDevice `json:"devices"`
}

// DevicesOf is the devices of nodes.
func DevicesOf(nodes []api.Node) *ClusterDevices {
	all := &ClusterDevices{Nodes: []NodeDevices{}}
	for i := range nodes {
		n := &nodes[i]
		// The head leaves out the list of a node without devices. Here it is an empty one, never null.
		all.Nodes = append(all.Nodes, NodeDevices{n.Name, n.State, append([]api.NodeDevice{}, n.Devices...)})
	}
	return all
}

// nodesDevice is a row of the table of all nodes' devices.
type nodesDevice struct {
	api.NodeDevice
	node   string
	number int
}

// nodesDeviceColumns are those of muster devices --cluster.
var nodesDeviceColumns = []column[nodesDevice]{
	{"<NODE", "", func(_ *status.Node, d *nodesDevice) string { return d.node }},
	{"<DEVICE", "", func(_ *status.Node, d *nodesDevice) string { return strconv.Itoa(d.number) }},
	{"<NAME", "name", func(_ *status.Node, d *nodesDevice) string { return d.Name }},
	{"<STATE", "up", func(_ *status.Node, d *nodesDevice) string {
		if !d.Up {
			return "down"
		}
		return "up"
	}},
	{"<MEMORY", "memory_used_bytes/memory_bytes", func(_ *status.Node, d *nodesDevice) string { return gigabytes(d.Used) + "/" + gigabytes(d.Memory) }},
	{"<JOBS", "jobs", func(_ *status.Node, d *nodesDevice) string {
		jobs := make([]string, len(d.Jobs))
		for i, j := range d.Jobs {
			jobs[i] = strconv.FormatUint(j, 10)
		}
		return cmp.Or(strings.Join(jobs, ","), "-")
	}},
}

// Write lists the devices of all nodes, and which jobs have them.
func (all *ClusterDevices) Write(w io.Writer, columns int) error {
	var list []nodesDevice
	for _, n := range all.Nodes {
		for number, d := range n.Devices {
			list = append(list, nodesDevice{d, n.Node, number})
		}
	}
	return writeAsSlurm(w, nodesDeviceColumns, list, "NAME", columns)
}

// ModelOf is what the simulator must know of nodes. Devices that differ in anything
// are of different types.
func ModelOf(nodes []api.Node) *model.Cluster {
	c := &model.Cluster{}
	for i := range nodes {
		n := model.Node{Name: nodes[i].Name, Cores: nodes[i].Cores, Memory: nodes[i].Memory}
		for _, d := range nodes[i].Devices {
			n.GPUs = append(n.GPUs, typeOf(c, d))
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// typeOf is the number of a device's type, which is made if there is none.
func typeOf(c *model.Cluster, d api.NodeDevice) int {
	word := strings.Join(strings.Fields(strings.ToLower(d.Name)), "-")
	t := model.GPUType{Name: word, Memory: d.Memory, Speed: d.Speed}
	for k := 2; ; k++ {
		at := c.GPUType(t.Name)
		if at < 0 {
			c.GPUTypes = append(c.GPUTypes, t)
			return len(c.GPUTypes) - 1
		}
		if c.GPUTypes[at] == t {
			return at
		}
		t.Name = fmt.Sprintf("%s-%d", word, k)
	}
}
