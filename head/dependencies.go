package head

import (
	"encoding/json"
	"fmt"
	"slices"

	"muster/head/record"
	"muster/internal/indexset"
	"muster/internal/strictjson"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// Jobs wait for other jobs, for arrays as a whole, and for single tasks of arrays. The rest of an
// array waits as one job, except that each of its tasks may wait for the task with the same number of
// another array (aftercorr): sortOut takes those out of the rest that need not wait any more, or wait
// in vain. The head keeps a tally of an array's tasks instead of looking at each, and wakes the jobs
// that wait for an array only when the tally has changed in a way that can decide a dependency (news).

// dependencies is what jobs wait for: who waits for whom, and what is known of how others ended. It
// decides whether a term has happened, and changes nothing of those who wait.
type dependencies struct {
	*present
	roster *roster
	waits  waitlist
	names  names
	// stored looks up how a job ended that the core has forgotten, or how the tasks of an array ended. It
	// may be nil.
	stored func(job uint64) (Past, bool)
	pasts  map[uint64]Past // its recent answers
	// looking says that jobs which could not start any more are looked at again soon.
	looking bool
}

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
func (dep *dependencies) past(job uint64) (Past, bool) {
	if p, ok := dep.pasts[job]; ok {
		return p, true
	}
	if dep.stored == nil {
		return Past{}, false
	}
	p, ok := dep.stored(job)
	if ok && dep.roster.arrays[job] == nil { // an array with live tasks still changes
		if len(dep.pasts) >= maxPasts {
			clear(dep.pasts)
		}
		dep.pasts[job] = p
	}
	return p, ok
}

// readEnds reads how those tasks of an array ended that ended before this head started. That is done
// when it is first needed, because it reads the store.
func (dep *dependencies) readEnds(a *array) {
	if !a.unread || dep.stored == nil {
		return
	}
	a.unread = false
	if p, ok := dep.stored(a.id); ok && p.Ends != nil {
		a.ends.OK, a.ends.Bad, a.ends.Rests = p.Ends.OK, p.Ends.Bad, p.Ends.Rests
		a.ok, a.bad = a.ends.OK.Len(), a.ends.Bad.Len()
		a.told = a.news()
	}
}

// endsNow is how the tasks of an array ended, all of them.
func (dep *dependencies) endsNow(a *array) *Ends {
	dep.readEnds(a)
	if len(a.late.ok) > 0 {
		a.ends.OK.AddAll(a.late.ok...)
	}
	if len(a.late.bad) > 0 {
		a.ends.Bad.AddAll(a.late.bad...)
	}
	a.late.ok, a.late.bad = nil, nil
	return &a.ends
}

// mayDepend refuses a job that waits for a job, or for a task of an array, that never was. What has been
// may be unknown by now.
func (dep *dependencies) mayDepend(j *job) *Refusal {
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
		if t.Job >= dep.roster.next {
			return none("there is no job %d: muster queue lists those that have not ended", t.Job)
		}
		if t.Task < 0 {
			continue
		}
		if tasks, ends := dep.endsOf(t.Job); ends != nil {
			if _, is := tasks.Place(t.Task); !is {
				return none("job %d has no task %d: its tasks are %.60s", t.Job, t.Task, ends.Tasks)
			}
		} else if _, past := dep.past(t.Job); past || dep.roster.jobs[t.Job] != nil {
			return none("job %d is not an array", t.Job)
		}
	}
	return nil
}

