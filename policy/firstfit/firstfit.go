// Package firstfit holds the policies that try every waiting job in order of
// submission and start each that fits: plain first fit, and the two queues of
// the TSUBAME paper. In the G queue a node serves one job at a time; in the R
// queue a job may also share nodes and borrow the GPUs of others.
package firstfit

import (
	"slices"

	"muster/model"
	"muster/policy"
)

// FirstFit lets jobs share nodes.
var FirstFit = policy.Entry{
	Name:    "first-fit",
	Summary: "every waiting job is tried in order, and started if it fits; jobs overtake freely",
	New:     maker(policy.Sharing),
}

// GQueue is TSUBAME's queue as it was.
var GQueue = policy.Entry{
	Name:    "g-queue",
	Summary: "TSUBAME's G queue: first fit over all waiting jobs, and a node serves one job at a time",
	New:     maker(policy.Alone),
}

// RQueue is the paper's proposal.
var RQueue = policy.Entry{
	Name:    "r-queue",
	Summary: "TSUBAME's R queue: as g-queue, and what does not fit so may share nodes and borrow GPUs",
	New:     maker(policy.Borrowing),
}

func maker(mode policy.Mode) func(model.Settings) (policy.Policy, error) {
	return func(model.Settings) (policy.Policy, error) { return &firstFit{mode: mode}, nil }
}

// firstFit keeps the waiting jobs by shape. Of the jobs of one shape
// the first in the queue stands for all: if it does not fit, none does. A step
// costs as much as there are shapes, not jobs, and nothing while nothing is freed.
type firstFit struct {
	mode    policy.Mode
	lines   []line    // by shape ID
	classes [][]int32 // by class: its lines that have or had jobs, by number of nodes
	front   []int32   // lines that may start a job in this step
	// odd are waiting jobs that are tried each for itself at every step: of
	// those that want remote GPUs, one may fit though another like it did not,
	// and a change elsewhere may help.
	odd []policy.JobID
}

// line is the queue of one shape.
type line struct {
	shape  *policy.Shape
	jobs   []policy.JobID
	head   int
	active bool
}

func (l *line) empty() bool         { return l.head == len(l.jobs) }
func (l *line) first() policy.JobID { return l.jobs[l.head] }

var _ policy.Policy = (*firstFit)(nil)

func (p *firstFit) Traits() policy.Traits { return policy.Traits{Mode: p.mode} }

func (p *firstFit) Step(v *policy.View, plan *policy.Plan) {
	p.front = p.front[:0]
	p.dropCancelled(v)
	if v.Reordered() {
		p.reorder(v)
	}
	if v.Freed() {
		p.lookEverywhere(v)
	}
	for _, id := range v.Arrived() {
		sh := v.Shape(id)
		if sh.Request.Remote != nil {
			p.odd = slices.Insert(p.odd, v.PlaceIn(p.odd, id), id)
			continue
		}
		for sh.ID() >= len(p.lines) {
			p.lines = append(p.lines, line{})
		}
		l := &p.lines[sh.ID()]
		fresh := l.empty()
		l.shape = sh
		l.jobs = slices.Insert(l.jobs, l.head+v.PlaceIn(l.jobs[l.head:], id), id)
		if !l.active {
			p.activate(l)
		}
		// Behind others of its shape it has its turn when they have had theirs.
		if fresh && v.MayFit(sh, p.mode) {
			p.front = append(p.front, int32(sh.ID()))
		}
	}
	keep := p.odd[:0]
	defer func() { p.odd = keep }()
	for odd := p.odd; ; {
		c := p.foremost(v)
		for len(odd) > 0 && (c < 0 || v.Precedes(odd[0], p.lines[p.front[c]].first())) {
			if !p.start(v, plan, odd[0]) {
				keep = append(keep, odd[0])
			}
			odd = odd[1:]
			c = p.foremost(v)
		}
		if c < 0 {
			return
		}
		s := p.front[c]
		l := &p.lines[s]
		if !p.start(v, plan, l.first()) {
			p.remove(c)
			continue
		}
		l.head++
		if l.empty() {
			l.jobs, l.head = l.jobs[:0], 0
			p.remove(c)
		}
	}
}

