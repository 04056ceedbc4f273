package priority

import (
	"math"
	"time"
)

// Factor is one part of a priority: a number from 0 to 1, and that times its weight.
type Factor struct {
	Norm     float64 `json:"norm"`
	Weighted float64 `json:"weighted"`
}

func weigh(weight int64, norm float64) Factor {
	return Factor{norm, float64(float64(weight) * norm)}
}

// Factors is how a job's priority came about, as Slurm's sprio shows it.
type Factors struct {
	Job       Key           `json:"job"`
	User      string        `json:"user"`
	Account   string        `json:"account"`
	QOS       string        `json:"qos,omitempty"`
	Partition string        `json:"partition,omitempty"`
	At        time.Duration `json:"-"` // when it was worked out
	Priority  int64         `json:"priority"`
	// Set says that an administrator set the priority: the factors do not count.
	Set       bool   `json:"set,omitempty"`
	Age       Factor `json:"age"`
	FairShare Factor `json:"fairshare"`
	JobSize   Factor `json:"job_size"`
	Part      Factor `json:"partition_factor"`
	Class     Factor `json:"qos_factor"`
	CPU       Factor `json:"tres_cpu"`
	Mem       Factor `json:"tres_mem"`
	GPU       Factor `json:"tres_gpu"`
	Nice      int64  `json:"nice"`
}

// Factors says how the rank of a waiting job came about that Due gave last. It
// is false for a job that does not wait, or that no Due has ranked.
func (b *Book) Factors(k Key) (Factors, bool) {
	j := b.jobs[k]
	if j == nil || j.place < 0 || !j.ranked {
		return Factors{}, false
	}
	f := b.factors(j, j.at)
	f.Priority = j.rank
	return f, true
}

// Rank is the priority of a waiting job that Due gave last.
func (b *Book) Rank(k Key) (rank int64, ok bool) {
	j := b.jobs[k]
	if j == nil || j.place < 0 || !j.ranked {
		return 0, false
	}
	return j.rank, true
}

func (b *Book) factors(j *job, at time.Duration) Factors {
	f := b.fixedFactors(j)
	f.At = at
	f.Age = weigh(b.config.WeightAge, b.age(j, at))
	f.FairShare = weigh(b.config.WeightFairshare, b.fairShare(j))
	return f
}

// fixedFactors are those that neither time nor usage changes.
func (b *Book) fixedFactors(j *job) Factors {
	c := &b.config
	return Factors{
		Job: j.key, User: j.s.User, Account: j.s.Account, QOS: j.s.QOS, Partition: j.s.Partition,
		Set: j.s.Admin != nil, Nice: j.s.Nice,
		JobSize: weigh(c.WeightJobSize, b.size(j)),
		Part:    weigh(c.WeightPartition, c.partition(j.s.Partition)),
		Class:   weigh(c.WeightQOS, c.class(j.s.QOS)),
		CPU:     weigh(c.WeightTRES.CPU, part(j.s.Asks.Cores, b.whole.Cores)),
		Mem:     weigh(c.WeightTRES.Mem, part(j.s.Asks.Memory, b.whole.Memory)),
		GPU:     weigh(c.WeightTRES.GPU, part(j.s.Asks.MicroGPUs, b.whole.MicroGPUs)),
	}
}

// fixedOf is the sum of the fixed factors, less the nice value.
func (b *Book) fixedOf(j *job) float64 {
	f := b.fixedFactors(j)
	sum := 0.0
	for _, w := range []float64{f.JobSize.Weighted, f.Part.Weighted, f.Class.Weighted, f.CPU.Weighted, f.Mem.Weighted, f.GPU.Weighted} {
		sum += w
	}
	return sum - float64(j.s.Nice)
}

// priority is the sum of all factors, less the nice value, rounded down; at
// least 1, since in Slurm 0 is a job that is held.
func (b *Book) priority(j *job, at time.Duration) int64 {
	if j.s.Admin != nil {
		return *j.s.Admin
	}
	sum := j.fixed + float64(float64(b.config.WeightAge)*b.age(j, at))
	sum += float64(float64(b.config.WeightFairshare) * b.fairShare(j))
	return max(1, int64(math.Floor(sum)))
}

