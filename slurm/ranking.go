package slurm

import (
	"slices"

	"muster/policy/priority"
)

// Slurm computes no priority for a held job: its record says 0, and sprio does not list it. So on a
// site with multifactor priorities the core computes what Slurm would have, from the site's weights
// and from what Slurm does say: partitions, QOS, and the fair share of each user, which Slurm keeps
// for all jobs that run. The policy is told this as the job's rank.

// Accounting is what Slurm's database says of users and accounts.
type Accounting struct {
	QOS    []priority.QOS
	Shares map[priority.Member]float64
}

// ranks is the book of priorities.
type ranks struct {
	ground

	priorities *priority.Book // nil if Slurm does not rank jobs
}

// newRanks makes the book of priorities, if the site has priorities.
func newRanks(on ground) *ranks {
	rk := &ranks{ground: on}
	if on.cfg.Priority != nil {
		var err error
		rk.priorities, err = priority.New(*on.cfg.Priority)
		must(err)                                               // ReadSite has validated it
		rk.priorities.FairShares(map[priority.Member]float64{}) // Slurm's fair share is 0 if no accounts are kept
	}
	return rk
}

// takeRanking updates what ranks depend on beside the jobs.
func (rk *ranks) takeRanking(p *Picture) {
	if rk.priorities == nil {
		return
	}
	cfg := rk.priorities.Config()
	if p.Partitions != nil {
		cfg.Partitions = nil
		for _, f := range p.Partitions {
			cfg.Partitions = append(cfg.Partitions, priority.Partition{Name: f.Name, Factor: int64(f.Factor)})
		}
	}
	if p.Accounting != nil {
		cfg.QOS = p.Accounting.QOS
		rk.priorities.FairShares(p.Accounting.Shares)
		rk.book.due()
	}
	if old := rk.priorities.Config(); !slices.Equal(cfg.Partitions, old.Partitions) || !slices.EqualFunc(cfg.QOS, old.QOS, sameQOS) {
		rk.book.due()
		if err := rk.priorities.Configure(cfg, rk.policyTime(rk.now)); err != nil {
			rk.out.note("jobs are ranked as before: %v", err)
		}
	}
	if p.Nodes != nil {
		cluster := rk.book.state.Cluster()
		rk.priorities.Cluster(int64(len(cluster.Nodes)), priority.WholeOf(cluster))
	}
}

func sameQOS(a, b priority.QOS) bool { return a.Name == b.Name && a.Priority == b.Priority }

// rank enters a job that was offered to the policy in the book of priorities.
func (rk *ranks) rank(j *job) {
	f := &j.fact
	if rk.priorities == nil {
		if f.Nice != 0 || j.nice != 0 {
			must(rk.book.state.Rank(j.number, -f.Nice))
		}
		j.nice = f.Nice
		return
	}
	at := f.Submitted
	if !rk.cfg.AgeFromSubmission {
		at = max(at, min(f.Eligible, rk.now))
	}
	cluster := rk.book.state.Cluster()
	asks := priority.AsksOf(cluster, &j.spec.Request)
	asks.Cores, asks.Memory = int64(f.CPUs), rk.memoryOf(f)
	s := priority.Submission{User: f.User, Account: f.Account, QOS: f.QOS, Partition: f.Partition, At: rk.policyTime(at),
		Nodes: int64(j.spec.Request.Nodes), Asks: asks, Nice: min(max(f.Nice, -priority.MaxNice), priority.MaxNice)}
	j.nice = f.Nice
	must(rk.priorities.Submitted(priority.Key(j.ID), s))
	j.ranked = true
}

// memoryOf is the memory that a job asks for on all its nodes: their whole memory if it does not
// say.
func (rk *ranks) memoryOf(f *Job) int64 {
	nodes := int64(max(1, f.MinNodes))
	switch {
	case f.MemoryPerNode > 0:
		return f.MemoryPerNode * nodes
	case f.MemoryPerCPU > 0:
		return f.MemoryPerCPU * int64(f.CPUs)
	}
	return rk.fleet.leastMem * nodes
}

// unrank removes a job that no longer waits from the book of priorities.
func (rk *ranks) unrank(j *job) {
	if j.ranked {
		j.ranked = false
		must(rk.priorities.Gone(priority.Key(j.ID), rk.policyTime(rk.now)))
	}
}

// rerank applies a nice value that has changed.
func (rk *ranks) rerank(j *job) {
	if j.phase == waiting && j.nice != j.fact.Nice {
		rk.unrank(j)
		rk.rank(j)
		rk.book.due()
	}
}

// ranksDue says whether the waiting jobs must be ranked again.
func (rk *ranks) ranksDue() bool {
	return rk.priorities != nil && rk.priorities.Waiting() > 0 && rk.policyTime(rk.now) >= rk.priorities.Next()
}

// tellRanks tells the policy the ranks that have changed.
func (rk *ranks) tellRanks() {
	if rk.priorities == nil {
		return
	}
	for _, r := range rk.priorities.Due(rk.policyTime(rk.now)) {
		must(rk.book.state.Rank(rk.roster.jobs[uint64(r.Job)].number, r.Rank))
	}
}

// Priority is what Slurm would have given a waiting job; false if Slurm does not rank jobs.
func (rk *ranks) Priority(id uint64) (int64, bool) {
	if rk.priorities == nil {
		return 0, false
	}
	return rk.priorities.Rank(priority.Key(id))
}