// lookEverywhere collects the lines that may start a job. Of a class only those
// are looked at that ask for no more nodes than there is room for.
func (p *firstFit) lookEverywhere(v *policy.View) {
	for c, class := range p.classes {
		if len(class) == 0 {
			continue
		}
		room := v.Room(p.lines[class[0]].shape, p.mode)
		for i := 0; i < len(class); i++ {
			l := &p.lines[class[i]]
			if l.shape.Nodes() > room {
				break
			}
			if l.empty() {
				l.active = false
				class = slices.Delete(class, i, i+1)
				p.classes[c] = class
				i--
				continue
			}
			if v.MayFit(l.shape, p.mode) {
				p.front = append(p.front, class[i])
			}
		}
	}
}

// activate lists a line with its class.
func (p *firstFit) activate(l *line) {
	l.active = true
	for l.shape.Class() >= len(p.classes) {
		p.classes = append(p.classes, nil)
	}
	class := &p.classes[l.shape.Class()]
	at, _ := slices.BinarySearchFunc(*class, l.shape.Nodes(), func(s int32, nodes int) int {
		return p.lines[s].shape.Nodes() - nodes
	})
	*class = slices.Insert(*class, at, int32(l.shape.ID()))
}

func (p *firstFit) start(v *policy.View, plan *policy.Plan, id policy.JobID) bool {
	a := v.Place(v.Shape(id), p.mode)
	return a != nil && plan.Start(id, a, policy.Reason{Code: policy.Overtook})
}

// foremost finds the line whose first job is first in the queue of those that
// may fit, and forgets lines that no longer do: within a step room only shrinks.
func (p *firstFit) foremost(v *policy.View) int {
	best := -1
	for i := 0; i < len(p.front); {
		l := &p.lines[p.front[i]]
		if !v.MayFit(l.shape, p.mode) {
			p.remove(i)
			continue
		}
		if best < 0 || v.Precedes(l.first(), p.lines[p.front[best]].first()) {
			best = i
		}
		i++
	}
	return best
}

func (p *firstFit) remove(i int) {
	last := len(p.front) - 1
	p.front[i] = p.front[last]
	p.front = p.front[:last]
}

func (p *firstFit) dropCancelled(v *policy.View) {
	for _, id := range v.Left() {
		if v.Shape(id).Request.Remote != nil {
			if at := v.Find(p.odd, id); at >= 0 {
				p.odd = slices.Delete(p.odd, at, at+1)
			}
			continue
		}
		if v.Shape(id).ID() >= len(p.lines) {
			continue // it was adopted, and never waited
		}
		l := &p.lines[v.Shape(id).ID()]
		if at := v.Find(l.jobs[l.head:], id); at >= 0 {
			l.jobs = slices.Delete(l.jobs, l.head+at, l.head+at+1)
		}
	}
	if len(v.Reshaped()) == 0 {
		return
	}
	gone := map[policy.JobID]bool{}
	for _, id := range v.Reshaped() {
		gone[id] = true
	}
	for i := range p.lines {
		l := &p.lines[i]
		l.jobs = append(l.jobs[:l.head], slices.DeleteFunc(l.jobs[l.head:], func(id policy.JobID) bool { return gone[id] })...)
	}
}

// reorder sorts the lines again: ranks have changed. Those whose first job is
// another now need no other look: what it asks for is the same.
func (p *firstFit) reorder(v *policy.View) {
	v.Sort(p.odd)
	for i := range p.lines {
		v.Sort(p.lines[i].jobs[p.lines[i].head:])
	}
}

func (p *firstFit) Why(v *policy.View, id policy.JobID) string {
	return v.Shortage(v.Shape(id), p.mode)
}
