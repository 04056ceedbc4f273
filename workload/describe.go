package workload

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"muster/model"
)

// Summary describes a workload in numbers. Times are in seconds.
// It has a field for each number.
type Summary struct {
	Name  string    `json:"name"`
	Start time.Time `json:"start,omitzero"`

	Jobs   int `json:"jobs"`
	Users  int `json:"users"`
	Groups int `json:"groups"`
	// Span is the time from the first submission to the last.
	Span       float64 `json:"span_s"`
	JobsPerDay float64 `json:"jobs_per_day"`

	Run          Distribution `json:"run_s"`
	WallTime     Distribution `json:"wall_time_s"`       // of jobs that have one
	Accuracy     Distribution `json:"estimate_accuracy"` // run time over wall time
	Nodes        Distribution `json:"nodes"`             // of jobs that ask for nodes
	Cores        Distribution `json:"cores"`
	GPUs         Distribution `json:"gpus"`           // of jobs that ask for some
	Memory       Distribution `json:"memory_bytes"`   // per node, of jobs that ask for some
	Interarrival Distribution `json:"interarrival_s"` // between submissions

	// The total work of the jobs.
	NodeSeconds float64 `json:"node_seconds"` // of jobs that ask for nodes
	CoreSeconds float64 `json:"core_seconds"`
	GPUSeconds  float64 `json:"gpu_seconds"`

	// ByHour counts submissions by hour of the day, and ByWeekday from Monday, in UTC. If the start
	// is unknown, hours count from it, and ByWeekday is nil.
	ByHour    []int `json:"by_hour"`
	ByWeekday []int `json:"by_weekday,omitempty"`

	GPUMix     []GPUShare `json:"gpu_mix"`
	SharedGPUs int        `json:"shared_gpu_jobs"` // jobs that ask for part of a device
	RemoteGPUs int        `json:"remote_gpu_jobs"`
	Contiguous int        `json:"contiguous_jobs"`
	WithChoice int        `json:"jobs_with_alternatives"`
	Statuses   []Group    `json:"statuses"`
	Queues     []Group    `json:"queues"`
	TopUsers   []Group    `json:"top_users"` // those with the most core time
}

// Distribution describes the distribution of a quantity. Quantiles are values that occur.
type Distribution struct {
	Count  int     `json:"count"`
	Min    float64 `json:"min"`
	Mean   float64 `json:"mean"`
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
	// Bins cover all values, and include empty bins between others.
	Bins []Bin `json:"bins,omitempty"`
}

// Bin counts the values from From up to, but not including, To.
type Bin struct {
	From  float64 `json:"from"`
	To    float64 `json:"to"`
	Count int     `json:"count"`
}

// GPUShare is the number of jobs that ask for a number of GPUs per node.
type GPUShare struct {
	GPUs  int     `json:"gpus_per_node"`
	Jobs  int     `json:"jobs"`
	Share float64 `json:"share"`
}

// Group sums up the jobs that have a name in common.
type Group struct {
	Name        string  `json:"name"` // "" if the log has none
	Jobs        int     `json:"jobs"`
	Share       float64 `json:"share"` // of the jobs
	CoreSeconds float64 `json:"core_seconds"`
}

// topUsers is the number of users that a summary names.
const topUsers = 10

// Load is the offered load: the submitted work divided by what a machine can do from the first
// submission to the last. Above 1, the queue grows throughout the log.
type Load struct {
	Nodes float64 `json:"nodes"` // as if no two jobs shared a node
	Cores float64 `json:"cores"`
	GPUs  float64 `json:"gpus"`
}

// Load is the offered load for a machine with these numbers of nodes, cores and
// GPUs. It is 0 for a resource that the machine lacks, and if all jobs are
// submitted at once.
func (s *Summary) Load(nodes, cores, gpus int) Load {
	over := func(work float64, n int) float64 {
		if n <= 0 || s.Span <= 0 {
			return 0
		}
		return work / (float64(n) * s.Span)
	}
	return Load{over(s.NodeSeconds, nodes), over(s.CoreSeconds, cores), over(s.GPUSeconds, gpus)}
}

