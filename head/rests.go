package head

import (
	"slices"
	"sort"

	"muster/internal/indexset"
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

// size is how many tasks a job stands for.
func (j *job) size() int {
	if j.rest == nil {
		return 1
	}
	return j.rest.Len()
}

// list adds a job to those of its array, and says how many it has moved.
func (a *array) list(j *job) (moved int) {
	at := sort.Search(len(a.members), func(i int) bool { return a.members[i].id >= j.id })
	a.members = slices.Insert(a.members, at, j)
	a.skip = min(a.skip, at)
	if j.rest != nil && !slices.Contains(a.rests, j) {
		a.rests = append(a.rests, j)
		a.made++
	}
	return len(a.members) - at
}

// move gives a job of the array another number. Only those between the two move with it.
func (a *array) move(j *job, number uint64) {
	at := sort.Search(len(a.members), func(i int) bool { return a.members[i].id >= j.id })
	for a.members[at] != j { // one that was forgotten may have had the number before
		at++
	}
	to := sort.Search(len(a.members), func(i int) bool { return a.members[i].id >= number })
	if to > at {
		to--
		copy(a.members[at:to], a.members[at+1:])
	} else {
		copy(a.members[to+1:at+1], a.members[to:])
	}
	j.id, a.members[to] = number, j
	a.skip = min(a.skip, at, to)
}

// ahead is a task that waits with the policy, before a rest; nil if none is near.
func (a *array) ahead(r *job) *job {
	at := sort.Search(len(a.members), func(i int) bool { return a.members[i].id >= r.id })
	for i := at - 1; i >= max(0, at-2*maxWindow); i-- {
		if o := a.members[i]; o.offered && o.number >= 0 {
			return o
		}
	}
	return nil
}

// firstLive is the first task that has not ended, or the rest that stands for it.
func (a *array) firstLive() *job {
	for a.skip < len(a.members) && a.members[a.skip].over() {
		a.skip++
	}
	if a.skip == len(a.members) {
		return nil
	}
	return a.members[a.skip]
}

// renumber gives a rest the number of the first of its tasks.
func (c *Core) renumber(r *job) {
	a := c.roster.arrayOf(r.array)
	number := a.id + uint64(r.rest.First())
	if number == r.id {
		return
	}
	if c.roster.jobs[r.id] == r {
		delete(c.roster.jobs, r.id)
	}
	c.out.vacate(r.id)
	r.task = int64(a.tasks.At(r.rest.First()))
	a.move(r, number)
	c.roster.jobs[r.id] = r
}

// bear makes a task of a rest a job of its own; of the last one, the rest itself. If all tasks of the
// rest have passed the gates, the job has passed them, too.
func (c *Core) bear(r *job, place int) *job {
	a := c.roster.arrayOf(r.array)
	j := r
	passed := r.passed == r.size()
	if r.size() > 1 {
		j = c.roster.stand(r, place)
		j.of = nil
		r.rest.Remove(place)
		c.renumber(r)
		c.roster.jobs[j.id] = j
		c.looked += a.list(j) / perMoved
		c.out.touch(r)
		c.waitAgain(j)
	} else {
		r.rest = nil
		a.rests = slices.DeleteFunc(a.rests, func(o *job) bool { return o == r })
	}
	if passed {
		r.passed--
		j.passed, j.inArray, j.inLimit = 0, true, true
	}
	c.out.touch(j)
	return j
}

// cut makes some tasks of a rest, but not all, a rest of their own.
func (c *Core) cut(r *job, places *indexset.Set) *job {
	p := c.roster.stand(r, places.First())
	own := *places
	p.of, p.rest = nil, &own
	if p.gate == atArray || p.gate == atLimit { // r is in the list there, and p is not
		p.gate = atBegin
	}
	p.passed = max(0, r.passed-(r.size()-own.Len()))
	r.passed -= p.passed
	r.rest.RemoveAll(&own)
	c.renumber(r)
	c.roster.jobs[p.id] = p
	c.looked += c.roster.arrays[r.array].list(p) / perMoved
	c.waitAgain(p)
	c.out.touch(r)
	c.out.touch(p)
	return p
}

// own makes a task, or several, that are shown as a job (stand) one, so that it can be changed; nil if
// the rest has ended since, or lacks some of them, as after a request that names them twice.
func (c *Core) own(j *job) *job {
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
		j = c.bear(r, some.First())
	case some.Len() == r.size():
		j = r
	default:
		j = c.cut(r, &some)
		if r.looks > 0 { // what the rest was yet to look at may be about these tasks
			c.waits.lookAt(j)
		}
	}
	if j.gate == atArray || j.gate == atLimit { // the rest waits there for all
		j.gate = atBegin
	}
	c.advanceJob(j)
	return j
}

// waitAgain registers a job that was part of another with what it waits for. What has happened since
// the other one looked counts for it, too.
func (c *Core) waitAgain(j *job) {
	terms := j.unmet
	j.unmet = nil
	for _, t := range terms {
		c.dependOn(j, t)
	}
	c.settle(j)
}

// part takes tasks out of a rest, but not all, for which a dependency has been decided. They go to a
// rest of the same array that is like what they have become, or are a new one.
func (c *Core) part(r *job, places *indexset.Set) {
	p := c.roster.stand(r, places.First())
	c.settle(p)
	rests := c.roster.arrays[r.array].rests
	at := slices.IndexFunc(rests, func(o *job) bool { return o != r && o.like(p) })
	if at < 0 {
		p = c.cut(r, places)
	} else {
		p = rests[at]
		r.rest.RemoveAll(places)
		p.rest.AddAll(places)
		c.renumber(r)
		c.renumber(p)
		c.out.touch(r)
		c.out.touch(p)
	}
	c.advanceJob(p)
}

