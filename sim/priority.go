package sim

import (
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/priority"
)

// ranking connects a run with the book of priorities: it tells the book what happens, and gives the
// resulting ranks to the policy's state. The book's keys are the state's job IDs. A nil ranking
// does nothing, for runs without priorities.
type ranking struct {
	book    *priority.Book
	cluster *model.Cluster
}

func newRanking(cfg *Config) (*ranking, error) {
	if cfg.Priority == nil {
		return nil, nil
	}
	book, err := priority.New(cfg.Priority.WithPartitions(cfg.Cluster.Partitions))
	if err != nil {
		return nil, err
	}
	k := &ranking{book: book, cluster: cfg.Cluster}
	book.Cluster(int64(len(cfg.Cluster.Nodes)), priority.WholeOf(cfg.Cluster))
	return k, nil
}

// must is for calls that fail only if this driver has lost track.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (k *ranking) submitted(id policy.JobID, j *model.Job, rank Rank, now time.Duration) error {
	if k == nil {
		return nil
	}
	return k.book.Submitted(priority.Key(id), priority.Submission{
		User: userOf(j), Account: j.Group, QOS: j.QOS, Partition: j.Queue, At: now,
		Nodes: int64(j.Request.Nodes), Asks: priority.AsksOf(k.cluster, &j.Request), Nice: rank.Nice, Admin: rank.Admin,
	})
}

// userOf names the user of a job; logs may leave it out.
func userOf(j *model.Job) string {
	if j.User == "" {
		return "unknown"
	}
	return j.User
}

func (k *ranking) started(id policy.JobID, now time.Duration, a *model.Allocation) {
	if k != nil {
		must(k.book.Started(priority.Key(id), now, priority.HoldsOf(k.cluster, a)))
	}
}

func (k *ranking) stopped(id policy.JobID, now time.Duration) {
	if k != nil {
		must(k.book.Stopped(priority.Key(id), now))
	}
}

func (k *ranking) requeued(id policy.JobID, now time.Duration) {
	if k != nil {
		must(k.book.Requeued(priority.Key(id), now))
	}
}

func (k *ranking) gone(id policy.JobID, now time.Duration) {
	if k != nil {
		must(k.book.Gone(priority.Key(id), now))
	}
}

// due is when ranks must be recomputed even if nothing happens; Never while no job waits.
func (k *ranking) due() time.Duration {
	if k == nil || k.book.Waiting() == 0 {
		return policy.Never
	}
	return k.book.Next()
}

// rank gives the ranks that changed to the state, and returns whether there were any.
func (r *run) rank() bool {
	if r.ranking == nil {
		return false
	}
	due := r.ranking.book.Due(r.now)
	for _, k := range due {
		id := policy.JobID(k.Job)
		must(r.state.Rank(id, r.parts.partition(int(r.jobOf[id])).RankOf(k.Rank)))
	}
	return len(due) > 0
}

// Share is an account, or a user in one, at the end of a run: its target share, its usage, and how
// long its jobs waited.
type Share struct {
	priority.UsageLine
	Jobs     int     // jobs that ran
	MeanWait float64 // mean wait of those, in seconds
}

// shares joins the usage at the end of a run with the waits of its jobs.
func (k *ranking) shares(r *Result, now time.Duration) []Share {
	if k == nil {
		return nil
	}
	type who struct{ account, user string }
	usage := k.book.Usage(now)
	line := make(map[who]int, len(usage))
	shares, parent := make([]Share, len(usage)), make([]int, len(usage))
	var above []int // the accounts above a line, by depth
	for i, l := range usage {
		shares[i].UsageLine, parent[i] = l, -1
		if l.Depth > 0 {
			parent[i] = above[l.Depth-1]
		}
		above = append(above[:l.Depth], i)
		if l.User != "" {
			line[who{l.Account, l.User}] = i
		}
	}
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &r.Jobs[i]
		if !o.Ran() {
			continue
		}
		user := userOf(j)
		for at := line[who{k.book.AccountOf(user, j.Group), user}]; at >= 0; at = parent[at] {
			shares[at].Jobs++
			shares[at].MeanWait += (o.Start - j.Submit).Seconds()
		}
	}
	for i := range shares {
		shares[i].MeanWait /= float64(max(1, shares[i].Jobs))
	}
	return shares
}
