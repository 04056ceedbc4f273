package simpage

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"muster/model"
	"muster/sim"
)

// Recorder is an observer of one run. It records where each job ran, what it held, and the blocks
// of a picture of nodes over time.
type Recorder struct {
	cluster *model.Cluster
	held    []holding // by job
	nodes   []int32   // the nodes of all jobs, one job after the other
	devices []model.Device
	picture *picture // nil if none is wanted
}

var _ sim.Observer = (*Recorder)(nil)

// holding is what a job held, with the position of its nodes in Recorder.nodes: first those that
// host it, then those that lend it a device.
type holding struct {
	gpus           float64
	cores          int32
	from           int
	hosts, lenders int32
	// Its devices are Recorder.devices[firstDevice:][:devices].
	firstDevice int
	devices     int32
}

// NewRecorder makes the recorder of a run on a cluster. It keeps at most about the given number of
// blocks for the picture; with 0 there is no picture.
func NewRecorder(c *model.Cluster, blocks int) *Recorder {
	r := &Recorder{cluster: c}
	if blocks > 0 {
		r.picture = newPicture(c, blocks)
	}
	return r
}

// Started implements sim.Observer.
func (r *Recorder) Started(now time.Duration, job int, a *model.Allocation) {
	if job >= len(r.held) {
		r.held = append(r.held, make([]holding, job+1-len(r.held))...)
	}
	h := &r.held[job]
	*h = holding{} // replaces an earlier start of a job that was requeued or suspended
	cores, gpus := sim.Held(r.cluster, a)
	h.cores, h.gpus = int32(cores), gpus
	h.from, h.hosts = len(r.nodes), int32(len(a.Parts))
	for i := range a.Parts {
		r.nodes = append(r.nodes, a.Parts[i].Node)
	}
	for _, g := range a.Grants {
		if a.Borrowed(g) && !slices.Contains(r.nodes[h.from+len(a.Parts):], g.Node) {
			r.nodes = append(r.nodes, g.Node)
			h.lenders++
		}
	}
	if gpus > 0 {
		list := a.Devices()
		h.firstDevice, h.devices = len(r.devices), int32(len(list))
		r.devices = append(r.devices, list...)
	}
	if r.picture != nil {
		r.picture.start(now, int32(job), a)
	}
}

// Ended implements sim.Observer.
func (r *Recorder) Ended(now time.Duration, job int) {
	if r.picture != nil {
		r.picture.end(now, int32(job))
	}
}

// Hosts is the list of the nodes that hosted a job, and their number.
func (r *Recorder) Hosts(job int) (list string, count int) {
	if job >= len(r.held) {
		return "", 0
	}
	h := &r.held[job]
	return r.names(r.nodes[h.from : h.from+int(h.hosts)]), int(h.hosts)
}

// Lenders is the list of the nodes that lent devices to the job, and their number.
func (r *Recorder) Lenders(job int) (list string, count int) {
	if job >= len(r.held) {
		return "", 0
	}
	h := &r.held[job]
	from := h.from + int(h.hosts)
	return r.names(r.nodes[from : from+int(h.lenders)]), int(h.lenders)
}

// Environment is the part of the job's environment that describes its devices; "" if it had none.
func (r *Recorder) Environment(job int) string {
	if job >= len(r.held) || r.held[job].devices == 0 {
		return ""
	}
	h := &r.held[job]
	return strings.Join(r.cluster.DeviceEnvironment(r.devices[h.firstDevice:][:h.devices]), " ")
}

func (r *Recorder) names(nodes []int32) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = r.cluster.Nodes[n].Name
	}
	return model.CompressNodes(names)
}

// Kinds of blocks, with the colours of Figs. 7 and 8 of the TSUBAME paper.
const (
	native   uint8 = iota // the job's part of this node uses no other node's GPU
	borrower              // it uses a GPU of another node
	lender                // the node's GPU serves a job on another node
)

// segment is a job's part of a node from start to end. On a node with devices, lo and hi are in
// devices, unless the part has only cores; then they are fractions of the cores.
type segment struct {
	start, end time.Duration
	node, job  int32
	lo, hi     float32
	kind       uint8
	ofCores    bool
}

// picture collects segments. If there are too many, it drops those of the jobs with the smallest
// areas.
type picture struct {
	cluster *model.Cluster
	hasGPUs bool
	cores   []lane   // by node
	devices [][]lane // by node and device
	open    map[int32][]opened
	closed  []segment // the segments of one job are consecutive
	limit   int

	lostJobs int
	lostArea float64
}

// opened is a segment that has not ended, with what to return to its lane when it does.
type opened struct {
	segment
	lane  *lane
	taken span
}

func newPicture(c *model.Cluster, limit int) *picture {
	p := &picture{
		cluster: c, hasGPUs: c.TotalGPUs() > 0, limit: limit, open: map[int32][]opened{},
		cores: make([]lane, len(c.Nodes)), devices: make([][]lane, len(c.Nodes)),
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		p.cores[i].size = int64(n.Cores)
		p.devices[i] = make([]lane, len(n.GPUs))
		for d, t := range n.GPUs {
			p.devices[i][d].size = c.GPUTypes[t].Memory
		}
	}
	return p
}

