package head

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"muster/internal/indexset"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// roster is the jobs in memory: those that have not ended, and for a while those that have. It finds
// them by number, by array and task, and as users name them. It knows what a job is, and nothing of
// what happens to it.
type roster struct {
	jobs map[uint64]*job
	// order lists the numbers of single jobs and of arrays, ascending; those that were forgotten may
	// still be listed. kept is how many of them are in memory.
	order  []uint64
	kept   int
	arrays map[uint64]*array
	over   map[uint64]*array // arrays that ended not long ago
	ended  []endedJob        // in the order of their ends
	hungry []*array          // arrays of which the policy may see more tasks

	next             uint64 // the number of the next job
	records          int    // counts the jobs that have not ended, an array as one
	pending, running int
	starts           int64 // how many attempts have begun
}

func newRoster() *roster {
	return &roster{next: 1, jobs: map[uint64]*job{}, arrays: map[uint64]*array{}, over: map[uint64]*array{}}
}

// enlist adds a single job, or an array with its first job.
func (r *roster) enlist(number uint64) {
	r.order = append(r.order, number)
	r.kept++
}

// lives says whether a job, or a task of an array, has not ended.
func (r *roster) lives(id uint64) bool {
	j := r.jobs[id]
	return r.arrays[id] != nil || j != nil && !j.over()
}

// arrayOf finds an array with tasks that have not ended, or that ended not long ago.
func (r *roster) arrayOf(id uint64) *array {
	if a := r.arrays[id]; a != nil {
		return a
	}
	return r.over[id]
}

// arrayWith finds the array that has a job number, and the place of its task.
func (r *roster) arrayWith(number uint64) (*array, int) {
	i := sort.Search(len(r.order), func(i int) bool { return r.order[i] > number })
	if i == 0 {
		return nil, 0
	}
	a := r.arrayOf(r.order[i-1])
	if a == nil || number-a.id >= uint64(a.tasks.Len()) {
		return nil, 0
	}
	return a, int(number - a.id)
}

// member finds the job in memory that is a task, or the rest that stands for it.
func (r *roster) member(a *array, place int) *job {
	if j := r.jobs[a.id+uint64(place)]; j != nil && j.rest == nil {
		return j
	}
	for _, o := range a.rests {
		if o.rest.Has(place) {
			return o
		}
	}
	return nil
}

// anyOf is a job in memory of an array, or the job that has this number; nil if there is none.
func (r *roster) anyOf(id uint64) *job {
	if a := r.arrayOf(id); a != nil {
		for _, j := range a.members {
			if !j.gone {
				return j
			}
		}
	}
	return r.jobs[id]
}

// from visits the jobs in memory from a number on, in the order of their numbers.
func (r *roster) from(first uint64) func(yield func(*job) bool) {
	return func(yield func(*job) bool) {
		i := sort.Search(len(r.order), func(i int) bool { return r.order[i] > first })
		for _, id := range r.order[max(0, i-1):] { // the one before may be an array
			var all []*job
			if a := r.arrayOf(id); a != nil {
				all = a.members[sort.Search(len(a.members), func(i int) bool { return a.members[i].id >= first }):]
			} else if j := r.jobs[id]; j != nil {
				all = []*job{j}
			}
			for _, j := range all {
				if !j.gone && j.id >= first && !yield(j) {
					return
				}
			}
		}
	}
}

// findOne finds the only job that a reference names.
func (r *roster) findOne(ref Ref) (*job, *Refusal) {
	if a := r.arrayOf(ref.Job); a != nil {
		if place, ok := a.tasks.Place(ref.Task); ok {
			if j := r.member(a, place); j != nil {
				return r.single(j, place), nil
			}
		}
		return nil, refusal(statusNotFound, "there is no task %d in job %d, or it is long over", ref.Task, ref.Job)
	}
	if ref.Task >= 0 {
		return nil, refusal(statusNotFound, "there is no job %d_%d, or it is long over", ref.Job, ref.Task)
	}
	if a, place := r.arrayWith(ref.Job); a != nil {
		if j := r.member(a, place); j != nil {
			return r.single(j, place), nil
		}
	}
	if j := r.jobs[ref.Job]; j != nil {
		return j, nil
	}
	return nil, notThere(ref)
}

// single is the job of a task: its own, or that which stands for it.
func (r *roster) single(j *job, place int) *job {
	if j.rest == nil {
		return j
	}
	return r.stand(j, place)
}

// nameOf is the name of the tasks of an array that a reference means; "" if it means one job.
func (r *roster) nameOf(ref Ref) string {
	switch {
	case ref.Tasks != "":
		return fmt.Sprintf("%d_[%s]", ref.Job, ref.Tasks)
	case ref.Task < 0 && r.arrayOf(ref.Job) != nil:
		return fmt.Sprint(ref.Job)
	}
	return ""
}

// lineOf is the number of the array or job of which a reference names something.
func (r *roster) lineOf(ref Ref) uint64 {
	if ref.Task < 0 && r.arrayOf(ref.Job) == nil {
		if a, _ := r.arrayWith(ref.Job); a != nil {
			return a.id
		}
	}
	return ref.Job
}

