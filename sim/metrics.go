package sim

import (
	"math"
	"slices"
	"time"

	"muster/model"
)

// Summary is a run in numbers. Times are in seconds. Impossible jobs count in Jobs and Impossible,
// and nowhere else.
type Summary struct {
	Jobs       int `json:"jobs"`
	Finished   int `json:"finished"`
	Killed     int `json:"killed"`
	Impossible int `json:"impossible"`
	Borrowing  int `json:"borrowing"`
	// Preempted counts the jobs that were cancelled in favour of one of a higher class.
	Preempted int `json:"preempted,omitempty"`
	// For runs with outages: jobs that were lost, how often jobs were requeued, for how long nodes
	// were out, and the core time of jobs when a failure hit them.
	Lost          int     `json:"lost,omitempty"`
	Requeues      int     `json:"requeues,omitempty"`
	NodeHoursLost float64 `json:"node_hours_lost,omitempty"`
	CoreHoursLost float64 `json:"core_hours_lost,omitempty"`

	// Makespan is the time from the first submission to the last end.
	Makespan float64 `json:"makespan_s"`
	// Utilisations are shares of the cluster's capacity over the makespan.
	CoreUtilization float64 `json:"core_utilization"`
	GPUUtilization  float64 `json:"gpu_utilization"`

	Wait     Stats `json:"wait"`
	Run      Stats `json:"run"`
	Life     Stats `json:"life"`
	Slowdown Stats `json:"slowdown"`

	// Fragmentation is the number of contiguous blocks of a job's nodes. Spread is the number of
	// nodes that it spans divided by the number that it has.
	Fragmentation Stats `json:"fragmentation"`
	Spread        Stats `json:"spread"`
}

// Stats describes a quantity over all jobs that ran.
type Stats struct {
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
}

