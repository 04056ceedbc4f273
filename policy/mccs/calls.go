package mccs

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"muster/policy"
)

// ---- General ----

// SetCallBack registers a function for an event; nil for none.
func (l *Library) SetCallBack(e Event, f Callback) error {
	if e >= numEvents {
		return fmt.Errorf("there is no %s", e)
	}
	l.callbacks[e] = f
	return nil
}

// Report keeps a line for the explanation of the step. The first hundred lines of a step are kept.
func (l *Library) Report(line string) {
	switch n := len(l.Reports); {
	case n < maxReports:
		l.Reports = append(l.Reports, line)
	case n == maxReports:
		l.Reports = append(l.Reports, "and more that is not kept")
	}
}

// Clean gives back all that the library holds for the program: both queues, and
// the functions for events. Nothing is started from then on.
func (l *Library) Clean() {
	for _, j := range l.open {
		if !j.placed {
			l.undo(j)
		}
	}
	l.UnassignedJobQueue.empty()
	l.AssignedJobQueue.empty()
	l.callbacks = [numEvents]Callback{}
	l.period, l.cleaned, l.unsettled = 0, true, true
}

// ---- Node-level runtime management ----

// Order says how GetNodesFor lists nodes.
type Order uint8

// The orders of nodes.
const (
	AsListed    Order = iota // as GetNodeList has them
	ByAvailable              // those with the largest weight less assigned processes first
	ByRoom                   // those that take most processes of the job first
)

// SetWeight says how many processes a node should have.
func (l *Library) SetWeight(n *Node, weight int) error {
	if weight < 0 || weight > maxWeight {
		return fmt.Errorf("node %s: a weight is from 0 to %d, not %d", n.Name, maxWeight, weight)
	}
	n.setWeight(weight)
	l.weights[n.Name], l.unsorted = weight, true
	l.makeRoom()
	return nil
}

// Available is how many processes of a job a node should be given: its weight less
// the processes on its GPUs. For a job that uses none of the node's GPUs it is the cores
// that are free.
func (l *Library) Available(n *Node, j *Job) int {
	switch {
	case !n.Joined():
		return 0
	case j.GPUs() == 0:
		return int(l.view.FreeCores(n.index))
	}
	return n.weight - n.assigned
}

// takes is how many more processes of a job a node takes now, at most want.
func (l *Library) takes(j *Job, n *Node, want int) int {
	if !n.Joined() || want <= 0 || j.RemainingProcesses() == 0 {
		return 0
	}
	at := j.at(n)
	if j.unit == 0 { // a number of nodes, with the same on each
		piece := j.piece()
		if at >= 0 || len(j.on) == j.Spec.Request.Nodes || j.GPUs() > 0 && j.loadOf(piece) > n.most() || l.view.Gives(j.shape, n.index, 0) == 0 {
			return 0
		}
		return piece
	}
	has := 0
	if at >= 0 {
		has = j.on[at].Processes
	}
	want = min(want, j.RemainingProcesses())
	if j.GPUs() > 0 {
		want = min(want, n.most())
	}
	if want <= 0 {
		return 0
	}
	gives := int(l.view.Gives(j.shape, n.index, int32(has+want)*j.unit) / j.unit)
	return max(0, gives-has)
}

func (j *Job) at(n *Node) int {
	for i := range j.on {
		if j.on[i].Node == n {
			return i
		}
	}
	return -1
}

// GetNodesFor lists the nodes that take at least one more process of a job now, at most
// most of them, or all for 0. Those by whose measure nothing is available are left
// out, but not where the order is that of the list.
func (l *Library) GetNodesFor(j *Job, by Order, most int) []*Node {
	h := l.ranking[:0]
	for i, n := range l.GetNodeList() {
		available := l.Available(n, j)
		l.Looked++
		if by != AsListed && available <= 0 {
			continue
		}
		l.Looked += 7 // to find out what it gives takes longer
		room := l.takes(j, n, j.processes)
		if room == 0 {
			continue
		}
		c := candidate{node: n, key: available, at: i}
		if by == ByRoom {
			c.key = room
		}
		if h = append(h, c); by == AsListed && len(h) == most {
			break
		}
	}
	l.ranking = h
	if most == 0 || most > len(h) {
		most = len(h)
	}
	nodes := make([]*Node, most)
	if by == AsListed {
		for i := range nodes {
			nodes[i] = h[i].node
		}
		return nodes
	}
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
	for i := range nodes {
		nodes[i] = h[0].node
		h[0] = h[len(h)-1]
		h = h[:len(h)-1]
		h.sink(0)
	}
	return nodes
}

// candidate is a node in a ranking.
type candidate struct {
	node    *Node
	key, at int
}

// ranking is a heap: larger keys first, equal ones as they are listed.
type ranking []candidate

