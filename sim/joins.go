package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// Adopted is a job that is running when the run begins. It keeps its allocation and ends at End,
// whatever the policy.
type Adopted struct {
	Job         int // its index
	Alloc       *model.Allocation
	Alternative int
	Start, End  time.Duration
}

// Withdrawal is the cancellation of a job by its user, while it waits or runs.
type Withdrawal struct {
	Job int
	At  time.Duration
}

// Rank is the change that users and administrators made to a job's place in the queue. An
// administrator's rank overrides everything else.
type Rank struct {
	Nice  int64
	Admin *int64
}

// joins is the state of jobs that join late or are withdrawn.
type joins struct {
	// open is the number of jobs that must be over before a job joins. waiters lists the jobs that
	// wait for a job. Both are by index.
	open     map[int]int32
	waiters  map[int][]int
	released []int32      // jobs that may join now
	leaving  []Withdrawal // withdrawals to come, in time order
}

// next is when the next job joins or is withdrawn without any other event.
func (j *joins) next(now time.Duration) (time.Duration, bool) {
	switch {
	case len(j.released) > 0:
		return now, true
	case len(j.leaving) > 0:
		return j.leaving[0].At, true
	}
	return 0, false
}

// prepare validates the configuration, except for the jobs themselves, and builds the tables of
// joins.
func (r *run) prepare() error {
	known := func(job int) bool { return job >= 0 && job < len(r.Jobs) }
	if r.Begin < 0 || r.Until < 0 || r.Until > 0 && r.Until < r.Begin {
		return fmt.Errorf("a run from %v until %v: it must end after it begins", r.Begin, r.Until)
	}
	if len(r.Ranks) > 0 && len(r.Ranks) != len(r.Jobs) {
		return fmt.Errorf("%d ranks for %d jobs", len(r.Ranks), len(r.Jobs))
	}
	for _, a := range r.Adopted {
		if !known(a.Job) || a.Alloc == nil || a.Start > r.Begin || a.End < r.Begin || r.Jobs[a.Job].Submit > r.Begin {
			return fmt.Errorf("job %d cannot run already when the run begins", a.Job)
		}
	}
	r.joins.leaving = slices.Clone(r.Withdrawn)
	slices.SortStableFunc(r.joins.leaving, func(a, b Withdrawal) int { return cmp.Compare(a.At, b.At) })
	for _, w := range r.Withdrawn {
		if !known(w.Job) {
			return fmt.Errorf("job %d, which is withdrawn, is none of %d", w.Job, len(r.Jobs))
		}
	}
	if len(r.After) == 0 {
		return nil
	}
	r.joins.open, r.joins.waiters = make(map[int]int32, len(r.After)), make(map[int][]int, len(r.After))
	for job, first := range r.After {
		for _, f := range first {
			if !known(job) || !known(f) || f == job {
				return fmt.Errorf("job %d cannot come after job %d", job, f)
			}
			r.joins.open[job]++
			r.joins.waiters[f] = append(r.joins.waiters[f], job)
		}
	}
	for _, list := range r.joins.waiters {
		slices.Sort(list) // Go's map order is random
	}
	return nil
}

// over counts a job as over, and releases the jobs that waited only for it.
func (r *run) over(i int) {
	r.done++
	for _, w := range r.joins.waiters[i] {
		if r.joins.open[w]--; r.joins.open[w] == 0 && w < r.next {
			r.joins.released = append(r.joins.released, int32(w))
		}
	}
}

// adopt tells the state which jobs are running when the run begins. A job that does not fit, which
// can happen under the rules of another policy, waits like any other.
func (r *run) adopt() {
	for _, a := range r.Adopted {
		j, o := &r.Jobs[a.Job], &r.result.Outcomes[a.Job]
		next := policy.JobID(len(r.jobOf))
		if err := r.ranking.submitted(next, j, r.rankOf(a.Job), r.now); err != nil {
			r.result.NotAdopted[a.Job] = err.Error()
			continue
		}
		if _, err := r.state.Adopt(r.parts.shown(j), a.Alternative, a.Alloc, a.Start); err != nil {
			r.result.NotAdopted[a.Job] = err.Error()
			r.ranking.gone(next, r.now)
			continue
		}
		r.jobOf = append(r.jobOf, int32(a.Job))
		r.ids[a.Job] = next
		o.Start, o.State, o.Alternative = a.Start, Running, uint16(a.Alternative)
		o.Borrowed = a.Alloc.UsesBorrowed()
		o.place(a.Alloc)
		r.running++
		r.network.binding.hold(a.Alloc, 1)
		r.ranking.started(next, r.now, a.Alloc)
		r.events.push(event{at: a.End, job: next})
		if r.Observe != nil {
			r.Observe.Started(r.now, a.Job, a.Alloc)
		}
	}
}

// withdraw cancels the jobs whose users withdraw them now.
func (r *run) withdraw() (any bool) {
	for len(r.joins.leaving) > 0 && r.joins.leaving[0].At <= r.now {
		i := r.joins.leaving[0].Job
		r.joins.leaving = r.joins.leaving[1:]
		o := &r.result.Outcomes[i]
		switch {
		case o.State == Running:
			id := r.ids[i]
			r.network.pause(id) // cancels its end
			r.leave(id, i)
			r.must(r.state.End(id))
			r.ranking.gone(id, r.now)
		case o.State == Pending && i < r.next && r.joins.open[i] == 0:
			r.must(r.state.Cancel(r.ids[i]))
			r.ranking.gone(r.ids[i], r.now)
			o.Start = r.now
		case o.State == Pending: // not submitted yet, or waiting for other jobs
			o.Start = r.now
		default:
			continue // already over
		}
		o.End, o.State = r.now, Withdrawn
		r.over(i)
		any = true
	}
	return any
}

// rankOf is the change of a job's place in the queue.
func (r *run) rankOf(i int) Rank {
	if len(r.Ranks) == 0 {
		return Rank{}
	}
	return r.Ranks[i]
}

// rankAlone applies a job's Rank in runs without priorities. With priorities, ranking does.
func (r *run) rankAlone(i int) {
	rank := r.rankOf(i)
	place := -rank.Nice
	if rank.Admin != nil {
		place = *rank.Admin
	}
	place = r.parts.partition(i).RankOf(place)
	if r.ranking == nil && place != 0 {
		r.must(r.state.Rank(r.ids[i], place))
	}
}
