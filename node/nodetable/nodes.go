package nodetable

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
	"muster/report"
	"muster/report/jsontable"
	"muster/wire/api"
	"muster/wire/status"
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
	{Name: "USE", Field: "", Value: useOf},
	{Name: "WAITING", Field: "load.waiting", Value: func(n *api.Node) string {
		if n.Load == nil {
			return "-"
		}
		return strconv.Itoa(n.Load.Waiting)
	}},
	{Name: "JOBS", Field: "jobs", Value: func(n *api.Node) string { return strconv.Itoa(len(n.Jobs)) }},
	{Name: "REASON", Field: "reason/notices", Value: reasonOf},
}

// labelled are the columns where some node has labels.
var labelled = slices.Insert(slices.Clone(nodeColumns), len(nodeColumns)-1, jsontable.Column[api.Node]{Name: "LABELS", Field: "labels", Value: labelsOf})

func labelsOf(n *api.Node) string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(n.Labels)) {
		all = append(all, key+"="+n.Labels[key])
	}
	return cmp.Or(strings.Join(all, ","), "-")
}

// WriteNodes lists the nodes of a cluster, as the head knows them.
func WriteNodes(w io.Writer, nodes []api.Node, columns int) error {
	if slices.ContainsFunc(nodes, func(n api.Node) bool { return len(n.Labels) > 0 }) {
		return labelled.Write(w, nodes, "REASON", columns)
	}
	return nodeColumns.Write(w, nodes, "REASON", columns)
}

// reasonOf is why a node is drained or down, and what it has a notice of.
func reasonOf(n *api.Node) string {
	var all []string
	if n.Reason != "" {
		all = append(all, n.Reason)
	}
	for _, notice := range n.Notices {
		all = append(all, notice.Text)
	}
	return cmp.Or(strings.Join(all, "; "), "-")
}