// Describe computes the summary of a workload.
func Describe(wl *Workload) Summary {
	s := Summary{Name: wl.Name, Start: wl.Start, Jobs: len(wl.Jobs), ByHour: make([]int, 24)}
	if !wl.Start.IsZero() {
		s.ByWeekday = make([]int, 7)
	}
	var run, wall, accuracy, nodes, cores, gpus, memory, gaps []float64
	mix := make(map[int]int)
	users, groups := make(map[string]*Group), make(map[string]*Group)
	queues, statuses := make(map[string]*Group), make(map[string]*Group)
	for i := range wl.Jobs {
		j := &wl.Jobs[i]
		r := &j.Request
		seconds := j.Run.Seconds()
		run = append(run, seconds)
		if j.WallTime > 0 {
			wall = append(wall, j.WallTime.Seconds())
			accuracy = append(accuracy, seconds/j.WallTime.Seconds())
		}
		if r.Nodes > 0 {
			nodes = append(nodes, float64(r.Nodes))
			s.NodeSeconds += float64(float64(r.Nodes) * seconds)
		}
		cores = append(cores, float64(r.TotalCores()))
		work := float64(float64(r.TotalCores()) * seconds)
		s.CoreSeconds += work
		if n := r.TotalGPUs(); n > 0 {
			gpus = append(gpus, float64(n))
			s.GPUSeconds += float64(float64(n) * seconds)
		}
		if m := r.MemoryOnNode(max(1, r.CoresOnNode())); m > 0 {
			memory = append(memory, float64(m))
		}
		if i > 0 {
			gaps = append(gaps, (j.Submit - wl.Jobs[i-1].Submit).Seconds())
		}
		mix[r.GPUs]++
		s.countKinds(j)
		s.countHour(wl.Start, j.Submit)
		countIn(users, j.User, work)
		countIn(groups, j.Group, work)
		countIn(queues, j.Queue, work)
		countIn(statuses, statusName(j), work)
	}
	if n := len(wl.Jobs); n > 0 {
		s.Span = (wl.Jobs[n-1].Submit - wl.Jobs[0].Submit).Seconds()
	}
	if s.Span > 0 {
		s.JobsPerDay = float64(s.Jobs) / s.Span * 86400
	}
	s.Run, s.WallTime = distribution(run, timeEdges), distribution(wall, timeEdges)
	s.Accuracy, s.Interarrival = distribution(accuracy, tenths), distribution(gaps, timeEdges)
	s.Nodes, s.Cores, s.GPUs = distribution(nodes, doublings), distribution(cores, doublings), distribution(gpus, doublings)
	s.Memory = distribution(memory, nil)
	for _, n := range slices.Sorted(maps.Keys(mix)) {
		s.GPUMix = append(s.GPUMix, GPUShare{n, mix[n], float64(mix[n]) / float64(s.Jobs)})
	}
	s.Users, s.Groups = named(users), named(groups)
	byJobs := func(a, b Group) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.Name, b.Name)) }
	byWork := func(a, b Group) int {
		return cmp.Or(cmp.Compare(b.CoreSeconds, a.CoreSeconds), cmp.Compare(a.Name, b.Name))
	}
	s.Statuses, s.Queues = s.ranked(statuses, byJobs), s.ranked(queues, byJobs)
	s.TopUsers = s.ranked(users, byWork)
	s.TopUsers = s.TopUsers[:min(topUsers, len(s.TopUsers))]
	return s
}

func (s *Summary) countKinds(j *model.Job) {
	if r := j.Request.Remote; j.Request.GPUMemory > 0 || (r != nil && r.Shared) {
		s.SharedGPUs++
	}
	if j.Request.Remote != nil {
		s.RemoteGPUs++
	}
	if j.Request.Contiguous {
		s.Contiguous++
	}
	if len(j.Alternatives) > 0 {
		s.WithChoice++
	}
}

func (s *Summary) countHour(start time.Time, submit time.Duration) {
	if start.IsZero() {
		s.ByHour[int(submit/time.Hour)%24]++
		return
	}
	at := start.Add(submit)
	s.ByHour[at.UTC().Hour()]++
	s.ByWeekday[(int(at.UTC().Weekday())+6)%7]++
}

func statusName(j *model.Job) string {
	if j.Logged == nil {
		return ""
	}
	return string(j.Logged.Status)
}

func countIn(groups map[string]*Group, name string, work float64) {
	g := groups[name]
	if g == nil {
		g = &Group{Name: name}
		groups[name] = g
	}
	g.Jobs++
	g.CoreSeconds += work
}

// named counts the groups that have a name.
func named(groups map[string]*Group) int {
	if groups[""] != nil {
		return len(groups) - 1
	}
	return len(groups)
}

// ranked sorts groups. The result does not depend on the order of the map.
func (s *Summary) ranked(groups map[string]*Group, order func(a, b Group) int) []Group {
	list := make([]Group, 0, len(groups))
	for _, g := range groups {
		g.Share = float64(g.Jobs) / float64(s.Jobs)
		list = append(list, *g)
	}
	slices.SortFunc(list, order)
	return list
}

// The edges of bins: round times, powers of two, and tenths.
var (
	timeEdges = []float64{0, 1, 10, 60, 600, 3600, 4 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 30 * 86400}
	doublings = powersOfTwo(31)
	tenths    = []float64{0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1}
)

func powersOfTwo(n int) []float64 {
	var out []float64
	for i := range n {
		out = append(out, math.Ldexp(1, i))
	}
	return out
}

// distribution computes a distribution. It sorts the values in place. Values above the last edge
// get a bin of their own.
func distribution(values, edges []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	n := len(values)
	rank := func(share int) float64 { return values[(n*share+99)/100-1] } // nearest rank
	d := Distribution{
		Count: n, Min: values[0], Max: values[n-1], Mean: sum / float64(n),
		Median: rank(50), P95: rank(95),
	}
	rest := values
	for i, from := range edges {
		to := math.MaxFloat64
		if i+1 < len(edges) {
			to = edges[i+1]
		}
		inside, _ := slices.BinarySearch(rest, to)
		if inside > 0 || (len(d.Bins) > 0 && len(rest) > 0) {
			d.Bins = append(d.Bins, Bin{from, to, inside})
		}
		rest = rest[inside:]
	}
	if last := len(d.Bins) - 1; last >= 0 && d.Bins[last].To == math.MaxFloat64 {
		d.Bins[last].To = math.Nextafter(d.Max, math.Inf(1))
	}
	return d
}
