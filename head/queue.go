package head

import (
	"slices"
	"time"

	"muster/internal/indexset"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// queue is the jobs that have not ended on their way to the policy, and those who wait for them: it moves
// jobs through the gates, and lets others pass when one has ended.
type queue struct {
	ground
	deps   *dependencies
	desk   *desk
	chores *chores
}

// cancelWaiting ends a job that waits.
func (q *queue) cancelWaiting(j *job, reason string) {
	q.leave(j)
	if a := q.roster.arrays[j.array]; a != nil && j.rest != nil {
		// The record of the array lists the rests that ended, and grows with each, so a small one ends
		// as its tasks do: of n tasks, less than the root of 2n can end in rests. If very many end in one
		// event, others would wait for long: then the small ones end as rests, too.
		q.deps.readEnds(a)
		if few := j.size() <= len(a.ends.Rests) && q.budget.singly+j.size() <= maxSingly; few {
			q.budget.singly += j.size()
			j.unmet = nil
			for j.size() > 1 {
				q.cancelWaiting(q.bear(j, j.rest.First()), reason)
			}
			q.bear(j, j.rest.First())
		}
	}
	q.roster.countPending(j, -1)
	j.state, j.reason, j.end = api.Cancelled, reason, q.now
	q.settleEnded(j)
}

// keepEnded lists an ended job among the others for a while.
func (q *queue) keepEnded(j *job) {
	until := model.After(q.now, q.cfg.Keep)
	if q.roster.keepEnded(j, until) {
		q.timers.set(timer{at: until, what: ringForget})
	}
}

// forgetEnded drops the jobs whose time of being listed is over.
func (q *queue) forgetEnded() {
	if next, some := q.roster.forgetEnded(q.now); some {
		q.timers.set(timer{at: max(next, q.now+1), what: ringForget})
	}
}

// depend registers what a new job must wait for.
func (q *queue) depend(j *job) {
	d := j.said.Batch.Dependency
	if d == nil {
		return
	}
	for _, t := range d.Terms {
		q.deps.dependOn(j, term{t})
	}
	q.sortOut(j)
	q.deps.settle(j)
}

// happenedTo wakes the jobs that wait for a job which has started or ended.
func (q *queue) happenedTo(j *job) {
	if a := q.roster.arrayOf(j.array); a == nil {
		q.deps.waits.wake(awaited{job: j.id, whole: true}, -1, true)
	} else {
		q.budget.looked += min(j.size(), len(a.watched)) / perPlaces
		for _, place := range a.watchedOf(j) {
			q.deps.waits.wake(awaited{job: a.id + uint64(place)}, -1, true)
		}
		if j.over() {
			task := j.task
			if j.rest != nil {
				task = -1
			}
			q.deps.waits.wake(awaited{job: a.id, each: true}, task, q.roster.arrays[a.id] == nil)
		}
		if a.told != a.news() {
			a.told = a.news()
			q.deps.waits.wake(awaited{job: j.array, whole: true}, -1, true)
		}
	}
	if j.over() {
		q.nameFree(j)
	}
}

// wakeSome lets jobs that were woken look at what they wait for, as many as most.
func (q *queue) wakeSome(most int) {
	for most := q.deps.waits.woken + most; len(q.deps.waits.waking) > 0 && q.deps.waits.woken < most; q.deps.waits.woken++ {
		w := q.deps.waits.next()
		j := w.job
		if j.state != api.Pending {
			continue
		}
		q.deps.waits.woken += len(j.unmet) / perTerms
		switch {
		case j.rest == nil || !w.on.each && w.on != (awaited{}):
		case w.task < 0:
			q.deps.waits.woken += j.size() / perTasks
			q.sortOut(j)
		default:
			place, ok := q.roster.arrays[j.array].tasks.Place(w.task)
			if !ok || !j.rest.Has(place) || len(j.unmet) == 0 {
				continue // it is registered still, and waits no more
			}
			if j.size() > 1 {
				one := indexset.Of(place, place+1)
				q.part(j, &one)
				continue
			}
		}
		if !q.waken(j) && !w.on.each && w.on != (awaited{}) {
			q.deps.waits.add(w.on, j)
		}
		q.freeFirst(j)
	}
}

// waken lets a job look at what it waits for, and says whether it need not wait under that key any
// more.
func (q *queue) waken(j *job) bool {
	q.deps.settle(j)
	if len(j.unmet) > 0 && !j.never {
		return false
	}
	q.out.show(j)
	q.advanceJob(j)
	return true
}

// nameFree settles the next job with the ended job's name, which may have waited for it
// (singleton).
func (q *queue) nameFree(ended *job) {
	next := q.deps.names.first(key{ended.user, ended.title()})
	if next == nil || next.state != api.Pending || len(next.unmet) == 0 {
		return
	}
	if next.size() > 1 {
		q.freeFirst(next)
		return
	}
	if q.deps.settle(next); len(next.unmet) == 0 {
		q.out.show(next)
		q.advanceJob(next)
	}
}

// freeFirst lets the first task of a rest go if it waits only until it is the first of its name.
func (q *queue) freeFirst(r *job) {
	alone := slices.ContainsFunc(r.unmet, func(t term) bool { return t.Kind == slurmopt.Singleton })
	if alone && r.state == api.Pending && r.size() > 1 && q.deps.names.first(key{r.user, r.title()}) == r {
		q.advanceJob(q.bear(r, r.rest.First()))
	}
}

// pass lets as many tasks of a rest pass the gates of its array and its user as there is room for,
// and says at which gate the others stand. They count as admitted though they are no jobs yet.
func (q *queue) pass(r *job) gate {
	a, line := q.roster.arrays[r.array], q.users.lineOf(r.order)
	left := r.size() - r.passed
	may := left
	if a.limit > 0 {
		may = min(may, max(0, a.limit-a.admitted))
	}
	fit := 0
	if len(line.waiting) == 0 || line.waiting[0] == r {
		fit = q.users.room(r.order, may)
	}
	if r.passed == 0 {
		r.turn, r.eligible = 0, 0
		if fit > 0 {
			q.desk.turn++
			r.turn, r.eligible = q.desk.turn, q.now
		}
	}
	a.admitted += fit
	q.users.take(r.order, fit)
	if r.passed += fit; r.passed > 0 {
		q.roster.hunger(a)
	}
	switch {
	case fit == left:
		return atPolicy
	case fit < may:
		if r.gate != atLimit {
			line.waiting = append(line.waiting, r)
		}
		return atLimit
	}
	if r.gate != atArray {
		a.waiting = append(a.waiting, r)
	}
	return atArray
}

// refill offers the next tasks of arrays to the policy.
func (q *queue) refill() {
	if len(q.roster.hungry) == 0 {
		return
	}
	var whole need
	for _, n := range q.fleet.nodes {
		if !n.removed {
			whole.cores += n.cores
			whole.gpus += len(n.devices)
		}
	}
	births := maxBirths
	hungry := q.roster.hungry
	q.roster.hungry = nil
	for i, a := range hungry {
		if births <= 0 {
			q.roster.hungry = append(q.roster.hungry, hungry[i:]...)
			break
		}
		a.hungry = false
		births -= q.feed(a, whole, births)
	}
	q.desk.dueIfHungry()
}

// feed offers the next tasks of an array to the policy, one more than the cluster could start at a
// time, and says how many those were.
func (q *queue) feed(a *array, whole need, most int) (born int) {
	if len(q.chores.lines[a.id]) > 0 {
		return 0 // see done
	}
	for {
		r := a.next()
		if r == nil {
			return born
		}
		if u := q.users.of(r.user); a.offered > 0 && (a.offered >= windowOf(r, whole) || u.offered >= maxWindows) {
			return born
		}
		if born >= most {
			q.roster.hunger(a)
			return born
		}
		born += 1 + len(r.options)/perOptions + q.fleet.listed(r)/perNames
		passed := r.passed
		j := q.bear(r, r.rest.First())
		if !j.inArray { // others of the rest wait at a gate
			j.inArray, j.inLimit = true, true
			if r.passed = passed - 1; r.passed == 0 {
				r.turn, r.eligible = 0, 0
			}
		}
		j.gate = atPolicy
		q.desk.offer(j)
	}
}

// windowOf is how many tasks of a rest the policy should see: one more than could run at a time.
func windowOf(r *job, whole need) int {
	most := whole.cores / max(1, r.need.cores)
	if r.need.gpus > 0 {
		most = min(most, whole.gpus/r.need.gpus)
	}
	return min(maxWindow, 1+most)
}

// enter records a new job, or an array as one, and advances it to the gate at which it must wait, or
// to the policy.
func (q *queue) enter(j *job) {
	if array := j.said.Batch.Array; array != nil {
		rest := indexset.Of(0, array.Tasks.Len())
		j.array, j.task, j.rest = j.id, int64(array.Tasks.At(0)), &rest
	}
	q.insert(j)
	q.depend(j)
	q.out.touch(j)
	q.out.write(metaRecord(q.began, q.roster.next))
	q.advanceJob(j)
	q.freeFirst(j)
}

// insert adds a job to the core's maps and counts.
func (q *queue) insert(j *job) {
	q.roster.jobs[j.id] = j
	q.users.submitted(j.order, j.size())
	a := q.roster.arrays[j.array]
	if fresh := a == nil; j.array == 0 || fresh {
		if j.array != 0 {
			a = &array{id: j.array, limit: j.said.Batch.Array.Limit, tasks: j.said.Batch.Array.Tasks}
			a.ends.Tasks = a.tasks.String()
			q.roster.arrays[j.array] = a
		}
		q.roster.enlist(j.bulk())
		q.roster.records++
		q.users.of(j.user).records++
		q.deps.names.taken(j, a)
		if d := &j.said.Batch.Deadline; d.Set {
			q.timers.set(timer{at: max(q.now, q.moment(d, j)), what: ringDeadline, job: j.bulk()})
		}
	}
	q.roster.next = max(q.roster.next, j.id+1)
	if a != nil {
		q.roster.next = max(q.roster.next, a.id+uint64(a.tasks.Len()))
		a.live += j.size()
		a.list(j)
	}
	q.roster.countPending(j, 1)
}

// advanceJob moves a waiting job through the gates as far as it may go, and offers it to the policy
// behind the last. A job that is held goes back to the first gate, even from the policy.
func (q *queue) advanceJob(j *job) {
	if j.state != api.Pending || j.number >= 0 && j.held == 0 {
		return
	}
	was := j.gate
	switch {
	case j.held != 0:
		q.leave(j)
		j.gate = atHold
	case len(j.unmet) > 0 || j.never:
		j.gate = atDependency
	case q.beginOf(j) > q.now:
		if at := q.beginOf(j); j.rings != at { // one that was held and released has its timer still
			q.timers.set(timer{at: at, what: ringBegin, job: j.bulk()})
			j.rings = at
		}
		j.gate = atBegin
	case j.rest != nil:
		j.gate = q.pass(j)
	case !q.passArray(j):
		j.gate = atArray
	case !q.passLimit(j):
		j.gate = atLimit
	default:
		paused := was == atBegin && j.nth > 0
		if was != atPolicy && !paused || j.eligible == 0 {
			j.eligible = q.now
		}
		j.gate = atPolicy
		q.desk.offer(j)
	}
	if was != j.gate {
		q.out.touch(j)
	}
}

// passArray admits a job to its array's limit of running tasks, or makes it wait. A job whose gate
// is atArray is in a.waiting already.
func (q *queue) passArray(j *job) bool {
	if j.array == 0 || j.inArray {
		return true
	}
	a := q.roster.arrays[j.array]
	if a.limit > 0 && a.admitted >= a.limit {
		if j.gate != atArray {
			a.waiting = append(a.waiting, j)
		}
		return false
	}
	a.admitted++
	j.inArray = true
	return true
}

// passLimit admits a job to the limits that apply to it, or makes it wait. Jobs to which the same limits apply pass in
// order: one that would fit waits behind an earlier one that does not, or large jobs would starve.
func (q *queue) passLimit(j *job) bool {
	if j.inLimit {
		return true
	}
	line := q.users.lineOf(j.order)
	first := len(line.waiting) == 0 || line.waiting[0] == j
	if !first || !q.users.fits(j.order) {
		if j.gate != atLimit {
			line.waiting = append(line.waiting, j)
		}
		return false
	}
	q.users.take(j.order, 1)
	j.inLimit = true
	return true
}

// leave takes a waiting job back from the policy, from the gates that it has passed, and from the one
// at which it waits: others may have waited behind it.
func (q *queue) leave(j *job) {
	if j.number >= 0 {
		if err := q.desk.state.Cancel(j.number); err != nil {
			panic("head: " + err.Error()) // the policy has it and it waits, so this cannot fail
		}
		delete(q.desk.numbered, j.number)
		j.number = -1
		q.desk.ranking.Stopped(j.id, q.now)
		q.desk.due() // other jobs may have waited behind it
	}
	j.turn = 0
	q.desk.count(j, false)
	line := q.users.lineOf(j.order)
	first := len(line.waiting) > 0 && line.waiting[0] == j
	line.waiting = without(line.waiting, j)
	if a := q.roster.arrays[j.array]; a != nil {
		a.waiting = without(a.waiting, j)
	}
	q.giveBack(j)
	if first {
		q.admitWaiting(line)
	}
}

// without removes a job from a list.
func without(list []*job, j *job) []*job {
	return slices.DeleteFunc(list, func(o *job) bool { return o == j })
}

// giveBack frees a job's places at the gates, and lets the next jobs pass there.
func (q *queue) giveBack(j *job) {
	inArray, inLimit := j.passed, j.passed // places at the two gates
	if j.inArray {
		inArray++
	}
	if j.inLimit {
		inLimit++
	}
	j.inArray, j.inLimit, j.passed = false, false, 0
	if inArray > 0 && j.array != 0 {
		a := q.roster.arrays[j.array]
		a.admitted -= inArray
		q.admitTasks(a)
	}
	if inLimit > 0 {
		q.users.take(j.order, -inLimit)
		q.admitLines()
	}
}

// admitTasks lets the waiting tasks of an array pass as long as there is room, in their order. A rest
// stays at the front of the list until all its tasks have passed.
func (q *queue) admitTasks(a *array) {
	for len(a.waiting) > 0 && a.admitted < a.limit {
		next := a.waiting[0]
		if next.gate == atArray && next.state == api.Pending {
			if next.rest == nil {
				// With the gate before, passArray puts it there again if need be.
				next.gate = atBegin
			}
			q.advanceJob(next)
			if next.rest != nil && next.gate == atArray {
				return
			}
		}
		if len(a.waiting) > 0 && a.waiting[0] == next {
			a.waiting = a.waiting[1:]
		}
	}
}

// admitLines lets jobs pass that wait for limits, as long as there is room: line by line, since several may wait for the same.
func (q *queue) admitLines() {
	for _, l := range q.users.standing() {
		q.admitWaiting(l)
	}
}

// admitWaiting lets the jobs of a line pass as long as there is room, in their order. A job
// stays at the front of the list while it advances, because passLimit admits only the first, and a
// rest until all its tasks have passed.
func (q *queue) admitWaiting(l *line) {
	for len(l.waiting) > 0 {
		next := l.waiting[0]
		if next.gate == atLimit && next.state == api.Pending && next.held == 0 {
			if !q.users.fits(next.order) {
				return
			}
			q.advanceJob(next)
			if next.rest != nil && next.gate == atLimit {
				return
			}
		}
		if len(l.waiting) > 0 && l.waiting[0] == next {
			l.waiting = l.waiting[1:]
		}
	}
}

// settleEnded does what follows from a job's end, whether the job ever ran or not.
func (q *queue) settleEnded(j *job) {
	j.unmet = nil
	if j.number >= 0 {
		delete(q.desk.numbered, j.number)
		j.number = -1
	}
	q.desk.ranking.Gone(j.id, q.now)
	q.desk.count(j, false)
	q.fleet.discard(q.out, j)
	q.giveBack(j)
	u := q.users.of(j.user)
	q.users.submitted(j.order, -j.size())
	a := q.roster.arrays[j.array]
	if a != nil {
		q.taskOver(a, j)
	}
	if a == nil || a.live == 0 {
		q.roster.records--
		u.records--
	}
	q.out.touch(j)
	q.happenedTo(j)
	q.keepEnded(j)
}

// corrected notes that a job has ended otherwise than was said before, when it counted as failed. Jobs that
// could not start any more because of that look at it again.
func (q *queue) corrected(job, array uint64, is api.State) {
	delete(q.deps.pasts, job)
	if is != api.Completed {
		return
	}
	place := int(job - array)
	if a := q.roster.arrayOf(array); a != nil {
		ends := q.deps.endsNow(a)
		ends.Bad.Remove(place)
		ends.OK.Add(place)
		a.ok, a.bad = a.ok+1, a.bad-1
		q.out.ended(a)
	} else if past, ok := q.deps.past(array); array != 0 && ok && past.Ends != nil {
		past.Ends.Bad.Remove(place) // also for those who look at it from now on
		past.Ends.OK.Add(place)
		q.out.write(Record{Arrays, Number(array), encoded(past.Ends)})
	}
	if !q.deps.looking { // many such results come at a time, when nodes come back, and many jobs may wait
		q.deps.looking = true
		q.timers.set(timer{at: q.now + lookPause, what: ringLook})
	}
}

// lookPause is for how long results are collected because of which jobs are looked at again.
const lookPause = time.Second

// lookAgain looks again at the jobs that could not start any more.
func (q *queue) lookAgain() {
	q.deps.looking = false
	for j := range q.roster.from(0) {
		if j.state == api.Pending && j.never {
			q.deps.waits.lookAt(j)
		}
	}
}

// taskOver notes that a task of an array has ended, or the tasks of a rest.
func (q *queue) taskOver(a *array, j *job) {
	q.deps.readEnds(a)
	into := &a.late.bad
	if j.state == api.Completed {
		into = &a.late.ok
	}
	places := j.rest
	if places != nil {
		a.ends.Rests = append(a.ends.Rests, j.id)
	} else {
		one := indexset.Of(int(j.id-a.id), int(j.id-a.id)+1)
		places = &one
	}
	*into = append(*into, places)
	q.out.ended(a)
	a.end(j.state, j.size())
	if a.live -= j.size(); a.live == 0 {
		a.last = j.id
		delete(q.roster.arrays, a.id)
		q.roster.over[a.id] = a
	}
}