func (p *picture) start(now time.Duration, job int32, a *model.Allocation) {
	var list []opened
	add := func(node int32, kind uint8, lo, hi float64, ofCores bool, l *lane, taken span) {
		list = append(list, opened{
			segment{start: now, node: node, job: job, lo: float32(lo), hi: float32(hi), kind: kind, ofCores: ofCores}, l, taken,
		})
	}
	addShare := func(g model.Grant, kind uint8) {
		if g.Memory == 0 {
			add(g.Node, kind, float64(g.Device), float64(g.Device+1), false, nil, span{})
			return
		}
		l := &p.devices[g.Node][g.Device]
		for _, s := range l.take(g.Memory) {
			size := float64(l.size)
			add(g.Node, kind, float64(g.Device)+float64(s.from)/size, float64(g.Device)+float64(s.to)/size, false, l, s)
		}
	}
	for i := range a.Parts {
		part := &a.Parts[i]
		kind, local := native, part.GPUs != 0
		for _, g := range a.Grants {
			if int(g.For) != i {
				continue
			}
			if a.Borrowed(g) {
				kind = borrower
			} else {
				local = true
			}
		}
		for left := part.GPUs; left != 0; {
			first := bits.TrailingZeros64(left)
			count := bits.TrailingZeros64(^(left >> first))
			add(part.Node, kind, float64(first), float64(first+count), false, nil, span{})
			left &^= (1<<count - 1) << first
		}
		for _, g := range a.Grants {
			if int(g.For) == i && !a.Borrowed(g) {
				addShare(g, kind)
			}
		}
		if !local {
			l := &p.cores[part.Node]
			for _, s := range l.take(int64(part.Cores)) {
				add(part.Node, kind, float64(s.from)/float64(l.size), float64(s.to)/float64(l.size), true, l, s)
			}
		}
	}
	for _, g := range a.Grants {
		if a.Borrowed(g) {
			addShare(g, lender)
		}
	}
	p.open[job] = list
}

func (p *picture) end(now time.Duration, job int32) {
	for _, o := range p.open[job] {
		o.segment.end = now
		p.closed = append(p.closed, o.segment)
		if o.lane != nil {
			o.lane.give(o.taken)
		}
	}
	delete(p.open, job)
	if len(p.closed) >= 2*p.limit {
		p.prune()
	}
}

// prune keeps the jobs with the largest areas, as many as fit into the limit, in their original
// order. It runs when there are twice as many segments as the limit, so its cost per segment stays
// small.
func (p *picture) prune() {
	if len(p.closed) <= p.limit {
		return
	}
	type group struct {
		from, to int
		area     float64
	}
	var groups []group
	for i := 0; i < len(p.closed); {
		g := group{from: i}
		for job := p.closed[i].job; i < len(p.closed) && p.closed[i].job == job; i++ {
			g.area += p.areaOf(&p.closed[i])
		}
		g.to = i
		groups = append(groups, g)
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		switch {
		case a.area > b.area:
			return -1
		case a.area < b.area:
			return 1
		}
		return 0
	})
	room := p.limit
	kept := 0
	for kept < len(groups) && groups[kept].to-groups[kept].from <= room {
		room -= groups[kept].to - groups[kept].from
		kept++
	}
	for _, g := range groups[kept:] {
		p.lostJobs++
		p.lostArea += g.area
	}
	groups = groups[:kept]
	slices.SortFunc(groups, func(a, b group) int { return a.from - b.from })
	to := 0
	for _, g := range groups {
		to += copy(p.closed[to:], p.closed[g.from:g.to])
	}
	p.closed = p.closed[:to]
}

// areaOf is the fraction of a node that a segment takes, times its duration.
func (p *picture) areaOf(s *segment) float64 {
	of := 1.0
	if devices := len(p.devices[s.node]); devices > 0 && !s.ofCores {
		of = float64(devices)
	}
	return (s.end - s.start).Seconds() * float64(s.hi-s.lo) / of
}

// lane allocates disjoint ranges of a divisible resource, for drawing.
type lane struct {
	size  int64
	taken []span // in order
}

type span struct{ from, to int64 }

// take allocates the first gap that is large enough or, if there is none, several smaller ones.
func (l *lane) take(n int64) []span {
	at, pieces := int64(0), []span(nil)
	for i := 0; i <= len(l.taken); i++ {
		end := l.size
		if i < len(l.taken) {
			end = l.taken[i].from
		}
		if end-at >= n {
			l.insert(span{at, at + n})
			return []span{{at, at + n}}
		}
		if end > at {
			pieces = append(pieces, span{at, end})
		}
		if i < len(l.taken) {
			at = l.taken[i].to
		}
	}
	var got []span
	for _, s := range pieces {
		s.to = min(s.to, s.from+n)
		n -= s.to - s.from
		l.insert(s)
		if got = append(got, s); n == 0 {
			break
		}
	}
	return got
}

func (l *lane) insert(s span) {
	i, _ := slices.BinarySearchFunc(l.taken, s, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
	l.taken = slices.Insert(l.taken, i, s)
}

func (l *lane) give(s span) {
	if i := slices.Index(l.taken, s); i >= 0 {
		l.taken = slices.Delete(l.taken, i, i+1)
	}
}

// slowest names the slowest of a job's GPUs, with its speed; 1 if the job has none.
func (r *Recorder) slowest(job int) (name string, speed float64) {
	speed = 1
	if job >= len(r.held) {
		return "", speed
	}
	h := &r.held[job]
	for i, d := range r.devices[h.firstDevice:][:h.devices] {
		node := &r.cluster.Nodes[d.Node]
		kind := &r.cluster.GPUTypes[node.GPUs[d.Device]]
		if i == 0 || kind.Speed < speed {
			name, speed = fmt.Sprintf("GPU %s:%d (%s)", node.Name, d.Device, kind.Name), kind.Speed
		}
	}
	return name, speed
}
