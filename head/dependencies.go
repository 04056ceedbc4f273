package head

import (
	"fmt"
	"slices"

	"muster/internal/indexset"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// Jobs wait for other jobs, for arrays as a whole, and for single tasks of arrays. The rest of an
// array waits as one job, except that each of its tasks may wait for the task with the same number of
// another array (aftercorr): sortOut takes those out of the rest that need not wait any more, or wait
// in vain. The head keeps a tally of an array's tasks instead of looking at each, and wakes the jobs
// that wait for an array only when the tally has changed in a way that can decide a dependency (news).

// term is one condition of a dependency.
type term struct {
	slurmopt.Term
}

// awaited identifies what jobs wait for: a whole array or a single job, by its number (whole is
// true), or one task of an array, by the task's own job number (whole is false). Rests that wait task
// by task for those of an array have each true.
type awaited struct {
	job         uint64
	whole, each bool
}

// wake is a job that is to look at what it waits for: at what happened under a key, or at everything.
// With awaited.each, that is the task with this number of another array, or all if it is -1.
type wake struct {
	job  *job
	on   awaited
	task int64
}

// maxWoken is how many jobs look at what they wait for in one event: others do so in the next, so
// that a job for which 10,000 wait does not make everybody wait when it ends. One that has to look at
// each of its tasks counts for more.
const (
	maxWoken = 256
	perTasks = 100 // as many tasks cost as much as a job
	perTerms = 16  // as many terms do
)

// maxLooks is for how many single tasks of other arrays a rest may be due to look.
const maxLooks = 16

// tally counts the tasks of an array by state; a single job counts as an array of one.
type tally struct {
	pending, live int // live are all tasks that have not ended, pending ones included
	ok, bad       int // tasks that have ended: completed, and all others
}

func (t *tally) end(s api.State, n int) {
	if s == api.Completed {
		t.ok += n
	} else {
		t.bad += n
	}
}

// news is the part of a tally on which the outcome of a term may depend. While it stays the same,
// waiting jobs need not be woken.
type news struct{ pending, live, bad bool }

func (t *tally) news() news { return news{t.pending > 0, t.live > 0, t.bad > 0} }

// tallyAt counts the ended task at a place, or all of them if the place is -1.
func (e *Ends) tallyAt(place int) (n tally) {
	switch {
	case place < 0:
		n.ok, n.bad = e.OK.Len(), e.Bad.Len()
	case e.OK.Has(place):
		n.ok = 1
	case e.Bad.Has(place):
		n.bad = 1
	}
	return n
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
	if ok && c.roster.arrays[job] == nil { // an array with live tasks still changes
		if len(c.pasts) >= maxPasts {
			clear(c.pasts)
		}
		c.pasts[job] = p
	}
	return p, ok
}

// readEnds reads how those tasks of an array ended that ended before this head started. That is done
// when it is first needed, because it reads the store.
func (c *Core) readEnds(a *array) {
	if !a.unread || c.Past == nil {
		return
	}
	a.unread = false
	if p, ok := c.Past(a.id); ok && p.Ends != nil {
		a.ends.OK, a.ends.Bad, a.ends.Rests = p.Ends.OK, p.Ends.Bad, p.Ends.Rests
		a.ok, a.bad = a.ends.OK.Len(), a.ends.Bad.Len()
		a.told = a.news()
	}
}

// endsNow is how the tasks of an array ended, all of them.
func (c *Core) endsNow(a *array) *Ends {
	c.readEnds(a)
	if len(a.late.ok) > 0 {
		a.ends.OK.AddAll(a.late.ok...)
	}
	if len(a.late.bad) > 0 {
		a.ends.Bad.AddAll(a.late.bad...)
	}
	a.late.ok, a.late.bad = nil, nil
	return &a.ends
}

// countPending counts a job as pending (by is 1), or as no longer pending (by is -1). A job that
// becomes pending again wakes nothing; told is updated so that its next start is news.
func (c *Core) countPending(j *job, by int) {
	by *= j.size()
	c.pending += by
	if a := c.roster.arrays[j.array]; a != nil {
		if a.pending += by; by > 0 {
			a.told = a.news()
		}
	}
}

// mayDepend refuses a job that waits for a job, or for a task of an array, that never was. What has been
// may be unknown by now.
func (c *Core) mayDepend(j *job) *Refusal {
	d := j.said.Batch.Dependency
	if d == nil {
		return nil
	}
	for _, t := range d.Terms {
		none := func(format string, args ...any) *Refusal {
			return refusal(statusBadRequest, "--dependency %s: %s", t.String(), fmt.Sprintf(format, args...))
		}
		if t.Kind == slurmopt.Singleton {
			continue
		}
		if t.Job >= c.next {
			return none("there is no job %d: muster queue lists those that have not ended", t.Job)
		}
		if t.Task < 0 {
			continue
		}
		if tasks, ends := c.endsOf(t.Job); ends != nil {
			if _, is := tasks.Place(t.Task); !is {
				return none("job %d has no task %d: its tasks are %.60s", t.Job, t.Task, ends.Tasks)
			}
		} else if _, past := c.past(t.Job); past || c.roster.jobs[t.Job] != nil {
			return none("job %d is not an array", t.Job)
		}
	}
	return nil
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
	c.sortOut(j)
	c.settle(j)
}

// correlated counts the terms that let each task of an array wait for another one.
func correlated(d *slurmopt.Dependency) (n int) {
	if d == nil {
		return 0
	}
	for _, t := range d.Terms {
		if t.Kind == slurmopt.AfterCorr && t.Task < 0 {
			n++
		}
	}
	return n
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
	c.waits.add(on, j)
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
	if a := c.roster.arrays[t.Job]; a != nil {
		if task < 0 {
			return awaited{job: t.Job, whole: true}, true
		}
		if j.rest != nil && t.Task < 0 {
			return awaited{job: t.Job, each: true}, true
		}
		place, ok := a.tasks.Place(task)
		return awaited{job: t.Job + uint64(place)}, ok && c.watch(a, place)
	}
	if a, place := c.roster.arrayWith(t.Job); a != nil {
		return awaited{job: t.Job}, c.watch(a, place)
	}
	o := c.roster.jobs[t.Job]
	if o == nil || o.over() {
		return awaited{}, false
	}
	return awaited{job: t.Job, whole: true}, true
}

// watch notes that a job waits for the task at a place; false if that has ended.
func (c *Core) watch(a *array, place int) bool {
	if o := c.roster.member(a, place); o == nil || o.over() {
		return false
	}
	if a.watched == nil {
		a.watched = map[int]bool{}
	}
	a.watched[place] = true
	return true
}

// sortOut divides a rest if the tasks of other arrays for which its tasks wait (aftercorr) have ended
// differently.
func (c *Core) sortOut(r *job) {
	if r.rest == nil || r.state != api.Pending {
		return
	}
	var groups []indexset.Set
	for _, t := range r.unmet {
		if t.Kind != slurmopt.AfterCorr || t.Task >= 0 || t.Job == r.array {
			continue
		}
		tasks, ends := c.endsOf(t.Job)
		if ends == nil {
			continue // the same is true for all tasks
		}
		if groups == nil {
			groups = []indexset.Set{*r.rest}
		}
		var finer []indexset.Set
		for i := range groups {
			finer = append(finer, divide(&groups[i], c.roster.arrays[r.array].tasks, tasks, ends)...)
		}
		groups = finer
	}
	for i := range groups[min(1, len(groups)):] {
		c.part(r, &groups[i+1])
	}
}

// divide divides the tasks of an array into those whose counterparts in another array have not ended,
// have completed, and have ended otherwise or do not exist.
func divide(some *indexset.Set, own, tasks slurmopt.Tasks, ends *Ends) []indexset.Set {
	var open, met, vain indexset.Set
	if slices.Equal(own, tasks) { // the usual case need not look at each task
		vain, open = some.Split(&ends.Bad)
		met, open = open.Split(&ends.OK)
		return filled(open, met, vain)
	}
	bad, completed := ends.Bad.Ascending(), ends.OK.Ascending()
	for place := range some.All {
		at, ok := tasks.Place(int64(own.At(place)))
		switch {
		case !ok || bad(at):
			vain.Add(place)
		case completed(at):
			met.Add(place)
		default:
			open.Add(place)
		}
	}
	return filled(open, met, vain)
}

// filled lists the sets that are not empty.
func filled(all ...indexset.Set) (sets []indexset.Set) {
	for _, s := range all {
		if s.Len() > 0 {
			sets = append(sets, s)
		}
	}
	return sets
}

// endsOf is the tasks of an array, and how those ended that have; nil if there is no such array.
func (c *Core) endsOf(id uint64) (slurmopt.Tasks, *Ends) {
	if a := c.roster.arrayOf(id); a != nil {
		return a.tasks, c.endsNow(a)
	}
	if p, ok := c.past(id); ok && p.Ends != nil {
		return p.Ends.tasks, p.Ends
	}
	return nil, nil
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
		if j.size() == 1 && c.names.first(key{j.user, j.title()}) == j {
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
	if a := c.roster.arrayOf(t.Job); a != nil {
		c.readEnds(a)
		if task < 0 {
			return a.tally, true
		}
		if place, ok := a.tasks.Place(task); ok {
			return c.tallyAt(a, place)
		}
		return tally{}, false
	}
	if task < 0 {
		if a, place := c.roster.arrayWith(t.Job); a != nil {
			return c.tallyAt(a, place)
		} else if o := c.roster.jobs[t.Job]; o != nil {
			return o.tally(), true
		}
	}
	p, ok := c.past(t.Job)
	place := -1
	switch {
	case !ok || task >= 0 && p.Ends == nil:
		return tally{}, false
	case p.Ends == nil:
		var n tally
		n.end(p.State, 1)
		return n, true
	case task >= 0:
		if place, ok = p.Ends.Place(task); !ok {
			return tally{}, false
		}
	}
	n := p.Ends.tallyAt(place)
	return n, n.ok+n.bad > 0
}

// tallyAt is the tally of one task of an array.
func (c *Core) tallyAt(a *array, place int) (tally, bool) {
	if o := c.roster.member(a, place); o != nil {
		return o.tally(), true
	}
	n := c.endsNow(a).tallyAt(place)
	return n, n.ok+n.bad > 0
}

func (j *job) tally() tally {
	var n tally
	switch {
	case j.over():
		n.end(j.state, 1)
		return n
	case j.state == api.Pending:
		n.pending = 1
	}
	n.live = 1
	return n
}

// happenedTo wakes the jobs that wait for a job which has started or ended.
func (c *Core) happenedTo(j *job) {
	if a := c.roster.arrayOf(j.array); a == nil {
		c.waits.wake(awaited{job: j.id, whole: true}, -1, true)
	} else {
		c.looked += min(j.size(), len(a.watched)) / perPlaces
		for _, place := range a.watchedOf(j) {
			c.waits.wake(awaited{job: a.id + uint64(place)}, -1, true)
		}
		if j.over() {
			task := j.task
			if j.rest != nil {
				task = -1
			}
			c.waits.wake(awaited{job: a.id, each: true}, task, c.roster.arrays[a.id] == nil)
		}
		if a.told != a.news() {
			a.told = a.news()
			c.waits.wake(awaited{job: j.array, whole: true}, -1, true)
		}
	}
	if j.over() {
		c.nameFree(j)
	}
}

// watchedOf lists the places of a job's tasks for which others wait.
func (a *array) watchedOf(j *job) (places []int) {
	if j.rest == nil {
		if place := int(j.id - a.id); a.watched[place] {
			places = append(places, place)
		}
		return places
	}
	if j.size() < len(a.watched) {
		for place := range j.rest.All {
			if a.watched[place] {
				places = append(places, place)
			}
		}
		return places
	}
	for place := range a.watched {
		if j.rest.Has(place) {
			places = append(places, place)
		}
	}
	slices.Sort(places)
	return places
}

// wakeSome lets jobs that were woken look at what they wait for, as many as most.
func (c *Core) wakeSome(most int) {
	for most := c.waits.woken + most; len(c.waits.waking) > 0 && c.waits.woken < most; c.waits.woken++ {
		w := c.waits.next()
		j := w.job
		if j.state != api.Pending {
			continue
		}
		c.waits.woken += len(j.unmet) / perTerms
		switch {
		case j.rest == nil || !w.on.each && w.on != (awaited{}):
		case w.task < 0:
			c.waits.woken += j.size() / perTasks
			c.sortOut(j)
		default:
			place, ok := c.roster.arrays[j.array].tasks.Place(w.task)
			if !ok || !j.rest.Has(place) || len(j.unmet) == 0 {
				continue // it is registered still, and waits no more
			}
			if j.size() > 1 {
				one := indexset.Of(place, place+1)
				c.part(j, &one)
				continue
			}
		}
		if !c.waken(j) && !w.on.each && w.on != (awaited{}) {
			c.waits.add(w.on, j)
		}
		c.freeFirst(j)
	}
}

// waken lets a job look at what it waits for, and says whether it need not wait under that key any
// more.
func (c *Core) waken(j *job) bool {
	c.settle(j)
	if len(j.unmet) > 0 && !j.never {
		return false
	}
	c.out.show(j)
	c.advanceJob(j)
	return true
}

// ---- singletons: jobs that wait until no earlier job of the user has their name ----

// names are the jobs of a user that have the same name, in the order of their numbers; some may have
// ended.
type names map[key][]namesake

// namesake is a job that has a name, or an array.
type namesake struct {
	job   *job
	array *array
}

// taken adds a job, or its array, to the list of its user's jobs with its name. Callers must add
// jobs in ascending order of their numbers.
func (n names) taken(j *job, a *array) {
	k := key{j.user, j.title()}
	if a != nil {
		j = nil
	}
	list := n[k]
	if len(list) == cap(list) { // before growing, drop those that have ended
		list = slices.DeleteFunc(list, func(o namesake) bool { return o.array == nil && o.job.over() || o.array != nil && o.array.live == 0 })
		list = slices.Grow(list, max(1, len(list)))
	}
	n[k] = append(list, namesake{j, a})
}

// first is a user's first job with a name that has not ended. It drops ended jobs from the
// front of the list.
func (n names) first(k key) *job {
	list := n[k]
	for ; len(list) > 0; list = list[1:] {
		first := list[0].job
		if list[0].array != nil {
			first = list[0].array.firstLive()
		}
		if first != nil && !first.over() {
			n[k] = list
			return first
		}
		list[0] = namesake{}
	}
	delete(n, k)
	return nil
}

// nameFree settles the next job with the ended job's name, which may have waited for it
// (singleton).
func (c *Core) nameFree(ended *job) {
	next := c.names.first(key{ended.user, ended.title()})
	if next == nil || next.state != api.Pending || len(next.unmet) == 0 {
		return
	}
	if next.size() > 1 {
		c.freeFirst(next)
		return
	}
	if c.settle(next); len(next.unmet) == 0 {
		c.out.show(next)
		c.advanceJob(next)
	}
}

// freeFirst lets the first task of a rest go if it waits only until it is the first of its name.
func (c *Core) freeFirst(r *job) {
	alone := slices.ContainsFunc(r.unmet, func(t term) bool { return t.Kind == slurmopt.Singleton })
	if alone && r.state == api.Pending && r.size() > 1 && c.names.first(key{r.user, r.title()}) == r {
		c.advanceJob(c.bear(r, r.rest.First()))
	}
}

// delay postpones a job to the delay that it asked for (after:JOB+MINUTES) behind the other job's
// start.
func (c *Core) delay(j *job, t term) {
	if t.Delay == 0 {
		return
	}
	began := c.now
	if o := c.roster.jobs[t.Job]; o != nil && o.start > 0 {
		began = o.start
	}
	j.notBefore = max(j.notBefore, model.After(began, t.Delay))
}
