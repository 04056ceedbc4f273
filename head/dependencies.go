package head

import (
	"slices"

	"muster/head/api"
	"muster/model"
	"muster/model/slurmopt"
)

// Jobs wait for other jobs, for arrays as a whole, and for single tasks of arrays. 100,000 tasks
// may each wait for an array of 100,000. So the head keeps a tally of an array's tasks instead of
// looking at each, and wakes the jobs that wait for an array only when the tally has changed in a
// way that can decide a dependency (news).

// term is one condition of a dependency.
type term struct {
	slurmopt.Term
}

// awaited identifies what jobs wait for: a whole array or a single job, by its number (whole is
// true), or one task of an array, by the task's own job number (whole is false).
type awaited struct {
	job   uint64
	whole bool
}

// tally counts the tasks of an array by state; a single job counts as an array of one.
type tally struct {
	pending, live int // live are all tasks that have not ended, pending ones included
	ok, bad       int // tasks that have ended: completed, and all others
}

func (t *tally) end(s api.State) {
	if s == api.Completed {
		t.ok++
	} else {
		t.bad++
	}
}

// news is the part of a tally on which the outcome of a term may depend. While it stays the same,
// waiting jobs need not be woken.
type news struct{ pending, live, bad bool }

func (t *tally) news() news { return news{t.pending > 0, t.live > 0, t.bad > 0} }

// Past is how a job, or the tasks of an array, ended that the core has forgotten.
type Past struct {
	State api.State
	// Tasks are the states of an array's tasks, by task number; nil for a single job.
	Tasks map[int64]api.State
}

// maxPasts is how many answers of Core.Past are cached, since reading them from disk is slow.
const maxPasts = 64

// past looks up how a forgotten job ended, or which tasks of an array have ended and how.
func (c *Core) past(job uint64) (Past, bool) {
	if p, ok := c.pasts[job]; ok {
		return p, true
	}
	if c.Past == nil {
		return Past{}, false
	}
	p, ok := c.Past(job)
	if ok && c.arrays[job] == nil { // an array with live tasks still changes
		if len(c.pasts) >= maxPasts {
			clear(c.pasts)
		}
		c.pasts[job] = p
	}
	return p, ok
}

// idOf finds the job number of a task of an array. The numbers of an array's tasks are consecutive
// and begin at the array's own.
func (a *array) idOf(array uint64, task int64) (uint64, bool) {
	if a.byTask == nil {
		a.byTask = make(map[uint32]int32, len(a.tasks))
		for i, n := range a.tasks {
			a.byTask[n] = int32(i)
		}
	}
	i, ok := a.byTask[uint32(task)]
	return array + uint64(i), ok && task >= 0
}

// readEnded adds to the tally the tasks of an array that ended before this head started. That is
// done when the tally is first needed, because it reads the store.
func (c *Core) readEnded(id uint64, a *array) {
	if len(a.unread) == 0 || c.Past == nil {
		return
	}
	p, _ := c.past(id)
	for _, task := range a.unread {
		if s, ok := p.Tasks[int64(task)]; ok {
			a.tally.end(s)
		}
	}
	a.unread = nil
}

// countPending counts a job as pending (by is 1), or as no longer pending (by is -1). A job that
// becomes pending again wakes nothing; told is updated so that its next start is news.
func (c *Core) countPending(j *job, by int) {
	c.pending += by
	if a := c.arrays[j.array]; a != nil {
		if a.pending += by; by > 0 {
			a.told = a.news()
		}
	}
}

// depend registers what a new job must wait for.
func (c *Core) depend(j *job) {
	d := j.said.Batch.Dependency
	if d == nil {
		return
	}
	for _, t := range d.Terms {
		c.dependOn(j, term{t})
	}
	c.settle(j)
}

func (c *Core) dependOn(j *job, t term) {
	j.unmet = append(j.unmet, t)
	if t.Kind == slurmopt.Singleton {
		return // see nameFree
	}
	on, ok := c.awaitedBy(j, t)
	if !ok {
		return // the outcome is final: the term has happened already, or never will
	}
	list := c.waiters[on]
	if len(list) == cap(list) { // before growing, drop jobs that no longer wait
		list = slices.DeleteFunc(list, func(w *job) bool { return w.state != api.Pending })
		list = slices.Grow(list, max(1, len(list)))
	}
	c.waiters[on] = append(list, j)
}

// taskOf is the task of an array that a term names; -1 is all. With aftercorr, a task waits for the
// task of the same number.
func (t *term) taskOf(j *job) int64 {
	if t.Kind == slurmopt.AfterCorr && t.Task < 0 && j.task >= 0 {
		return j.task
	}
	return t.Task
}

// awaitedBy is the key under which a job waits for a term; false if the term's outcome is final.
func (c *Core) awaitedBy(j *job, t term) (awaited, bool) {
	task := t.taskOf(j)
	if a := c.arrays[t.Job]; a != nil {
		if task < 0 {
			return awaited{t.Job, true}, true
		}
		id, ok := a.idOf(t.Job, task)
		return awaited{id, false}, ok
	}
	o := c.jobs[t.Job]
	if o == nil || o.over() {
		return awaited{}, false
	}
	return awaited{t.Job, o.array == 0}, true
}

