package policy

import "slices"

// Lines keeps the waiting jobs by shape, for policies that try all jobs in the order of the queue.
// A line is the jobs of one shape; its first job stands for all: if it does not fit, none of them
// does. So a step costs as much as there are shapes, not jobs, and next to nothing while nothing is
// freed.
//
// In a step the policy calls Begin, then Next until it returns false. For each job that Next
// returns, the policy starts it, or calls Failed because it could not be placed, or does neither
// and so passes it over: then Next goes on with the next job of the same shape, and the line is
// tried again in the next step.
type Lines struct {
	mode    Mode
	begun   bool
	lines   []line    // by shape ID
	classes [][]int32 // by class: its lines that have or had jobs, sorted by number of nodes
	// odd are the waiting jobs that want remote GPUs, in the order of the queue. Each is tried at
	// every step: of two jobs with the same request one may fit although the other did not, and a
	// change on any node may help.
	odd []JobID
	// passed are the lines with jobs that were passed over in the last step.
	passed []int32

	candidates []int32 // lines that may start a job in this step
	// The state of the walk: the candidates that are left, the number of odd jobs that were tried,
	// and what Next returned last.
	front  []int32
	turned int
	last   turn
}

// turn is the job that Next returned last: an odd job, or one of a line.
type turn struct {
	job    JobID // -1 for none
	front  int   // the index of its line in front; -1 for an odd job
	failed bool
}

// line is the queue of one shape.
type line struct {
	shape  *Shape
	jobs   []JobID
	head   int
	next   int  // relative to head: the jobs before it were passed over in this walk
	active bool // the line is listed in classes
	marked bool // the line is in passed
}

func (l *line) empty() bool { return l.head == len(l.jobs) }

// NewLines returns empty lines for jobs that are placed in this mode.
func NewLines(mode Mode) *Lines { return &Lines{mode: mode, last: turn{job: -1}} }

// Begin takes in what has changed since the last step, and begins a walk. Lines that are new, or
// were made to Forget, take in all waiting jobs.
func (p *Lines) Begin(v *View) {
	arrived := v.Arrived()
	p.candidates = p.candidates[:0]
	if p.begun {
		p.passOverRest()
		p.dropLeft(v)
		if v.Reordered() {
			p.reorder(v)
		}
		if v.Freed() {
			p.lookEverywhere(v)
		} else {
			p.candidates = append(p.candidates, p.passed...)
		}
	} else {
		arrived = v.WaitingJobs()
	}
	p.begun = true
	for _, id := range arrived {
		p.join(v, id)
	}
	for _, s := range p.passed {
		p.lines[s].marked = false
	}
	p.passed = p.passed[:0]
	p.Again(v)
}

// passOverRest ends a walk that the policy did not finish: the lines it did not reach are tried
// again in the next step.
func (p *Lines) passOverRest() {
	if p.last.failed && p.last.front >= 0 {
		p.remove(p.last.front)
	}
	p.last = turn{job: -1}
	for _, s := range p.front {
		p.mark(s)
	}
	p.front = p.front[:0]
}

func (p *Lines) mark(s int32) {
	if l := &p.lines[s]; !l.marked {
		l.marked = true
		p.passed = append(p.passed, s)
	}
}

// Forget makes the next Begin take in all waiting jobs. A policy calls it after it has missed
// steps.
func (p *Lines) Forget() { *p = *NewLines(p.mode) }

// Again begins another walk in the same step.
func (p *Lines) Again(v *View) {
	p.settle(v)
	for _, s := range p.candidates {
		p.lines[s].next = 0
	}
	p.front = append(p.front[:0], p.candidates...)
	p.turned, p.last = 0, turn{job: -1}
}

// join puts a job that has arrived into its line.
func (p *Lines) join(v *View, id JobID) {
	sh := v.Shape(id)
	if sh.Request.Remote != nil {
		p.odd = slices.Insert(p.odd, v.PlaceIn(p.odd, id), id)
		return
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
	// A job behind others of its shape does not make the line a candidate: if the first does not
	// fit, it does not either.
	if fresh && (!l.marked || v.Freed()) && v.MayFit(sh, p.mode) {
		p.candidates = append(p.candidates, int32(sh.ID()))
	}
}

// lookEverywhere makes candidates of all lines that may start a job. The lines of a class are
// sorted by number of nodes, so it stops at the first that wants more nodes than the class has room
// for. It also drops empty lines.
func (p *Lines) lookEverywhere(v *View) {
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
				p.candidates = append(p.candidates, class[i])
			}
		}
	}
}

