package head

import (
	"slices"

	"muster/internal/indexset"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// An array is one job, its rest, until its tasks start. A rest is a job that stands for many tasks:
// it is held, waits for dependencies and passes the gates as one. What differs for some of its tasks
// is taken out of it (bear, part). A rest has the number and the task of the first of its tasks, so
// it gets another number when that one leaves, and the job that left has the old number.
//
// Behind the gates, the policy sees only the next tasks of each array (refill). They become jobs of
// their own in the order of their numbers, at the array's place in the queue (job.turn). The policy
// decides as if it saw all of them, because the tasks of an array ask for the same: while one waits
// for room, those behind it would, too.

const (
	// maxWindow is how many tasks of an array wait with the policy at most, and maxBirths how many
	// tasks of all arrays become jobs before the policy decides again: both bound the time of a step.
	maxWindow = 128
	maxBirths = 128
	perNames  = 400 // as many nodes that a job may use cost as much as a job
	// maxWindows is how many tasks of one user's arrays wait with the policy; each array may have
	// one all the same.
	maxWindows = 1024
	// maxApart is how many tasks of an array may be changed one by one before they start.
	maxApart = 1000
	// maxSingly is how many tasks of cancelled rests one event ends one by one.
	maxSingly = 200
)

// renumber gives a rest the number of the first of its tasks.
func (q *queue) renumber(r *job) {
	a := q.roster.arrayOf(r.array)
	number := a.id + uint64(r.rest.First())
	if number == r.id {
		return
	}
	if q.roster.jobs[r.id] == r {
		delete(q.roster.jobs, r.id)
	}
	q.out.vacate(r.id)
	r.task = int64(a.tasks.At(r.rest.First()))
	a.move(r, number)
	q.roster.jobs[r.id] = r
}

// bear makes a task of a rest a job of its own; of the last one, the rest itself. If all tasks of the
// rest have passed the gates, the job has passed them, too.
func (q *queue) bear(r *job, place int) *job {
	a := q.roster.arrayOf(r.array)
	j := r
	passed := r.passed == r.size()
	if r.size() > 1 {
		j = q.roster.stand(r, place)
		j.of = nil
		r.rest.Remove(place)
		q.renumber(r)
		q.roster.jobs[j.id] = j
		q.budget.looked += a.list(j) / perMoved
		q.out.touch(r)
		q.deps.waitAgain(j)
	} else {
		r.rest = nil
		a.rests = slices.DeleteFunc(a.rests, func(o *job) bool { return o == r })
	}
	if passed {
		r.passed--
		j.passed, j.inArray, j.inLimit = 0, true, true
	}
	q.out.touch(j)
	return j
}

// cut makes some tasks of a rest, but not all, a rest of their own.
func (q *queue) cut(r *job, places *indexset.Set) *job {
	p := q.roster.stand(r, places.First())
	own := *places
	p.of, p.rest = nil, &own
	if p.gate == atArray || p.gate == atLimit { // r is in the list there, and p is not
		p.gate = atBegin
	}
	p.passed = max(0, r.passed-(r.size()-own.Len()))
	r.passed -= p.passed
	r.rest.RemoveAll(&own)
	q.renumber(r)
	q.roster.jobs[p.id] = p
	q.budget.looked += q.roster.arrays[r.array].list(p) / perMoved
	q.deps.waitAgain(p)
	q.out.touch(r)
	q.out.touch(p)
	return p
}

// own makes a task, or several, that are shown as a job (stand) one, so that it can be changed; nil if
// the rest has ended since, or lacks some of them, as after a request that names them twice.
func (q *queue) own(j *job) *job {
	r := j.of
	some := indexset.Of(int(j.id-j.array), int(j.id-j.array)+1)
	if j.rest != nil {
		some = *j.rest
	}
	for place := range some.All {
		if r.over() || r.rest == nil || !r.rest.Has(place) {
			return nil
		}
	}
	switch {
	case some.Len() == 1:
		j = q.bear(r, some.First())
	case some.Len() == r.size():
		j = r
	default:
		j = q.cut(r, &some)
		if r.looks > 0 { // what the rest was yet to look at may be about these tasks
			q.deps.waits.lookAt(j)
		}
	}
	if j.gate == atArray || j.gate == atLimit { // the rest waits there for all
		j.gate = atBegin
	}
	q.advanceJob(j)
	return j
}

// part takes tasks out of a rest, but not all, for which a dependency has been decided. They go to a
// rest of the same array that is like what they have become, or are a new one.
func (q *queue) part(r *job, places *indexset.Set) {
	p := q.roster.stand(r, places.First())
	q.deps.settle(p)
	rests := q.roster.arrays[r.array].rests
	at := slices.IndexFunc(rests, func(o *job) bool { return o != r && o.like(p) })
	if at < 0 {
		p = q.cut(r, places)
	} else {
		p = rests[at]
		r.rest.RemoveAll(places)
		p.rest.AddAll(places)
		q.renumber(r)
		q.renumber(p)
		q.out.touch(r)
		q.out.touch(p)
	}
	q.advanceJob(p)
}

func equal(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// ---- the gates ----

// sortOut divides a rest if the tasks of other arrays for which its tasks wait (aftercorr) have ended
// differently.
func (q *queue) sortOut(r *job) {
	if r.rest == nil || r.state != api.Pending {
		return
	}
	var groups []indexset.Set
	for _, t := range r.unmet {
		if t.Kind != slurmopt.AfterCorr || t.Task >= 0 || t.Job == r.array {
			continue
		}
		tasks, ends := q.deps.endsOf(t.Job)
		if ends == nil {
			continue // the same is true for all tasks
		}
		if groups == nil {
			groups = []indexset.Set{*r.rest}
		}
		var finer []indexset.Set
		for i := range groups {
			finer = append(finer, divide(&groups[i], q.roster.arrays[r.array].tasks, tasks, ends)...)
		}
		groups = finer
	}
	for i := range groups[min(1, len(groups)):] {
		q.part(r, &groups[i+1])
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
