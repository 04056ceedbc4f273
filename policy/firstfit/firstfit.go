// Package firstfit holds the policies that try every waiting job in order of
// submission and start each that fits: plain first fit, and the two queues of
// the TSUBAME paper. In the G queue a node serves one job at a time; in the R
// queue a job may also share nodes and borrow the GPUs of others.
package firstfit

import (
	"container/heap"

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

func maker(mode policy.Mode) func(policy.Settings) (policy.Policy, error) {
	return func(policy.Settings) (policy.Policy, error) { return &firstFit{mode: mode}, nil }
}

// firstFit keeps the waiting jobs by shape. Of the jobs of one shape
// the first in the queue stands for all: if it does not fit, none does. A step
// costs as much as there are shapes, not jobs, and nothing while nothing is freed.
type firstFit struct {
	mode   policy.Mode
	lines  []line // by shape ID
	active []int32
	front  front
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
	if v.Freed() {
		keep := p.active[:0]
		for _, s := range p.active {
			l := &p.lines[s]
			if l.empty() {
				l.active, l.jobs, l.head = false, l.jobs[:0], 0
				continue
			}
			keep = append(keep, s)
			if v.MayFit(l.shape, p.mode) {
				p.front = append(p.front, contender{l.first(), s})
			}
		}
		p.active = keep
	}
	for _, id := range v.Arrived() {
		sh := v.Shape(id)
		for sh.ID() >= len(p.lines) {
			p.lines = append(p.lines, line{})
		}
		l := &p.lines[sh.ID()]
		fresh := l.empty()
		l.shape = sh
		l.jobs = append(l.jobs, id)
		if !l.active {
			l.active = true
			p.active = append(p.active, int32(sh.ID()))
		}
		// Behind others of its shape it has its turn when they have had theirs.
		if fresh && v.MayFit(sh, p.mode) {
			p.front = append(p.front, contender{id, int32(sh.ID())})
		}
	}
	heap.Init(&p.front)
	for len(p.front) > 0 {
		c := p.front[0]
		l := &p.lines[c.line]
		a := v.Place(l.shape, p.mode)
		if a == nil || !plan.Start(c.job, a, policy.Reason{Code: policy.Overtook}) {
			heap.Pop(&p.front)
			continue
		}
		l.head++
		if l.empty() {
			l.jobs, l.head = l.jobs[:0], 0
			heap.Pop(&p.front)
			continue
		}
		p.front[0].job = l.first()
		heap.Fix(&p.front, 0)
	}
}

func (p *firstFit) dropCancelled(v *policy.View) {
	for _, id := range v.Left() {
		l := &p.lines[v.Shape(id).ID()]
		for i := l.head; i < len(l.jobs) && l.jobs[i] <= id; i++ {
			if l.jobs[i] == id {
				l.jobs = append(l.jobs[:i], l.jobs[i+1:]...)
			}
		}
	}
}

func (p *firstFit) Why(v *policy.View, id policy.JobID) string {
	return v.Shortage(v.Shape(id), p.mode)
}

// contender is the first job of a line that may fit.
type contender struct {
	job  policy.JobID
	line int32
}

type front []contender

func (f front) Len() int           { return len(f) }
func (f front) Less(i, j int) bool { return f[i].job < f[j].job }
func (f front) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *front) Push(x any)        { *f = append(*f, x.(contender)) }
func (f *front) Pop() any          { c := (*f)[len(*f)-1]; *f = (*f)[:len(*f)-1]; return c }