// StatsOf describes values. It sorts them in place.
func StatsOf(values []float64) Stats {
	if len(values) == 0 {
		return Stats{}
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	slices.Sort(values)
	return Stats{
		Mean:   sum / float64(len(values)),
		Median: quantile(values, 50),
		P95:    quantile(values, 95),
		Max:    values[len(values)-1],
	}
}

// quantile is the smallest value that is not exceeded by percent of all values.
func quantile(sorted []float64, percent int) float64 {
	i := (len(sorted)*percent + 99) / 100
	return sorted[max(i, 1)-1]
}

// slowdownFloor prevents huge slowdowns of very short jobs, as in the literature's "bounded
// slowdown".
const slowdownFloor = 10 * time.Second

// Ran says whether a job ran, and so has a wait and a run time.
func (o *Outcome) Ran() bool { return o.State == Finished || o.State == Killed }

// Slowdown is the bounded slowdown: life time divided by run time, where run times count as at
// least 10 s and the result is at least 1.
func Slowdown(wait, run time.Duration) float64 {
	return math.Max(1, float64(wait+run)/float64(max(run, slowdownFloor)))
}

// Summarize computes the numbers of a run.
func (r *Result) Summarize() Summary {
	s := Summary{Jobs: len(r.Jobs), Requeues: r.Requeues, NodeHoursLost: r.NodeSecondsLost / 3600, CoreHoursLost: r.CoreSecondsLost / 3600}
	n := len(r.Jobs)
	waits, runs := make([]float64, 0, n), make([]float64, 0, n)
	lives, slows := make([]float64, 0, n), make([]float64, 0, n)
	blocks, spreads := make([]float64, 0, n), make([]float64, 0, n)
	first, last := time.Duration(math.MaxInt64), time.Duration(0)
	for i := range r.Outcomes {
		o, j := &r.Outcomes[i], &r.Jobs[i]
		switch o.State {
		case Finished:
			s.Finished++
		case Killed:
			s.Killed++
		case Impossible:
			s.Impossible++
		case Preempted:
			s.Preempted++
		case Lost:
			s.Lost++
		}
		if !o.Ran() {
			continue
		}
		if o.Borrowed {
			s.Borrowing++
		}
		first, last = min(first, j.Submit), max(last, o.End)
		wait, run := o.Start-j.Submit, o.End-o.Start
		waits = append(waits, wait.Seconds())
		runs = append(runs, run.Seconds())
		lives = append(lives, (wait + run).Seconds())
		slows = append(slows, Slowdown(wait, run))
		blocks, spreads = append(blocks, o.Fragmentation()), append(spreads, o.Spread())
	}
	s.Wait, s.Run, s.Life, s.Slowdown = StatsOf(waits), StatsOf(runs), StatsOf(lives), StatsOf(slows)
	s.Fragmentation, s.Spread = StatsOf(blocks), StatsOf(spreads)
	if last > first {
		s.Makespan = (last - first).Seconds()
		s.CoreUtilization = share(r.CoreSeconds, r.Cluster.TotalCores(), s.Makespan)
		s.GPUUtilization = share(r.GPUSeconds, r.Cluster.TotalGPUs(), s.Makespan)
	}
	return s
}

func share(used float64, capacity int, span float64) float64 {
	if capacity == 0 {
		return 0
	}
	return used / (float64(capacity) * span)
}

// Comparison describes what changed for each job between two runs of the same jobs.
type Comparison struct {
	// Jobs is the number of jobs that ran in both.
	Jobs int `json:"jobs"`
	// The changes of the means, in per cent of the first run's.
	WaitChange float64 `json:"wait_change_pct"`
	RunChange  float64 `json:"run_change_pct"`
	LifeChange float64 `json:"life_change_pct"`
	// The percentages of jobs that wait longer, run longer and end later, and by how many seconds
	// on average and at most.
	WaitLonger Losers `json:"wait_longer"`
	RunLonger  Losers `json:"run_longer"`
	EndLater   Losers `json:"end_later"`

	// The differences of each job, second minus first, in seconds.
	Wait, Run, Life []float64 `json:"-"`
}

// Losers are the jobs for which something got worse.
type Losers struct {
	Percent float64 `json:"pct"`
	Mean    float64 `json:"mean_s"`
	Max     float64 `json:"max_s"`
}

// Compare compares other with base, job by job. Both must be runs of the same jobs.
func Compare(base, other *Result) Comparison {
	var c Comparison
	var wait, run, life float64
	for i := range base.Outcomes {
		a, b := &base.Outcomes[i], &other.Outcomes[i]
		if !a.Ran() || !b.Ran() {
			continue
		}
		c.Jobs++
		submit := base.Jobs[i].Submit
		wait += (a.Start - submit).Seconds()
		run += (a.End - a.Start).Seconds()
		life += (a.End - submit).Seconds()
		c.Wait = append(c.Wait, (b.Start - a.Start).Seconds())
		c.Run = append(c.Run, ((b.End - b.Start) - (a.End - a.Start)).Seconds())
		c.Life = append(c.Life, (b.End - a.End).Seconds())
	}
	c.WaitChange, c.WaitLonger = changeOf(c.Wait, wait)
	c.RunChange, c.RunLonger = changeOf(c.Run, run)
	c.LifeChange, c.EndLater = changeOf(c.Life, life)
	return c
}

func changeOf(differences []float64, base float64) (percent float64, l Losers) {
	sum, worse, count := 0.0, 0.0, 0
	for _, d := range differences {
		sum += d
		if d > 0 {
			worse += d
			count++
			l.Max = math.Max(l.Max, d)
		}
	}
	if count > 0 {
		l.Percent = 100 * float64(count) / float64(len(differences))
		l.Mean = worse / float64(count)
	}
	if base > 0 {
		percent = 100 * sum / base
	}
	return percent, l
}

// Held is the number of cores and devices of an allocation; shares count as fractions of a device.
func Held(c *model.Cluster, a *model.Allocation) (cores int, gpus float64) {
	return coresOf(a), gpusOf(c, a)
}

// NodesOf names the nodes of an allocation as a node list.
func NodesOf(c *model.Cluster, a *model.Allocation) string {
	names := make([]string, len(a.Parts))
	for i := range a.Parts {
		names[i] = c.Nodes[a.Parts[i].Node].Name
	}
	return model.CompressNodes(names)
}