// settle removes the terms of a job's dependency that have been met, and finds out whether the rest
// can still be met (never).
func (c *Core) settle(j *job) {
	if len(j.unmet) == 0 {
		return
	}
	any := j.said.Batch.Dependency.Any
	met := false
	failed := 0
	var left []term
	for _, t := range j.unmet {
		switch c.outcome(j, t) {
		case happened:
			met = true
		case cannot:
			failed++
			left = append(left, t)
		default:
			left = append(left, t)
		}
	}
	j.unmet = left
	if any && met {
		j.unmet = nil
	}
	j.never = len(j.unmet) > 0 && (!any && failed > 0 || any && failed == len(j.unmet))
}

type outcome uint8

const (
	notYet outcome = iota
	happened
	cannot
)

// outcome says whether the condition of a term has happened, has not happened yet, or cannot
// happen.
func (c *Core) outcome(j *job, t term) outcome {
	if t.Kind == slurmopt.Singleton {
		if c.firstOfName(key{j.user, j.title()}) == j {
			return happened
		}
		return notYet
	}
	if t.Job == j.id || t.Job == j.array {
		return cannot // a job cannot wait for itself
	}
	n, known := c.tallyOf(j, t)
	switch {
	case !known:
		return cannot
	case t.Kind == slurmopt.After && n.pending > 0:
		return notYet
	case t.Kind == slurmopt.After:
		c.delay(j, t)
		return happened
	case (t.Kind == slurmopt.AfterOK || t.Kind == slurmopt.AfterCorr) && n.bad > 0:
		return cannot
	case n.live > 0:
		return notYet
	case t.Kind == slurmopt.AfterNotOK && n.bad == 0:
		return cannot
	}
	return happened
}

// tallyOf is the tally of the jobs that a term names; false if the head does not know them. It is
// looked up in this order: live arrays and those that ended recently, jobs in memory, the store.
func (c *Core) tallyOf(j *job, t term) (tally, bool) {
	task := t.taskOf(j)
	a := c.arrays[t.Job]
	if a == nil {
		a = c.over[t.Job]
	}
	if a != nil {
		c.readEnded(t.Job, a)
		if task < 0 {
			return a.tally, true
		}
		if id, ok := a.idOf(t.Job, task); !ok {
			return tally{}, false
		} else if o := c.jobs[id]; o != nil {
			return o.tally(), true
		}
	} else if o := c.jobs[t.Job]; o != nil && task < 0 {
		return o.tally(), true
	}
	p, ok := c.past(t.Job)
	switch {
	case !ok || task >= 0 && p.Tasks == nil:
		return tally{}, false
	case p.Tasks == nil:
		var n tally
		n.end(p.State)
		return n, true
	}
	var n tally
	for number, s := range p.Tasks {
		if task < 0 || number == task {
			n.end(s)
		}
	}
	return n, n.ok+n.bad > 0
}

func (j *job) tally() tally {
	var n tally
	switch {
	case j.over():
		n.end(j.state)
		return n
	case j.state == api.Pending:
		n.pending = 1
	}
	n.live = 1
	return n
}

// happenedTo wakes the jobs that wait for a job which has started or ended.
func (c *Core) happenedTo(j *job) {
	c.wakeThose(awaited{j.id, j.array == 0})
	a := c.arrays[j.array]
	if a == nil {
		a = c.over[j.array]
	}
	if a != nil && a.told != a.news() {
		a.told = a.news()
		c.wakeThose(awaited{j.array, true})
	}
	if j.over() {
		c.nameFree(j)
	}
}

// wakeThose settles the jobs that wait under a key, and keeps those in the list that still wait. It
// filters the list in place: settling and advancing a job never adds to it.
func (c *Core) wakeThose(on awaited) {
	waiting := c.waiters[on]
	if len(waiting) == 0 {
		return
	}
	left := waiting[:0]
	for _, w := range waiting {
		if w.state != api.Pending {
			continue
		}
		c.settle(w)
		if len(w.unmet) > 0 && !w.never {
			left = append(left, w)
		} else {
			c.show(w)
			c.advanceJob(w)
		}
	}
	clear(waiting[len(left):])
	if c.waiters[on] = left; len(left) == 0 {
		delete(c.waiters, on)
	}
}

// ---- singletons: jobs that wait until no earlier job of the user has their name ----

// nameTaken adds a job to the list of its user's jobs with its name. Callers must add jobs in
// ascending order of their numbers.
func (c *Core) nameTaken(j *job) {
	k := key{j.user, j.title()}
	c.named[k] = append(c.named[k], j)
}

// firstOfName is a user's first job with a name that has not ended. It drops ended jobs from the
// front of the list.
func (c *Core) firstOfName(k key) *job {
	list := c.named[k]
	for len(list) > 0 && list[0].over() {
		list[0] = nil
		list = list[1:]
	}
	if len(list) == 0 {
		delete(c.named, k)
		return nil
	}
	c.named[k] = list
	return list[0]
}

// nameFree settles the next job with the ended job's name, which may have waited for it
// (singleton).
func (c *Core) nameFree(ended *job) {
	next := c.firstOfName(key{ended.user, ended.title()})
	if next == nil || next.state != api.Pending || len(next.unmet) == 0 {
		return
	}
	if c.settle(next); len(next.unmet) == 0 {
		c.show(next)
		c.advanceJob(next)
	}
}

// delay postpones a job to the delay that it asked for (after:JOB+MINUTES) behind the other job's
// start.
func (c *Core) delay(j *job, t term) {
	if t.Delay == 0 {
		return
	}
	began := c.now
	if o := c.jobs[t.Job]; o != nil && o.start > 0 {
		began = o.start
	}
	j.notBefore = max(j.notBefore, model.After(began, t.Delay))
}
