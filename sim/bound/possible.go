package bound

import "muster/model"

// possible says whether the idle cluster can run a request. In doubt it says no: leaving a job out
// weakens a bound but does not make it false.
func (m *machine) possible(r *model.Request) bool {
	listed := map[string]bool{}
	for _, name := range r.NodeList {
		listed[name] = true
	}
	found, run, sum := 0, 0, 0
	best, bestSum := 0, 0
	lent := 0
	for i := range m.c.Nodes {
		n := &m.c.Nodes[i]
		devices := m.fitting(n, r)
		gives := 0
		if len(r.NodeList) == 0 || listed[n.Name] {
			gives = m.gives(n, r, devices)
		}
		lent += m.lends(n, r)
		if gives == 0 {
			if r.Contiguous {
				run, sum = 0, 0
			}
			continue
		}
		found++
		run++
		sum += gives
		best, bestSum = max(best, run), max(bestSum, sum)
		delete(listed, n.Name)
	}
	for i := range m.c.Nodes {
		delete(listed, m.c.Nodes[i].Name)
	}
	if len(listed) > 0 {
		return false // it lists a node that the cluster does not have
	}
	if r.Remote != nil && lent < r.Remote.Count+r.Nodes*r.GPUs {
		return false
	}
	if r.Nodes == 0 {
		return bestSum >= r.Cores
	}
	if r.Contiguous {
		return best >= r.Nodes
	}
	return found >= r.Nodes
}

// fitting counts the devices of a node that have the right type and enough memory.
func (m *machine) fitting(n *model.Node, r *model.Request) int {
	count := 0
	for _, t := range n.GPUs {
		if (r.GPUType == "" || m.c.GPUTypes[t].Name == r.GPUType) && m.c.GPUTypes[t].Memory >= r.GPUMemory {
			count++
		}
	}
	return count
}

// lends counts the devices of a node that may serve as remote ones.
func (m *machine) lends(n *model.Node, r *model.Request) int {
	count := 0
	if r.Remote != nil {
		for _, t := range n.GPUs {
			if (r.GPUType == "" || m.c.GPUTypes[t].Name == r.GPUType) && m.c.GPUTypes[t].Memory >= max(r.Remote.Memory, r.GPUMemory) {
				count++
			}
		}
	}
	return count
}

// gives is the number of cores that the idle node can give to a request; 0 if the node does not
// suit.
func (m *machine) gives(n *model.Node, r *model.Request, devices int) int {
	if devices < r.GPUs {
		return 0
	}
	if r.Nodes > 0 {
		if on := r.CoresOnNode(); n.Cores >= on && n.Memory >= r.MemoryOnNode(on) {
			return on
		}
		return 0
	}
	give := n.Cores
	if n.Memory < r.Memory {
		return 0
	}
	if r.MemoryPerCore > 0 {
		give = int(min(int64(give), (n.Memory-r.Memory)/r.MemoryPerCore))
	}
	return give - give%max(1, r.CoresPerProcess)
}
