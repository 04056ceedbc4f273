package mosaic

import (
	"math/bits"
	"slices"

	"muster/model"
	"muster/policy"
	"muster/policy/prices"
)

// machine is what the planner knows of a cluster.
type machine struct {
	nodes []prices.Nodes // by type
	idle  []seg          // the board of the idle cluster
	alike bool           // all nodes have the same cores and devices
	types int            // the number of device types on nodes; a request for a type is planned only if there is one
	// deviceType and deviceMemory belong to the only type, if there is one.
	deviceType   string
	deviceMemory int64
	cores, gpus  int32 // of the largest node

	alloc model.Allocation // scratch
}

// read takes in all nodes, up or not: what fits on all of them is planned.
func (m *machine) read(c *model.Cluster) {
	seen := make([]bool, len(c.GPUTypes))
	for i := range c.Nodes {
		n := &c.Nodes[i]
		s := seg{to: int32(i) + 1, cores: int32(n.Cores), gpus: int32(len(n.GPUs)), memory: n.Memory}
		m.idle = add(m.idle, s)
		m.cores, m.gpus = max(m.cores, s.cores), max(m.gpus, s.gpus)
		k := slices.IndexFunc(m.nodes, func(t prices.Nodes) bool { return t.Cores == s.cores && t.GPUs == s.gpus })
		if k < 0 {
			k = len(m.nodes)
			m.nodes = append(m.nodes, prices.Nodes{Cores: s.cores, GPUs: s.gpus})
		}
		m.nodes[k].Count++
		for _, t := range n.GPUs {
			if !seen[t] {
				seen[t] = true
				m.types++
				m.deviceType, m.deviceMemory = c.GPUTypes[t].Name, c.GPUTypes[t].Memory
			}
		}
	}
	m.alike = len(m.nodes) == 1
}

// maxCores is the largest node that is planned for: prices.Table has an entry
// for each number of cores.
const maxCores = 1024

// needOf is what a request asks of each node, in the planner's terms; false if
// the planner does not model it.
func (m *machine) needOf(r *model.Request) (need, bool) {
	n := need{cores: int32(r.CoresOnNode()), gpus: int32(r.GPUs), memory: r.MemoryOnNode(r.CoresOnNode())}
	switch {
	case m.cores > maxCores, r.GPUMemory > 0, len(r.NodeList)+len(r.Lenders) > 0, r.Nodes == 0 && r.GPUs > 0:
		return n, false
	case r.GPUType != "" && (m.types != 1 || r.GPUType != m.deviceType):
		return n, false
	case r.Exclusive:
		if !m.alike || r.Remote != nil || int32(r.GPUs) > m.gpus || n.cores > m.cores {
			return n, false
		}
		n.cores, n.gpus, n.exclusive = m.cores, m.gpus, true
	}
	if w := r.Remote; w != nil {
		if r.GPUs > 0 || w.Shared || w.Memory > 0 && (m.types != 1 || w.Memory > m.deviceMemory) {
			return n, false
		}
		n.remote = true
	}
	if r.Nodes == 0 {
		n.spread = true
		n.cores, n.memory, n.nodeMemory = int32(max(1, r.CoresPerProcess)), r.MemoryPerCore, r.Memory
	}
	return n, true
}

// taskOf is a request as a task, without its run time.
func taskOf(kind int32, r *model.Request) task {
	t := task{kind: kind, width: int32(r.Nodes)}
	if r.Nodes == 0 {
		t.width = int32(r.Cores)
	}
	if r.Remote != nil {
		t.devices = int32(r.Remote.Count)
	}
	return t
}

// kindOf is the kind of a job; negative if it is not planned.
func (p *mosaic) kindOf(v *policy.View, id policy.JobID) int32 {
	sh := v.Shape(id)
	for sh.ID() >= len(p.shapes) {
		p.shapes = append(p.shapes, 0)
	}
	if p.shapes[sh.ID()] == 0 {
		p.shapes[sh.ID()] = p.planner.classify(&p.machine, &sh.Request) + 1
		if p.shapes[sh.ID()] == 0 {
			p.shapes[sh.ID()] = -1
		}
	}
	return max(-1, p.shapes[sh.ID()]-1)
}

// now reads what is free in the view into a board.
func (m *machine) now(v *policy.View, out []seg) []seg {
	out = out[:0]
	for n := range int32(len(v.Cluster().Nodes)) {
		s := seg{to: n + 1, cores: v.FreeCores(n), memory: v.FreeMemory(n), gpus: int32(bits.OnesCount64(v.FreeGPUs(n)))}
		if v.Closed(n) {
			s.cores, s.gpus = 0, 0
		}
		out = add(out, s)
	}
	return out
}

// held is what a running job will give back, as pieces: nothing on nodes that
// are not up. Shares of devices are left out, because other jobs may still have
// theirs on the same device.
func held(v *policy.View, a *model.Allocation, out []piece) []piece {
	out = out[:0]
	for i := range a.Parts {
		part := &a.Parts[i]
		if !v.Up(part.Node) {
			continue
		}
		devices := part.GPUs
		if part.Exclusive {
			_, _, devices = v.Capacity(part.Node)
		}
		q := piece{part.Node, part.Node + 1, part.Cores, int32(bits.OnesCount64(v.Usable(part.Node, devices))), part.Memory}
		if n := len(out); n > 0 && out[n-1].to == q.from && out[n-1].cores == q.cores && out[n-1].gpus == q.gpus && out[n-1].memory == q.memory {
			out[n-1].to = q.to
			continue
		}
		out = append(out, q)
	}
	for _, g := range a.Grants {
		if g.Memory == 0 && v.Usable(g.Node, 1<<g.Device) != 0 {
			out = append(out, piece{from: g.Node, to: g.Node + 1, gpus: 1})
		}
	}
	return out
}
