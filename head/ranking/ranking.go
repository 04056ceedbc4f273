// Package ranking keeps a head's book of priorities in step with its jobs, which it knows by their numbers
// alone. A job is in the book from when the policy has it until it is over, unless the book does not rank it.
package ranking

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/policy"
	"muster/policy/priority"
)

// Ranking is the book of priorities, and which jobs are in it, by their numbers. It knows no jobs
// beside that. A nil one is that of a head without a book: it does nothing.
type Ranking struct {
	Book  *priority.Book
	in    map[priority.Key]bool // the jobs in the book; true for those waiting there
	Wrote time.Duration         // when the record was written from which the book was restored
}

// New makes a ranking, from the stored document if there is one.
func New(cfg priority.Config, kept *priority.Document) (*Ranking, error) {
	r := &Ranking{in: map[priority.Key]bool{}}
	var err error
	if kept == nil {
		r.Book, err = priority.New(cfg)
	} else {
		r.Book, err = priority.Import(cfg, *kept)
	}
	if err != nil {
		return nil, fmt.Errorf("the priorities: %w", err)
	}
	if kept != nil {
		for i := range kept.Jobs {
			r.in[kept.Jobs[i].Key] = kept.Jobs[i].Waits
		}
		r.Wrote = kept.Now
	}
	return r, nil
}

// must panics on an error of a call that cannot fail while the head and the book agree.
func must(err error) {
	if err != nil {
		panic("head: the book of priorities and the head's disagree: " + err.Error())
	}
}

// Submitted enters a job that waits now. entry is asked for what the book needs to know of one that is
// not in it.
func (r *Ranking) Submitted(job uint64, now time.Duration, entry func() priority.Submission) {
	if r == nil {
		return
	}
	k := priority.Key(job)
	waits, known := r.in[k]
	switch {
	case waits:
		return
	case known:
		must(r.Book.Requeued(k, now))
	case r.Book.Submitted(k, entry()) != nil:
		return // an administrator has removed its account: the book does not rank it
	}
	r.in[k] = true
}

// Started notes that a job runs with what it holds, unless the book does not rank it.
func (r *Ranking) Started(job uint64, at time.Duration, holds priority.TRES) {
	if k := priority.Key(job); r.Knows(job) {
		must(r.Book.Started(k, max(at, r.Wrote), holds))
		r.in[k] = false
	}
}

func (r *Ranking) Knows(job uint64) (known bool) {
	if r != nil {
		_, known = r.in[priority.Key(job)]
	}
	return known
}

// Stopped notes that a job neither waits in the book nor runs.
func (r *Ranking) Stopped(job uint64, now time.Duration) {
	if k := priority.Key(job); r.Knows(job) {
		must(r.Book.Stopped(k, now))
		r.in[k] = false
	}
}

// Gone notes that a job is over.
func (r *Ranking) Gone(job uint64, now time.Duration) {
	if k := priority.Key(job); r.Knows(job) {
		must(r.Book.Gone(k, now))
		delete(r.in, k)
	}
}

// Compare drops from a book from the store, which may be minutes old, the jobs that are not there.
func (r *Ranking) Compare(there func(job uint64) bool) {
	for _, k := range slices.Sorted(maps.Keys(r.in)) {
		if !there(uint64(k)) {
			r.Gone(uint64(k), r.Wrote)
		}
	}
}

// Adjust sets what was decided for a job by hand, and says whether the book ranks it.
func (r *Ranking) Adjust(job uint64, nice int64, admin *int64) bool {
	k := priority.Key(job)
	if r == nil || !r.in[k] {
		return false
	}
	must(r.Book.SetNice(k, nice))
	must(r.Book.SetPriority(k, admin))
	return true
}

// Due is when ranks change next because time passes.
func (r *Ranking) Due() time.Duration {
	if r == nil || r.Book.Waiting() == 0 {
		return policy.Never
	}
	return r.Book.Next()
}
