package priority

import (
	"math/bits"

	"muster/model"
)

// WholeOf is what a cluster has in all.
func WholeOf(c *model.Cluster) TRES {
	var t TRES
	for i := range c.Nodes {
		n := &c.Nodes[i]
		t.Cores += int64(n.Cores)
		t.Memory += n.Memory
		t.MicroGPUs += int64(len(n.GPUs)) * Million
	}
	return t
}

// AsksOf is what a request wants in all. Cores on any nodes take the memory of one
// node, and a share of a GPU is measured by the largest device that may give it.
func AsksOf(c *model.Cluster, r *model.Request) TRES {
	t := TRES{Cores: int64(r.TotalCores())}
	if r.Nodes > 0 {
		t.Memory = int64(r.Nodes) * r.MemoryOnNode(r.CoresOnNode())
	} else {
		t.Memory = r.MemoryOnNode(r.Cores)
	}
	t.MicroGPUs = int64(max(1, r.Nodes)*r.GPUs) * deviceShare(c, r.GPUType, r.GPUMemory)
	if m := r.Remote; m != nil {
		memory := int64(0)
		if m.Shared {
			memory = m.Memory
		}
		t.MicroGPUs += int64(m.Count) * deviceShare(c, r.GPUType, memory)
	}
	return t
}

// deviceShare is the share of a device that this much of its memory is; 0 means
// the whole device.
func deviceShare(c *model.Cluster, name string, memory int64) int64 {
	if memory == 0 {
		return Million
	}
	largest := int64(0)
	for i := range c.GPUTypes {
		if t := &c.GPUTypes[i]; name == "" || t.Name == name {
			largest = max(largest, t.Memory)
		}
	}
	return GPUShare(memory, largest)
}

// HoldsOf is what an allocation takes in all.
func HoldsOf(c *model.Cluster, a *model.Allocation) TRES {
	var t TRES
	for i := range a.Parts {
		p := &a.Parts[i]
		t.Cores += int64(p.Cores)
		t.Memory += p.Memory
		t.MicroGPUs += int64(bits.OnesCount64(p.GPUs)) * Million
	}
	for _, g := range a.Grants {
		if g.Memory == 0 {
			t.MicroGPUs += Million
			continue
		}
		t.MicroGPUs += GPUShare(g.Memory, c.GPUTypes[c.Nodes[g.Node].GPUs[g.Device]].Memory)
	}
	return t
}