// fairShare is the fair share of a job's user.
func (b *Book) fairShare(j *job) float64 {
	if b.told != nil {
		return min(1, max(0, b.told[Member{j.s.Account, j.s.User}]))
	}
	return b.picture.factor[j.user]
}

// age is the time of waiting as a part of MaxAge.
func (b *Book) age(j *job, at time.Duration) float64 {
	return part(int64(at-j.s.At), int64(b.config.MaxAge))
}

// part is a/whole, from 0 to 1; of nothing it is 0.
func part(a, whole int64) float64 {
	if whole <= 0 || a <= 0 {
		return 0
	}
	return min(1, float64(a)/float64(whole))
}

// size is the mean of the parts of the nodes and of the cores that a job asks
// for. A job that leaves its nodes open is as large as its cores.
func (b *Book) size(j *job) float64 {
	if b.nodes <= 0 && b.whole.Cores <= 0 {
		return 0
	}
	nodes, cores := part(j.s.Nodes, b.nodes), part(j.s.Asks.Cores, b.whole.Cores)
	size := cores
	switch {
	case j.s.Nodes > 0 && j.s.Asks.Cores > 0:
		size = (nodes + cores) / 2
	case j.s.Nodes > 0:
		size = nodes
	}
	if b.config.FavorSmall {
		return 1 - size
	}
	return size
}

// class is the priority of a QOS as a part of the highest.
func (c *Config) class(name string) float64 {
	highest, own := int64(0), int64(0)
	for i := range c.QOS {
		highest = max(highest, c.QOS[i].Priority)
		if c.QOS[i].Name == name {
			own = c.QOS[i].Priority
		}
	}
	return part(own, highest)
}

func (c *Config) partition(name string) float64 {
	highest, own := int64(0), int64(0)
	for _, p := range c.Partitions {
		highest = max(highest, p.Factor)
		if p.Name == name {
			own = p.Factor
		}
	}
	return part(own, highest)
}

// UsageLine is an account, or a user in one, as Slurm's sshare shows it.
type UsageLine struct {
	Account string
	User    string // "" for the account as a whole
	Depth   int    // below the root, which is 0
	Shares  int64
	// NormShares is the part of the shares among siblings (fair tree) or of the whole
	// machine (classic).
	NormShares float64
	// Usage is in weighted resource seconds, decayed; NormUsage is its part of all
	// usage; Effective is what the shares are set against: the part among siblings
	// (fair tree), or the own part with what siblings used mixed in (classic).
	Usage, NormUsage, Effective float64
	// Level is NormShares / Effective; it is infinite where nothing was used.
	Level float64
	// FairShare is the factor of a user's jobs; 0 for accounts under fair tree.
	FairShare float64
	// Running is what the jobs that run use per second.
	Running float64
}

// Usage shows the whole tree at an instant: each account followed by its users
// and then by its own accounts.
func (b *Book) Usage(at time.Duration) []UsageLine {
	var p picture
	b.tree.look(&p, max(at, b.now), &b.config)
	running := make([]int64, len(b.tree.members))
	for i := len(running) - 1; i > root; i-- {
		m := &b.tree.members[i]
		running[i] += m.meter.rate
		running[m.parent] += running[i]
	}
	lines := make([]UsageLine, 0, len(b.tree.members))
	var visit func(id int32, depth int)
	visit = func(id int32, depth int) {
		m := &b.tree.members[id]
		l := UsageLine{
			Account: m.name, Depth: depth, Shares: m.shares, NormShares: p.shares[id], Usage: p.usage[id],
			Effective: p.effective[id], Level: p.level[id], FairShare: p.factor[id], Running: float64(running[id]) / Million,
		}
		if p.usage[root] > 0 {
			l.NormUsage = p.usage[id] / p.usage[root]
		}
		if m.user {
			l.Account, l.User = b.tree.members[m.parent].name, m.name
		}
		lines = append(lines, l)
		for _, users := range []bool{true, false} {
			for _, child := range m.children {
				if b.tree.members[child].user == users {
					visit(child, depth+1)
				}
			}
		}
	}
	visit(root, 0)
	return lines
}