// activate lists a line with its class.
func (p *Lines) activate(l *line) {
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

// Next is the next job in the order of the queue that may fit; ok is false at the end of the walk.
func (p *Lines) Next(v *View) (id JobID, ok bool) {
	p.settle(v)
	c := p.foremost(v)
	for p.turned < len(p.odd) {
		id := p.odd[p.turned]
		if c >= 0 && !v.Precedes(id, p.foremostOf(c)) {
			break
		}
		if v.Waits(id) {
			p.last = turn{job: id, front: -1}
			return id, true
		}
		p.odd = slices.Delete(p.odd, p.turned, p.turned+1) // it was started
	}
	if c < 0 {
		return -1, false
	}
	p.last = turn{job: p.foremostOf(c), front: c}
	return p.last.job, true
}

// Failed says that the job that Next returned was not placed.
func (p *Lines) Failed() { p.last.failed = true }

// FailedIf is Failed if it was this job that Next returned.
func (p *Lines) FailedIf(id JobID) {
	if p.last.job == id {
		p.last.failed = true
	}
}

// settle takes note of what the policy did with the job that Next returned: a failed job takes its
// whole line out of the walk, and a job that was passed over lets the next of its line follow.
func (p *Lines) settle(v *View) {
	t := p.last
	p.last = turn{job: -1}
	switch {
	case t.job < 0:
	case t.front < 0:
		if v.Waits(t.job) {
			p.turned++
		} else {
			p.odd = slices.Delete(p.odd, p.turned, p.turned+1)
		}
	case !v.Waits(t.job):
		// foremost drops it
	case t.failed:
		p.remove(t.front)
	default:
		p.lines[p.front[t.front]].next++
		p.mark(p.front[t.front])
	}
}

func (p *Lines) foremostOf(c int) JobID {
	l := &p.lines[p.front[c]]
	return l.jobs[l.head+l.next]
}

// foremost finds the line whose next job is first in the queue, and drops lines that no longer fit:
// within a step free capacity only shrinks, so they cannot fit again.
func (p *Lines) foremost(v *View) int {
	best := -1
	for i := 0; i < len(p.front); {
		l := &p.lines[p.front[i]]
		if !l.trim(v) || !v.MayFit(l.shape, p.mode) {
			p.remove(i)
			continue
		}
		if best < 0 || v.Precedes(l.jobs[l.head+l.next], p.foremostOf(best)) {
			best = i
		}
		i++
	}
	return best
}

// trim drops started jobs at the walk's position in the line, and says whether any job is left
// there.
func (l *line) trim(v *View) bool {
	for at := l.head + l.next; at < len(l.jobs) && !v.Waits(l.jobs[at]); {
		if l.next == 0 {
			l.head++
			at++
			continue
		}
		l.jobs = slices.Delete(l.jobs, at, at+1)
	}
	if l.empty() {
		l.jobs, l.head = l.jobs[:0], 0
	}
	return l.head+l.next < len(l.jobs)
}

func (p *Lines) remove(i int) {
	last := len(p.front) - 1
	p.front[i] = p.front[last]
	p.front = p.front[:last]
}

// dropLeft drops the jobs that left the queue.
func (p *Lines) dropLeft(v *View) {
	for _, id := range v.Left() {
		if v.Shape(id).Request.Remote != nil {
			if at := v.Find(p.odd, id); at >= 0 {
				p.odd = slices.Delete(p.odd, at, at+1)
			}
			continue
		}
		if v.Shape(id).ID() >= len(p.lines) {
			continue // it was adopted, so it was never in a line
		}
		l := &p.lines[v.Shape(id).ID()]
		if at := v.Find(l.jobs[l.head:], id); at >= 0 {
			l.jobs = slices.Delete(l.jobs, l.head+at, l.head+at+1)
		}
	}
	if len(v.Reshaped()) == 0 {
		return
	}
	gone := map[JobID]bool{}
	for _, id := range v.Reshaped() {
		gone[id] = true
	}
	for i := range p.lines {
		l := &p.lines[i]
		l.jobs = append(l.jobs[:l.head], slices.DeleteFunc(l.jobs[l.head:], func(id JobID) bool { return gone[id] })...)
	}
}

// reorder sorts the lines again after ranks have changed. A line with another first job need not be
// tried for that: the new first job asks for the same.
func (p *Lines) reorder(v *View) {
	v.Sort(p.odd)
	for i := range p.lines {
		v.Sort(p.lines[i].jobs[p.lines[i].head:])
	}
}
