package mccs

import (
	"math/bits"
	"slices"
)

// leastNodes are answers of MinNodes, by shape, as long as the cluster is the same.
type leastNodes struct {
	of map[int]int
	at uint64 // generation of the view
}

// MinNodes is the least number of nodes that could hold a job if nothing else ran on
// those that are up. It is 1 for most, and larger for jobs that no single node can hold.
func (l *Library) MinNodes(j *Job) int {
	if n := j.Spec.Request.Nodes; n > 0 {
		return n
	}
	if now := l.view.Generation(); now != l.least.at {
		l.least.at = now
		clear(l.least.of)
	}
	if n, known := l.least.of[j.shape.ID()]; known {
		return n
	}
	n := l.countNodes(j)
	l.least.of[j.shape.ID()] = n
	return n
}

func (l *Library) countNodes(j *Job) int {
	var rooms []int
	l.Looked += 4 * len(l.nodes)
	for _, n := range l.nodes {
		if room := l.idleRoom(j, n); room > 0 {
			rooms = append(rooms, room)
		}
	}
	slices.SortFunc(rooms, func(a, b int) int { return b - a })
	left := j.processes
	for i, room := range rooms {
		if left -= room; left <= 0 {
			return i + 1
		}
	}
	return max(1, len(l.nodes)) // nodes are missing
}

// idleRoom is how many processes of a job a node could have if nothing else ran on it.
func (l *Library) idleRoom(j *Job, n *Node) int {
	r := &j.shape.Request
	cores, memory, devices := l.view.Capacity(n.index)
	if len(r.NodeList) > 0 && !slices.Contains(r.NodeList, n.Name) || memory < r.Memory {
		return 0
	}
	if r.MemoryPerCore > 0 {
		cores = int32(min(int64(cores), (memory-r.Memory)/r.MemoryPerCore))
	}
	room := int(cores / j.unit)
	if r.GPUs == 0 {
		return room
	}
	if n.each() > 0 {
		room = min(room, n.each()*len(n.spec.GPUs))
	}
	c := l.view.Cluster()
	for set := devices; set != 0; set &= set - 1 {
		d := bits.TrailingZeros64(set)
		t := &c.GPUTypes[n.spec.GPUs[d]]
		if r.GPUType != "" && t.Name != r.GPUType || t.Memory < r.GPUMemory {
			devices &^= 1 << d
		}
	}
	if n.weight == 0 || bits.OnesCount64(devices) < r.GPUs {
		return 0
	}
	return room
}
