package nodetable

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"

	"muster/head/api"
	"muster/model"
	"muster/report"
)

// WriteNodes lists the nodes of a cluster, as the head knows them.
func WriteNodes(w io.Writer, nodes []api.Node, columns int) error {
	var rows [][]string
	for i := range nodes {
		n := &nodes[i]
		state := string(n.State)
		if !n.Connected {
			state += "*"
		}
		rows = append(rows, []string{
			n.Name, state, fmt.Sprintf("%d/%d", n.CoresUsed, n.Cores), gigabytes(n.MemoryUsed) + "/" + gigabytes(n.Memory), gpusOf(n), strconv.Itoa(len(n.Jobs)), cmp.Or(n.Reason, "-"),
		})
	}
	return report.WriteColumns(w, []string{"NODE", "STATE", "CORES", "MEMORY", "GPUS", "JOBS", "REASON"}, rows, 6, columns)
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
		all.Nodes = append(all.Nodes, NodeDevices{n.Name, n.State, n.Devices})
	}
	return all
}

// Write lists the devices of all nodes, and which jobs have them.
func (all *ClusterDevices) Write(w io.Writer, columns int) error {
	var rows [][]string
	for _, n := range all.Nodes {
		for number, d := range n.Devices {
			state := "up"
			if !d.Up {
				state = "down"
			}
			jobs := make([]string, len(d.Jobs))
			for i, j := range d.Jobs {
				jobs[i] = strconv.FormatUint(j, 10)
			}
			rows = append(rows, []string{n.Node, strconv.Itoa(number), d.Name, state, gigabytes(d.Used) + "/" + gigabytes(d.Memory), cmp.Or(strings.Join(jobs, ","), "-")})
		}
	}
	return report.WriteColumns(w, []string{"NODE", "DEVICE", "NAME", "STATE", "MEMORY", "JOBS"}, rows, 2, columns)
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
