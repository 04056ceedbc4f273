package nodetable

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/head/api"
	"muster/model"
	"muster/report/jsontable"
)

// nodeColumns are those of muster nodes.
var nodeColumns = jsontable.Columns[api.Node]{
	{Name: "NODE", Field: "node", Value: func(n *api.Node) string { return n.Name }},
	{Name: "STATE", Field: "state", Value: func(n *api.Node) string {
		if !n.Connected {
			return string(n.State) + "*"
		}
		return string(n.State)
	}},
	{Name: "CORES", Field: "cores_used/cores", Value: func(n *api.Node) string { return fmt.Sprintf("%d/%d", n.CoresUsed, n.Cores) }},
	{Name: "MEMORY", Field: "memory_used_bytes/memory_bytes", Value: func(n *api.Node) string { return gigabytes(n.MemoryUsed) + "/" + gigabytes(n.Memory) }},
	{Name: "GPUS", Field: "devices", Value: func(n *api.Node) string { return gpusOf(n) }},
	{Name: "JOBS", Field: "jobs", Value: func(n *api.Node) string { return strconv.Itoa(len(n.Jobs)) }},
	{Name: "REASON", Field: "reason", Value: func(n *api.Node) string { return cmp.Or(n.Reason, "-") }},
}

// WriteNodes lists the nodes of a cluster, as the head knows them.
func WriteNodes(w io.Writer, nodes []api.Node, columns int) error {
	return nodeColumns.Write(w, nodes, "REASON", columns)
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
var nodesDeviceColumns = jsontable.Columns[nodesDevice]{
	{Name: "NODE", Field: "", Value: func(d *nodesDevice) string { return d.node }},
	{Name: "DEVICE", Field: "", Value: func(d *nodesDevice) string { return strconv.Itoa(d.number) }},
	{Name: "NAME", Field: "name", Value: func(d *nodesDevice) string { return d.Name }},
	{Name: "STATE", Field: "up", Value: func(d *nodesDevice) string {
		if !d.Up {
			return "down"
		}
		return "up"
	}},
	{Name: "MEMORY", Field: "memory_used_bytes/memory_bytes", Value: func(d *nodesDevice) string { return gigabytes(d.Used) + "/" + gigabytes(d.Memory) }},
	{Name: "JOBS", Field: "jobs", Value: func(d *nodesDevice) string {
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
	return nodesDeviceColumns.Write(w, list, "NAME", columns)
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