func (r ranking) before(i, k int) bool {
	return r[i].key > r[k].key || r[i].key == r[k].key && r[i].at < r[k].at
}

func (r ranking) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(r) {
			return
		}
		if child+1 < len(r) && r.before(child+1, child) {
			child++
		}
		if !r.before(child, i) {
			return
		}
		r[i], r[child] = r[child], r[i]
		i = child
	}
}

// Attributes are what GetNode looks for; what is zero does not count.
type Attributes struct {
	Name      string
	CPUs      int   // at least
	GPUs      int   // at least
	Memory    int64 // at least
	GPUType   string
	Available int // at least this weight less assigned processes
}

// GetNode is the first node of the list with the attributes; nil if there is none.
func (l *Library) GetNode(a Attributes) *Node {
	if a.Name != "" {
		n := l.byName[a.Name]
		if n == nil || !n.listed || !l.has(n, &a) {
			return nil
		}
		return n
	}
	for _, n := range l.GetNodeList() {
		if l.has(n, &a) {
			return n
		}
	}
	return nil
}

func (l *Library) has(n *Node, a *Attributes) bool {
	info := l.infoOf(n)
	typed := a.GPUType == "" || slices.ContainsFunc(info.GPUs, func(g GPUInfo) bool { return g.Type == a.GPUType })
	return info.CPUs >= a.CPUs && len(info.GPUs) >= a.GPUs && info.Memory >= a.Memory && typed && (a.Available == 0 || n.weight-n.assigned >= a.Available)
}

// PingNode says whether a node takes jobs: it has joined, is up and does not drain. A node whose agent is not
// connected is not up.
func (l *Library) PingNode(n *Node) bool { return n.Joined() && l.view.Up(n.index) }

// HeardWithin says whether a node said something in the last time; true of one of which nothing is known.
func (l *Library) HeardWithin(n *Node, time time.Duration) bool { return l.LastWord(n) <= time }

// LastWord is how long ago a node said something; Unknown before the driver has told that, which it does from the
// next step on, and in the simulator.
func (l *Library) LastWord(n *Node) time.Duration {
	if h, known := l.heard(n); known {
		return max(0, l.view.Now()-h.At)
	}
	return Unknown
}

// heard is what the driver has heard of a node. It is asked to tell that.
func (l *Library) heard(n *Node) (policy.Heard, bool) {
	if !l.watches {
		l.watches = true
		l.plan.Watch(true)
	}
	if !n.Joined() {
		return policy.Heard{}, false
	}
	return l.view.Heard(n.index)
}

// QueryNodeInfo tells what a node has, what of it is free, and when it was heard. Of a node that has not
// joined it is what was described.
func (l *Library) QueryNodeInfo(n *Node) NodeInfo {
	info := l.infoOf(n)
	h, known := l.heard(n)
	info.Alive, info.LastWord = h.Alive || !known && info.Up, l.LastWord(n)
	return info
}

func (l *Library) infoOf(n *Node) NodeInfo {
	if !n.Joined() {
		info := NodeInfo{LastWord: Unknown}
		if n.spec != nil {
			info.CPUs, info.Memory = n.spec.Cores, n.spec.Memory
		}
		for _, t := range n.types {
			info.GPUs = append(info.GPUs, GPUInfo{t.Type, t.Memory, t.Speed})
		}
		return info
	}
	c := l.view.Cluster()
	info := NodeInfo{
		LastWord: Unknown, Up: l.PingNode(n), CPUs: n.spec.Cores, Memory: n.spec.Memory,
		FreeCPUs: int(l.view.FreeCores(n.index)), FreeMemory: l.view.FreeMemory(n.index), FreeGPUs: bits.OnesCount64(l.view.FreeGPUs(n.index)),
	}
	for _, t := range n.spec.GPUs {
		info.GPUs = append(info.GPUs, GPUInfo{c.GPUTypes[t].Name, c.GPUTypes[t].Memory, c.GPUTypes[t].Speed})
	}
	return info
}

// QueryNodeQueues counts the jobs that have processes on a node, and tells what the node said of its programs.
func (l *Library) QueryNodeQueues(n *Node) NodeQueues {
	q := NodeQueues{Age: Unknown}
	if h, known := l.heard(n); known && h.Reported != policy.Never {
		q.Programs, q.Waiting, q.Age = h.Assigned, h.Waiting, max(0, l.view.Now()-h.Reported)
	}
	l.AssignedJobQueue.Jobs(func(j *Job) bool {
		if i := j.at(n); i >= 0 && j.state == jobStandsStill {
			q.Suspended++
			q.SuspendedProcesses += j.on[i].Processes
		} else if i >= 0 {
			q.Running++
			q.RunningProcesses += j.on[i].Processes
		}
		return true
	})
	return q
}
