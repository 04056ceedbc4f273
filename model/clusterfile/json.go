package clusterfile

import (
	"cmp"

	"muster/model"
)

// The JSON form of a cluster: sizes in bytes, times in seconds.
type (
	jsonCluster struct {
		Name       string        `json:"name"`
		Totals     jsonTotals    `json:"totals"`
		GPUTypes   []jsonGPUType `json:"gpu_types"`
		RemoteGPUs jsonRemote    `json:"remote_gpus"`
		Nodes      []jsonNode    `json:"nodes"`
		Partitions []jsonPart    `json:"partitions,omitempty"`
	}
	jsonTotals struct {
		Nodes int `json:"nodes"`
		Cores int `json:"cores"`
		GPUs  int `json:"gpus"`
	}
	jsonGPUType struct {
		Name          string  `json:"name"`
		Count         int     `json:"count"`
		Memory        int64   `json:"memory_bytes"`
		Speed         float64 `json:"speed"`
		PeerBandwidth int64   `json:"peer_bytes_per_s"`
	}
	jsonRemote struct {
		Latency  float64 `json:"latency_s"`
		Overhead float64 `json:"overhead"`
		Far      float64 `json:"far"`
		Driver   int64   `json:"driver_memory_bytes"`
		Client   int64   `json:"client_memory_bytes"`
	}
	jsonNode struct {
		Name      string   `json:"name"`
		Cores     int      `json:"cores"`
		Memory    int64    `json:"memory_bytes"`
		GPUs      []string `json:"gpus"`
		Bandwidth int64    `json:"link_bytes_per_s"`
		Latency   float64  `json:"link_latency_s"`
		Switch    string   `json:"switch"`
		Weight    int      `json:"weight"`
	}
	jsonPart struct {
		Name    string  `json:"name"`
		Default bool    `json:"default,omitempty"`
		State   string  `json:"state"`
		Nodes   string  `json:"nodes"` // "" is all
		MaxTime float64 `json:"max_time_s,omitempty"`
		Tier    int     `json:"priority_tier"`
	}
)

// Document is the JSON form of a cluster, as muster cluster show --json prints it.
func Document(c *model.Cluster) any {
	out := jsonCluster{
		Name:       c.Name,
		Totals:     jsonTotals{Nodes: len(c.Nodes), Cores: c.TotalCores(), GPUs: c.TotalGPUs()},
		GPUTypes:   make([]jsonGPUType, 0, len(c.GPUTypes)),
		RemoteGPUs: jsonRemote{c.Remote.Latency.Seconds(), c.Remote.Overhead, cmp.Or(c.Remote.Far, 1), c.Remote.DriverMemory, c.Remote.ClientMemory},
		Nodes:      make([]jsonNode, 0, len(c.Nodes)),
	}
	counts := c.GPUCounts()
	for i, t := range c.GPUTypes {
		out.GPUTypes = append(out.GPUTypes, jsonGPUType{t.Name, counts[i], t.Memory, t.Speed, t.PeerBandwidth})
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		gpus := make([]string, len(n.GPUs))
		for j, t := range n.GPUs {
			gpus[j] = c.GPUTypes[t].Name
		}
		out.Nodes = append(out.Nodes, jsonNode{n.Name, n.Cores, n.Memory, gpus, n.Link.Bandwidth, n.Link.Latency.Seconds(), n.Switch, cmp.Or(n.Weight, 1)})
	}
	for _, p := range c.Partitions {
		out.Partitions = append(out.Partitions, jsonPart{p.Name, p.Default, p.State.String(), model.CompressNodes(p.Nodes), p.MaxTime.Seconds(), p.PriorityTier})
	}
	return out
}