func (dep *dependencies) dependOn(j *job, t term) {
	j.unmet = append(j.unmet, t)
	if t.Kind == slurmopt.Singleton {
		return // see nameFree
	}
	on, ok := dep.awaitedBy(j, t)
	if !ok {
		return // the outcome is final: the term has happened already, or never will
	}
	dep.waits.add(on, j)
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
func (dep *dependencies) awaitedBy(j *job, t term) (awaited, bool) {
	task := t.taskOf(j)
	if a := dep.roster.arrays[t.Job]; a != nil {
		if task < 0 {
			return awaited{job: t.Job, whole: true}, true
		}
		if j.rest != nil && t.Task < 0 {
			return awaited{job: t.Job, each: true}, true
		}
		place, ok := a.tasks.Place(task)
		return awaited{job: t.Job + uint64(place)}, ok && dep.watch(a, place)
	}
	if a, place := dep.roster.arrayWith(t.Job); a != nil {
		return awaited{job: t.Job}, dep.watch(a, place)
	}
	o := dep.roster.jobs[t.Job]
	if o == nil || o.over() {
		return awaited{}, false
	}
	return awaited{job: t.Job, whole: true}, true
}

// watch notes that a job waits for the task at a place; false if that has ended.
func (dep *dependencies) watch(a *array, place int) bool {
	if o := dep.roster.member(a, place); o == nil || o.over() {
		return false
	}
	if a.watched == nil {
		a.watched = map[int]bool{}
	}
	a.watched[place] = true
	return true
}

// endsOf is the tasks of an array, and how those ended that have; nil if there is no such array.
func (dep *dependencies) endsOf(id uint64) (slurmopt.Tasks, *Ends) {
	if a := dep.roster.arrayOf(id); a != nil {
		return a.tasks, dep.endsNow(a)
	}
	if p, ok := dep.past(id); ok && p.Ends != nil {
		return p.Ends.tasks, p.Ends
	}
	return nil, nil
}

// settle removes the terms of a job's dependency that have been met, and finds out whether the rest
// can still be met (never).
func (dep *dependencies) settle(j *job) {
	if len(j.unmet) == 0 {
		return
	}
	any := j.said.Batch.Dependency.Any
	met := false
	failed := 0
	var left []term
	for _, t := range j.unmet {
		switch dep.outcome(j, t) {
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
func (dep *dependencies) outcome(j *job, t term) outcome {
	if t.Kind == slurmopt.Singleton {
		if j.size() == 1 && dep.names.first(key{j.user, j.title()}) == j {
			return happened
		}
		return notYet
	}
	if t.Job == j.id || t.Job == j.array {
		return cannot // a job cannot wait for itself
	}
	n, known := dep.tallyOf(j, t)
	switch {
	case !known:
		return cannot
	case t.Kind == slurmopt.After && n.pending > 0:
		return notYet
	case t.Kind == slurmopt.After:
		dep.delay(j, t)
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
func (dep *dependencies) tallyOf(j *job, t term) (tally, bool) {
	task := t.taskOf(j)
	if a := dep.roster.arrayOf(t.Job); a != nil {
		dep.readEnds(a)
		if task < 0 {
			return a.tally, true
		}
		if place, ok := a.tasks.Place(task); ok {
			return dep.tallyAt(a, place)
		}
		return tally{}, false
	}
	if task < 0 {
		if a, place := dep.roster.arrayWith(t.Job); a != nil {
			return dep.tallyAt(a, place)
		} else if o := dep.roster.jobs[t.Job]; o != nil {
			return o.tally(), true
		}
	}
	p, ok := dep.past(t.Job)
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
func (dep *dependencies) tallyAt(a *array, place int) (tally, bool) {
	if o := dep.roster.member(a, place); o != nil {
		return o.tally(), true
	}
	n := dep.endsNow(a).tallyAt(place)
	return n, n.ok+n.bad > 0
}

// ---- singletons: jobs that wait until no earlier job of the user has their name ----

// names are the jobs of a user that have the same name, in the order of their numbers; some may have
// ended.
type names map[key][]namesake

type key struct{ user, key string }

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

// delay postpones a job to the delay that it asked for (after:JOB+MINUTES) behind the other job's
// start.
func (dep *dependencies) delay(j *job, t term) {
	if t.Delay == 0 {
		return
	}
	began := dep.now
	if o := dep.roster.jobs[t.Job]; o != nil && o.start > 0 {
		began = o.start
	}
	j.notBefore = max(j.notBefore, model.After(began, t.Delay))
}

// waitAgain registers a job that was part of another with what it waits for. What has happened since
// the other one looked counts for it, too.
func (dep *dependencies) waitAgain(j *job) {
	terms := j.unmet
	j.unmet = nil
	for _, t := range terms {
		dep.dependOn(j, t)
	}
	dep.settle(j)
}

// neverMet says which term of a waiting job's dependency cannot happen any more.
func (dep *dependencies) neverMet(j *job) string {
	for _, t := range j.unmet {
		if dep.outcome(j, t) == cannot {
			return fmt.Sprintf("it waits for %s, which cannot happen any more: cancel it", t.String())
		}
	}
	return "what it depends on cannot happen any more: cancel it"
}

// waitlist is the jobs that wait for others, by what they wait for, and those that are to look whether
// what they wait for has happened: the core lets some of them look at a time.
type waitlist struct {
	waiters map[awaited][]*job
	waking  []wake
	woken   int // how many have looked, since the last Take
}

// add has a job wait under a key.
func (l *waitlist) add(on awaited, j *job) {
	list := l.waiters[on]
	if len(list) > 0 && list[len(list)-1] == j {
		return // another of its terms waits for the same
	}
	if len(list) == cap(list) { // before growing, drop jobs that no longer wait
		list = slices.DeleteFunc(list, func(w *job) bool { return w.state != api.Pending })
		list = slices.Grow(list, max(1, len(list)))
	}
	l.waiters[on] = append(list, j)
}

// wake has the jobs that wait under a key look at what they wait for; last says that nothing more will
// happen under it. A rest that is to look at many tasks looks at all of them instead, once; other jobs
// are to look once, since they leave the key.
func (l *waitlist) wake(on awaited, task int64, last bool) {
	for _, w := range l.waiters[on] {
		one := task
		if on.each {
			switch {
			case w.looks > maxLooks:
				continue // the look at all tasks is due behind the others
			case w.looks == maxLooks:
				one = -1
			}
			w.looks++
		}
		l.waking = append(l.waking, wake{w, on, one})
	}
	if !on.each || last { // rests wait there until the array has ended
		delete(l.waiters, on)
	}
}

// lookAt has a job look at everything that it waits for.
func (l *waitlist) lookAt(j *job) { l.waking = append(l.waking, wake{job: j, task: -1}) }

// next is the job that looks next.
func (l *waitlist) next() wake {
	w := l.waking[0]
	l.waking[0] = wake{}
	l.waking = l.waking[1:]
	if w.on.each {
		w.job.looks--
	}
	return w
}

// Past is how a job, or the tasks of an array, ended that the core has forgotten.
type Past struct {
	State api.State
	// Ends is how an array's tasks ended; nil for a single job.
	Ends *Ends
}

// PastOf reads how a job, or the tasks of an array, ended; get reads a record, and returns nil if there
// is none.
func PastOf(job uint64, get func(Bucket, uint64) []byte) (past Past, known bool, err error) {
	if value := get(Arrays, job); value != nil {
		past.Ends, err = DecodeEnds(value)
		return past, err == nil, err
	}
	value := get(Ended, job)
	if value == nil {
		return past, false, nil
	}
	var ended struct {
		State api.State `json:"state"`
	}
	err = json.Unmarshal(value, &ended)
	return Past{State: ended.State}, err == nil, err
}

// Ends is how the tasks of an array ended: its record in the store.
type Ends struct {
	Tasks string `json:"tasks"` // all task numbers, as --array reads them; the task at place i is job number array+i
	// OK and Bad are the places of the tasks that have ended: completed, and all others.
	OK  indexset.Set `json:"ok"`
	Bad indexset.Set `json:"bad"`
	// Rests are the numbers under which tasks ended together that never started.
	Rests []uint64 `json:"rests,omitempty"`

	tasks slurmopt.Tasks
}

// DecodeEnds reads the record of an array.
func DecodeEnds(value []byte) (*Ends, error) {
	e := &Ends{}
	err := strictjson.Decode(value, e)
	if err == nil {
		e.tasks, err = slurmopt.ParseTasks(e.Tasks)
	}
	return e, err
}

// EndsOf is the record of an array of which no task has ended, from its options; nil if these are not
// those of an array.
func EndsOf(options string) *Ends {
	said, err := slurmopt.ParseSubmitted(options)
	if err != nil || said.Batch.Array == nil {
		return nil
	}
	return &Ends{Tasks: said.Batch.Array.Tasks.String(), tasks: said.Batch.Array.Tasks}
}

// Add notes how the task at a place has ended.
func (e *Ends) Add(place int, s api.State) {
	if s == api.Completed {
		e.OK.Add(place)
	} else {
		e.Bad.Add(place)
	}
}

// Place is the place of a task; false if the array has none with this number.
func (e *Ends) Place(task int64) (int, bool) { return e.tasks.Place(task) }

// Task is the task at a place; false if there is none.
func (e *Ends) Task(place uint64) (uint32, bool) {
	if place >= uint64(e.tasks.Len()) {
		return 0, false
	}
	return e.tasks.At(int(place)), true
}

// Ended reads the record of a task that has ended; nil if it has not. Tasks that ended together have
// one record in the store.
func (e *Ends) Ended(array uint64, place int, get func(Bucket, uint64) []byte) (*record.Ended, error) {
	task, ok := e.Task(uint64(place))
	if !ok || !e.OK.Has(place) && !e.Bad.Has(place) {
		return nil, nil
	}
	for _, number := range append([]uint64{array + uint64(place)}, e.Rests...) {
		value := get(Ended, number)
		if value == nil {
			continue
		}
		d, err := record.ReadEnded(value)
		if err != nil {
			return nil, err
		}
		if d.ArrayTasks == "" {
			if number == array+uint64(place) {
				return d, nil
			}
			continue
		}
		if tasks, err := slurmopt.ParseTasks(d.ArrayTasks); err != nil {
			return nil, err
		} else if _, in := tasks.Place(int64(task)); in {
			d.ID, d.ArrayTask, d.ArrayTasks, d.ArrayCount = array+uint64(place), &task, "", 0
			return d, nil
		}
	}
	return nil, nil
}