// like says whether two rests of an array differ in their tasks alone.
func (j *job) like(o *job) bool {
	return j.state == api.Pending && j.held == o.held && j.nice == o.nice && equal(j.priority, o.priority) && j.notBefore == o.notBefore &&
		j.never == o.never && slices.Equal(j.unmet, o.unmet)
}

func equal(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// ---- the gates ----

// pass lets as many tasks of a rest pass the gates of its array and its user as there is room for,
// and says at which gate the others stand. They count as admitted though they are no jobs yet.
func (c *Core) pass(r *job) gate {
	a, u, limits := c.roster.arrays[r.array], c.user(r.user), c.limits(r.user)
	left := r.size() - r.passed
	may := left
	if a.limit > 0 {
		may = min(may, max(0, a.limit-a.admitted))
	}
	fit := 0
	if len(u.waiting) == 0 || u.waiting[0] == r {
		fit = u.room(r.need, limits, may)
	}
	if r.passed == 0 {
		r.turn, r.eligible = 0, 0
		if fit > 0 {
			c.turn++
			r.turn, r.eligible = c.turn, c.now
		}
	}
	a.admitted += fit
	u.take(r.need, fit)
	if r.passed += fit; r.passed > 0 {
		c.hunger(a)
	}
	switch {
	case fit == left:
		return atPolicy
	case fit < may:
		if r.gate != atLimit {
			u.waiting = append(u.waiting, r)
		}
		return atLimit
	}
	if r.gate != atArray {
		a.waiting = append(a.waiting, r)
	}
	return atArray
}

// room is how many of most jobs with this need fit into a user's limits.
func (u *user) room(n need, l Limits, most int) int {
	if l.Running > 0 {
		most = min(most, l.Running-u.admitted)
	}
	if l.GPUs > 0 && n.gpus > 0 {
		most = min(most, (l.GPUs-u.taken.gpus)/n.gpus)
	}
	if l.Cores > 0 && n.cores > 0 {
		most = min(most, (l.Cores-u.taken.cores)/n.cores)
	}
	if l.Memory > 0 && n.memory > 0 {
		most = min(most, int((l.Memory-u.taken.memory)/n.memory))
	}
	return max(0, most)
}

// hunger notes that the policy may see more tasks of an array.
func (c *Core) hunger(a *array) {
	if !a.hungry {
		a.hungry = true
		c.hungry = append(c.hungry, a)
	}
}

// refill offers the next tasks of arrays to the policy.
func (c *Core) refill() {
	if len(c.hungry) == 0 {
		return
	}
	var whole need
	for _, n := range c.nodes {
		if !n.removed {
			whole.cores += n.cores
			whole.gpus += len(n.devices)
		}
	}
	births := maxBirths
	hungry := c.hungry
	c.hungry = nil
	for i, a := range hungry {
		if births <= 0 {
			c.hungry = append(c.hungry, hungry[i:]...)
			break
		}
		a.hungry = false
		births -= c.feed(a, whole, births)
	}
	c.stepDue = c.stepDue || len(c.hungry) > 0
}

// feed offers the next tasks of an array to the policy, one more than the cluster could start at a
// time, and says how many those were.
func (c *Core) feed(a *array, whole need, most int) (born int) {
	if len(c.lines[a.id]) > 0 {
		return 0 // see done
	}
	for {
		r := a.next()
		if r == nil {
			return born
		}
		if u := c.user(r.user); a.offered > 0 && (a.offered >= windowOf(r, whole) || u.offered >= maxWindows) {
			return born
		}
		if born >= most {
			c.hunger(a)
			return born
		}
		born += 1 + len(r.options)/perOptions + c.listed(r)/perNames
		passed := r.passed
		j := c.bear(r, r.rest.First())
		if !j.inArray { // others of the rest wait at a gate
			j.inArray, j.inLimit = true, true
			if r.passed = passed - 1; r.passed == 0 {
				r.turn, r.eligible = 0, 0
			}
		}
		j.gate = atPolicy
		c.offer(j)
	}
}

// listed is how many nodes the policy is told that a job may use; 0 if it may use all.
func (c *Core) listed(j *job) int {
	if c.chooses(j) {
		return len(c.nodes)
	}
	return len(j.said.Request.NodeList)
}

// next is the rest of an array whose tasks are offered next; nil if none has passed the gates.
func (a *array) next() *job {
	var first *job
	for _, r := range a.rests {
		if r.passed > 0 && r.state == api.Pending && (first == nil || r.turn < first.turn || r.turn == first.turn && r.id < first.id) {
			first = r
		}
	}
	return first
}

// windowOf is how many tasks of a rest the policy should see: one more than could run at a time.
func windowOf(r *job, whole need) int {
	most := whole.cores / max(1, r.need.cores)
	if r.need.gpus > 0 {
		most = min(most, whole.gpus/r.need.gpus)
	}
	return min(maxWindow, 1+most)
}

// count says how many tasks of its array a job makes wait with the policy.
func (c *Core) count(j *job, offered bool) {
	if j.array == 0 || j.offered == offered {
		return
	}
	j.offered = offered
	a, u := c.roster.arrays[j.array], c.user(j.user)
	if offered {
		a.offered++
		u.offered++
		return
	}
	a.offered--
	u.offered--
	c.hunger(a)
}
