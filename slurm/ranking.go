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

// setRanking makes the book of priorities, if the site has priorities.
func (c *Core) setRanking() {
	if c.cfg.Priority == nil {
		return
	}
	book, err := priority.New(*c.cfg.Priority)
	c.must(err)                                    // ReadSite has validated it
	book.FairShares(map[priority.Member]float64{}) // Slurm's fair share is 0 if no accounts are kept
	c.book = book
}

// takeRanking updates what ranks depend on beside the jobs.
func (c *Core) takeRanking(p *Picture) {
	if c.book == nil {
		return
	}
	cfg := c.book.Config()
	if p.Partitions != nil {
		cfg.Partitions = nil
		for _, f := range p.Partitions {
			cfg.Partitions = append(cfg.Partitions, priority.Partition{Name: f.Name, Factor: int64(f.Factor)})
		}
	}
	if p.Accounting != nil {
		cfg.QOS = p.Accounting.QOS
		c.book.FairShares(p.Accounting.Shares)
		c.stepDue = true
	}
	if old := c.book.Config(); !slices.Equal(cfg.Partitions, old.Partitions) || !slices.EqualFunc(cfg.QOS, old.QOS, sameQOS) {
		c.stepDue = true
		if err := c.book.Configure(cfg, c.policyTime(c.now)); err != nil {
			c.note("jobs are ranked as before: %v", err)
		}
	}
	if p.Nodes != nil {
		cluster := c.state.Cluster()
		c.book.Cluster(int64(len(cluster.Nodes)), priority.WholeOf(cluster))
	}
}

func sameQOS(a, b priority.QOS) bool { return a.Name == b.Name && a.Priority == b.Priority }

// rank enters a job that was offered to the policy in the book of priorities.
func (c *Core) rank(j *job) {
	f := &j.fact
	if c.book == nil {
		if f.Nice != 0 || j.nice != 0 {
			c.must(c.state.Rank(j.number, -f.Nice))
		}
		j.nice = f.Nice
		return
	}
	at := f.Submitted
	if !c.cfg.AgeFromSubmission {
		at = max(at, min(f.Eligible, c.now))
	}
	cluster := c.state.Cluster()
	asks := priority.AsksOf(cluster, &j.spec.Request)
	asks.Cores, asks.Memory = int64(f.CPUs), c.memoryOf(f)
	s := priority.Submission{User: f.User, Account: f.Account, QOS: f.QOS, Partition: f.Partition, At: c.policyTime(at),
		Nodes: int64(j.spec.Request.Nodes), Asks: asks, Nice: min(max(f.Nice, -priority.MaxNice), priority.MaxNice)}
	j.nice = f.Nice
	c.must(c.book.Submitted(priority.Key(j.ID), s))
	j.ranked = true
}

// memoryOf is the memory that a job asks for on all its nodes: their whole memory if it does not
// say.
func (c *Core) memoryOf(f *Job) int64 {
	nodes := int64(max(1, f.MinNodes))
	switch {
	case f.MemoryPerNode > 0:
		return f.MemoryPerNode * nodes
	case f.MemoryPerCPU > 0:
		return f.MemoryPerCPU * int64(f.CPUs)
	}
	return c.leastMem * nodes
}

// unrank removes a job that no longer waits from the book of priorities.
func (c *Core) unrank(j *job) {
	if j.ranked {
		j.ranked = false
		c.must(c.book.Gone(priority.Key(j.ID), c.policyTime(c.now)))
	}
}

// rerank applies a nice value that has changed.
func (c *Core) rerank(j *job) {
	if j.phase == waiting && j.nice != j.fact.Nice {
		c.unrank(j)
		c.rank(j)
		c.stepDue = true
	}
}

// ranksDue says whether the waiting jobs must be ranked again.
func (c *Core) ranksDue() bool {
	return c.book != nil && c.book.Waiting() > 0 && c.policyTime(c.now) >= c.book.Next()
}

// tellRanks tells the policy the ranks that have changed.
func (c *Core) tellRanks() {
	if c.book == nil {
		return
	}
	for _, r := range c.book.Due(c.policyTime(c.now)) {
		c.must(c.state.Rank(c.jobs[uint64(r.Job)].number, r.Rank))
	}
}

// Priority is what Slurm would have given a waiting job; false if Slurm does not rank jobs.
func (c *Core) Priority(id uint64) (int64, bool) {
	if c.book == nil {
		return 0, false
	}
	return c.book.Rank(priority.Key(id))
}