// WriteSettings writes how nodes serve programs, a line each, and what of that they do not do as they were asked.
func WriteSettings(w io.Writer, nodes []api.Node) error {
	for i := range nodes {
		s, text := nodes[i].Settings, ""
		if nodes[i].Weight != 0 {
			text = fmt.Sprintf("; weight: %d", nodes[i].Weight)
		}
		if len(nodes[i].Features) > 0 {
			text += "; features: " + strings.Join(nodes[i].Features, ",")
		}
		if s == nil && text == "" {
			continue
		}
		if s == nil {
			s = &api.NodeSettings{}
		}
		if s.InForce != nil {
			text += "; in force: " + s.InForce.String()
		}
		if s.Asked != nil {
			text += "; the head asks: " + s.Asked.String()
		}
		if s.Error != "" {
			text += "; refused: " + report.Printable(s.Error)
		}
		if _, err := fmt.Fprintf(w, "%s: %s\n", report.Printable(nodes[i].Name), strings.TrimPrefix(text, "; ")); err != nil {
			return err
		}
	}
	return nil
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

// useOf is how much of their time a node's GPUs are in use, together.
func useOf(n *api.Node) string {
	sum, all := 0, 0
	for _, d := range n.Devices {
		if d.Load != nil {
			sum, all = sum+d.Load.Use, all+1
		}
	}
	if all == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", (sum+all/2)/all)
}

// ClusterDevices is the document of muster devices --cluster --json.
type ClusterDevices struct {
	Nodes []NodeDevices `json:"nodes"`
}

// NodeDevices is the devices of a node, as the head knows them.
type NodeDevices struct {
	Node string `json:"node"`
	// Connected says whether the head hears of the node. Otherwise its devices are away.
	Connected bool            `json:"connected"`
	State     api.NodeState   `json:"state"`
	Devices   []ClusterDevice `json:"devices"`
	confined  string          // what confines all workers there; "" if the node has not said
}

// ClusterDevice is a device of a node, with its number there.
type ClusterDevice struct {
	Number int `json:"number"`
	// State is up, down, or away where the head does not hear of the node.
	State string `json:"state"`
	api.NodeDevice
	// Confined is what confines every worker there, as its node says; nil if it has not said.
	Confined *status.Confined `json:"confined,omitempty"`
	node     string
}

// DevicesOf is the devices of nodes.
func DevicesOf(nodes []api.Node) *ClusterDevices {
	all := &ClusterDevices{Nodes: []NodeDevices{}}
	for i := range nodes {
		n := &nodes[i]
		// The head leaves out the list of a node without devices. Here it is an empty one, never null.
		devices := []ClusterDevice{}
		for number, d := range n.Devices {
			devices = append(devices, clusterDevice(n, number, d))
		}
		all.Nodes = append(all.Nodes, NodeDevices{Node: n.Name, Connected: n.Connected, State: n.State, Devices: devices})
	}
	return all
}

// clusterDevice is a device of a node. The head keeps what it heard of a device last. That says
// nothing of now once the node is not connected, so such a device is not up.
func clusterDevice(n *api.Node, number int, d api.NodeDevice) ClusterDevice {
	state := "up"
	switch {
	case !n.Connected:
		state = "away"
	case !d.Up:
		state = "down"
	}
	d.Up = state == "up"
	return ClusterDevice{Number: number, State: state, NodeDevice: d, node: n.Name}
}

// Add adds what a node says of its devices.
func (n *NodeDevices) Add(s *status.Node) {
	for i := range min(len(n.Devices), len(s.Devices)) {
		n.Devices[i].Confined = &s.Devices[i].Confined
	}
	if by, any := s.Confined(); any {
		n.confined = by.String()
	}
}

// loaded is what is said of the device's load; a dash if its node has not said how busy it is.
func (d *ClusterDevice) loaded(say func(*api.DeviceLoad) string) string {
	if d.Load == nil {
		return "-"
	}
	return say(d.Load)
}

// clusterDeviceColumns are those of muster devices --cluster.
var clusterDeviceColumns = jsontable.Columns[ClusterDevice]{
	{Name: "NODE", Field: "", Value: func(d *ClusterDevice) string { return d.node }},
	{Name: "DEVICE", Field: "number", Value: func(d *ClusterDevice) string { return strconv.Itoa(d.Number) }},
	{Name: "NAME", Field: "name", Value: func(d *ClusterDevice) string { return d.Name }},
	{Name: "STATE", Field: "state", Value: func(d *ClusterDevice) string { return d.State }},
	{Name: "MEMORY", Field: "memory_used_bytes/memory_bytes", Value: func(d *ClusterDevice) string { return gigabytes(d.Used) + "/" + gigabytes(d.Memory) }},
	{Name: "USE", Field: "load.use_pct", Value: func(d *ClusterDevice) string {
		return d.loaded(func(l *api.DeviceLoad) string { return fmt.Sprintf("%d%%", l.Use) })
	}},
	{Name: "USED", Field: "load.used_bytes", Value: func(d *ClusterDevice) string {
		return d.loaded(func(l *api.DeviceLoad) string { return gigabytes(l.Used) })
	}},
	{Name: "GUARANTEED", Field: "load.guaranteed_bytes", Value: func(d *ClusterDevice) string {
		return d.loaded(func(l *api.DeviceLoad) string { return gigabytes(l.Guaranteed) })
	}},
	{Name: "JOBS", Field: "jobs", Value: func(d *ClusterDevice) string {
		jobs := make([]string, len(d.Jobs))
		for i, j := range d.Jobs {
			jobs[i] = strconv.FormatUint(j, 10)
		}
		return cmp.Or(strings.Join(jobs, ","), "-")
	}},
}

// Write lists the devices of all nodes, and which jobs have them, and says below what confines workers.
func (all *ClusterDevices) Write(w io.Writer, columns int) error {
	var list []ClusterDevice
	var confined []string
	alike := map[string][]string{}
	for _, n := range all.Nodes {
		list = append(list, n.Devices...)
		if n.confined == "" {
			continue
		}
		if alike[n.confined] == nil {
			confined = append(confined, n.confined)
		}
		alike[n.confined] = append(alike[n.confined], n.Node)
	}
	if err := clusterDeviceColumns.Write(w, list, "NAME", columns); err != nil {
		return err
	}
	for _, by := range confined {
		if _, err := fmt.Fprintf(w, "Workers on %s: confined by %s\n", report.Printable(model.CompressNodes(alike[by])), by); err != nil {
			return err
		}
	}
	return nil
}

// ModelOf is what the simulator must know of nodes. Devices that differ in anything
// are of different types.
func ModelOf(nodes []api.Node) *model.Cluster {
	c := &model.Cluster{}
	for i := range nodes {
		n := model.Node{Name: nodes[i].Name, Cores: nodes[i].Cores, Memory: nodes[i].Memory, Weight: nodes[i].Weight}
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

// PartitionsOf is what the simulator must know of partitions: those that have some of the nodes of a cluster.
func PartitionsOf(c *model.Cluster, list []api.Partition) ([]model.Partition, error) {
	is := map[string]bool{}
	for i := range c.Nodes {
		is[c.Nodes[i].Name] = true
	}
	names := func(list string) (there []string, err error) {
		if list == "" {
			return nil, nil
		}
		there, err = model.ExpandNodes(list)
		return slices.DeleteFunc(there, func(name string) bool { return !is[name] }), err
	}
	var out []model.Partition
	for _, p := range list {
		state, err := model.ParsePartitionState(p.State)
		if err != nil {
			return nil, fmt.Errorf("partition %s: its state %w", p.Name, err)
		}
		m := model.Partition{
			Name: p.Name, Default: p.Default, State: state, MaxTime: time.Duration(p.MaxTime * float64(time.Second)), DefaultTime: time.Duration(p.DefaultTime * float64(time.Second)),
			MinNodes: p.MinNodes, MaxNodes: p.MaxNodes, MaxCores: p.MaxCores, MaxGPUs: p.MaxGPUs, PriorityTier: p.Tier, PriorityJobFactor: p.Factor, PreemptMode: p.PreemptMode,
			AllowUsers: p.AllowUsers, AllowAccounts: p.AllowAccounts, AllowQOS: p.AllowQOS, DenyAccounts: p.DenyAccounts, DenyQOS: p.DenyQOS,
		}
		if m.Nodes, err = names(p.NodeList); err != nil {
			return nil, fmt.Errorf("partition %s: %w", p.Name, err)
		}
		if m.Lenders, err = names(p.Lenders); err != nil {
			return nil, fmt.Errorf("partition %s: %w", p.Name, err)
		}
		if p.AllNodes || len(m.Nodes) > 0 {
			out = append(out, m)
		}
	}
	return out, nil
}