// stand is a task of a rest as if it were a job of its own, for those who look at it.
func (r *roster) stand(rest *job, place int) *job {
	j := *rest
	a := r.arrayOf(rest.array)
	j.id, j.task, j.rest, j.of, j.passed = a.id+uint64(place), int64(a.tasks.At(place)), nil, rest, 0
	j.dirty, j.told, j.looks, j.unmet = false, false, 0, slices.Clip(rest.unmet) // settle makes new ones
	return &j
}

// notThere refuses a request for tasks of an array of which none is in memory.
func notThere(ref Ref) *Refusal {
	if ref.Tasks == "" {
		return refusal(statusNotFound, "there is no job %d, or it is long over", ref.Job)
	}
	return refusal(statusNotFound, "there is no task %.40s in job %d, or it is long over", ref.Tasks, ref.Job)
}

// tasksText is the task numbers of a rest.
func (r *roster) tasksText(j *job) string {
	tasks := r.arrayOf(j.array).tasks
	var text []byte
	j.rest.Each(func(from, to int) { text = tasks.AppendBetween(text, from, to) })
	return string(text)
}

// restName is the name of a rest for people.
func (r *roster) restName(j *job) string { return fmt.Sprintf("%d_[%s]", j.array, r.tasksText(j)) }

// maxEnded is how many ended jobs are kept in memory, however long Config.Keep is, and maxForgotten how
// many one event drops.
const (
	maxEnded     = 10_000
	maxForgotten = 1000
)

// endedJob is a job that is listed among the others until an instant.
type endedJob struct {
	job   *job
	until time.Duration
}

// keepEnded lists an ended job until an instant, and says whether it is the first.
func (r *roster) keepEnded(j *job, until time.Duration) (first bool) {
	r.ended = append(r.ended, endedJob{j, until})
	if len(r.ended) > maxEnded {
		r.forget(r.ended[0].job)
		r.ended = r.ended[1:]
	}
	return len(r.ended) == 1
}

// forgetEnded drops the jobs whose time of being listed is over, and says when that of the next is;
// false if there is none.
func (r *roster) forgetEnded(now time.Duration) (next time.Duration, some bool) {
	for n := 0; n < maxForgotten && len(r.ended) > 0 && r.ended[0].until <= now; n++ {
		r.forget(r.ended[0].job)
		r.ended = r.ended[1:]
	}
	if len(r.ended) == 0 {
		return 0, false
	}
	return r.ended[0].until, true
}

// forget drops an ended job. An ended array is dropped with the task of it that ended last. Lists are
// compacted when half of their jobs are gone.
func (r *roster) forget(j *job) {
	delete(r.jobs, j.id)
	j.gone = true
	if a := r.arrayOf(j.array); a != nil {
		a.gone++
		if j.rest != nil {
			a.rests = slices.DeleteFunc(a.rests, func(o *job) bool { return o == j })
		}
		if len(a.members) > 64 && a.gone > len(a.members)/2 {
			a.members = slices.DeleteFunc(a.members, func(m *job) bool { return m.gone })
			a.skip, a.gone = 0, 0
		}
		if r.over[a.id] != a || a.last != j.id {
			return
		}
		delete(r.over, a.id)
	}
	r.kept--
	if len(r.order) > 64 && r.kept < len(r.order)/2 {
		r.order = slices.DeleteFunc(r.order, func(id uint64) bool { return r.jobs[id] == nil && r.arrayOf(id) == nil })
	}
}

// array is an array with tasks that have not ended, or that ended not long ago.
type array struct {
	id       uint64
	tasks    slurmopt.Tasks // the task at place i is job number id+i
	limit    int            // how many may run at a time; 0 is no limit
	admitted int            // tasks that have passed the array's gate
	waiting  []*job
	members  []*job // its jobs in memory, by number; those that were forgotten may still be listed
	skip     int    // the members before this one have ended
	gone     int    // members that were forgotten
	rests    []*job // the members that stand for several tasks, or for one that has not been offered
	made     int    // how many of them there have been
	offered  int    // tasks that wait with the policy
	hungry   bool   // the array is in roster.hungry
	apart    int    // tasks that were changed one by one before they started

	tally
	told    news         // what the jobs that wait for the array were last told
	watched map[int]bool // places of the tasks for which jobs wait
	ends    Ends         // how tasks ended, without late; see dependencies.endsNow
	// late are tasks that have ended since: they are added together, because a set with many runs is
	// long, and each of very many parts may end in one event.
	late   struct{ ok, bad []*indexset.Set }
	unread bool   // ends lacks the tasks that ended before this head started
	dirty  bool   // the array is in outbox.endings
	last   uint64 // the number of the job that ended last
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

// isThere says that there is a job with a number.
func (r *roster) isThere(number uint64) bool { return r.jobs[number] != nil }

// countPending counts a job as pending (by is 1), or as no longer pending (by is -1). A job that
// becomes pending again wakes nothing; told is updated so that its next start is news.
func (r *roster) countPending(j *job, by int) {
	by *= j.size()
	r.pending += by
	if a := r.arrays[j.array]; a != nil {
		if a.pending += by; by > 0 {
			a.told = a.news()
		}
	}
}

// hunger notes that the policy may see more tasks of an array.
func (r *roster) hunger(a *array) {
	if !a.hungry {
		a.hungry = true
		r.hungry = append(r.hungry, a)
	}
}
