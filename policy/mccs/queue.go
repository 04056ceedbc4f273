package mccs

import (
	"cmp"
	"slices"
	"sort"
)

// Queue is one of the two of the library: that of the jobs that no node was given to,
// or that of those that run. In the first larger ranks stand first, as in the queue of
// every policy; among equal ones the program says who does.
type Queue struct {
	Name   string
	ranked bool
	// jobs are in order. Those that have left stand there until the queue is swept:
	// their queue is another, and gone counts them.
	jobs []*Job
	gone int
	// first and last are the places before and behind all others.
	first, last int64
	// cursor is how far the round has come, and skip how many at the front did not fit
	// into the room there is.
	cursor, skip int
}

// order compares the places of two jobs.
func (q *Queue) order(a, b *Job) int {
	if q.ranked && a.rank != b.rank {
		return cmp.Compare(b.rank, a.rank)
	}
	return cmp.Compare(a.seq, b.seq)
}

// Len counts the jobs in the queue.
func (q *Queue) Len() int { return len(q.jobs) - q.gone }

// Walk returns a function that returns the jobs of the queue one after the other, and nil at the
// end. The queue may change meanwhile: jobs that leave are not returned, and jobs that join may be.
func (q *Queue) Walk() func() *Job {
	i := 0
	return func() *Job {
		for i < len(q.jobs) {
			j := q.jobs[i]
			if i++; j.queue == q {
				return j
			}
		}
		return nil
	}
}

// Jobs calls do for each job of the queue, in order, until do returns false.
func (q *Queue) Jobs(do func(*Job) bool) {
	next := q.Walk()
	for j := next(); j != nil && do(j); j = next() {
	}
}

// List is the jobs of the queue, in order.
func (q *Queue) List() []*Job {
	list := make([]*Job, 0, q.Len())
	q.Jobs(func(j *Job) bool { list = append(list, j); return true })
	return list
}

// tail puts a job behind all others of its rank.
func (q *Queue) tail(j *Job) {
	q.forget(j)
	q.last++
	j.seq = q.last
	q.insert(j)
}

// head puts a job before all others of its rank.
func (q *Queue) head(j *Job) {
	q.forget(j)
	q.first--
	j.seq = q.first
	q.insert(j)
}

func (q *Queue) insert(j *Job) {
	j.queue, j.stands = q, q
	if n := len(q.jobs); n == 0 || q.order(q.jobs[n-1], j) < 0 {
		q.jobs = append(q.jobs, j)
		return
	}
	at := sort.Search(len(q.jobs), func(i int) bool { return q.order(q.jobs[i], j) > 0 })
	q.jobs = slices.Insert(q.jobs, at, j)
	if at < q.cursor {
		q.cursor++
	}
	q.skip = min(q.skip, at)
}

// take marks a job as out of the queue. Its place stays for a while.
func (q *Queue) take(j *Job) {
	j.queue = nil
	q.gone++
}

// back puts a job that was taken where it was; false if its place is not there any more.
func (q *Queue) back(j *Job) bool {
	if j.stands != q {
		return false
	}
	j.queue = q
	q.gone--
	return true
}

// forget removes the place of a job that was taken from a queue.
func (q *Queue) forget(j *Job) {
	s := j.stands
	if s == nil {
		return
	}
	at, found := slices.BinarySearchFunc(s.jobs, j, s.order)
	if !found || s.jobs[at] != j {
		panic("mccs: a job is not where it stands") // ranks change only where the queue is sorted
	}
	s.jobs = slices.Delete(s.jobs, at, at+1)
	s.gone--
	if at < s.cursor {
		s.cursor--
	}
	if at < s.skip {
		s.skip--
	}
	j.stands = nil
}

// sweep removes the places of the jobs that were taken, once they are many.
func (q *Queue) sweep() {
	if q.gone > 32+len(q.jobs)/4 {
		q.compact()
	}
}

func (q *Queue) compact() {
	kept, skip := q.jobs[:0], 0
	for i, j := range q.jobs {
		if j.queue != q {
			j.stands = nil
			continue
		}
		if i < q.skip {
			skip++
		}
		kept = append(kept, j)
	}
	clear(q.jobs[len(kept):])
	q.jobs, q.gone, q.skip, q.cursor = kept, 0, skip, 0
}

// sort follows ranks that change: rank says which a job has now.
func (q *Queue) sort(rank func(*Job) int64) {
	q.compact()
	for _, j := range q.jobs {
		j.rank = rank(j)
	}
	slices.SortStableFunc(q.jobs, q.order)
	q.skip = 0
}

// empty takes all jobs out.
func (q *Queue) empty() {
	for _, j := range q.jobs {
		j.queue, j.stands = nil, nil
	}
	*q = Queue{Name: q.Name, ranked: q.ranked}
}
