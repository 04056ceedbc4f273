// Package bound proves lower bounds for the makespan of a workload: no policy, however clever, ends
// sooner. A bound shows whether a utilisation of 65 % is poor, or the best that any schedule can
// reach.
//
// Every argument is an inequality in integers. Floating point only proposes the weights of some of
// them; what is concluded from the weights is checked exactly. So a rounding error can weaken a
// bound but never make it false.
//
// The package knows clusters and jobs. It knows no policy and no simulator: its bounds also hold
// for schedules that neither can produce. It makes the simulator's assumptions: jobs are not
// interrupted, a job holds what it asks for from its start to its end, nothing is oversubscribed,
// and a job's GPUs are on its own nodes. For schedules that borrow GPUs from other nodes, pass the
// jobs through Decoupled first.
package bound

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"time"

	"muster/model"
	"muster/policy/prices"
)

// Bound is a proven bound.
type Bound struct {
	// Makespan is a lower bound for the time from the first submission to the last end.
	Makespan time.Duration
	// By names the argument that proves it; Why states it in words.
	By, Why string
	// Arguments are all arguments that were tried, the strongest first.
	Arguments []Argument
	// Jobs is the number of jobs that were counted, without those that the cluster cannot run.
	Jobs int

	coreTime *big.Int // run time in ns x requested cores, summed over the counted jobs
	cores    int64
}

// Argument is one proof.
type Argument struct {
	Name     string
	Makespan time.Duration
	Why      string
}

// Utilisation is an upper bound for the share of the cores' time that the jobs can use: the
// theoretical run time divided by the proven makespan.
func (b Bound) Utilisation() float64 {
	if b.Makespan == 0 || b.cores == 0 {
		return 0
	}
	return b.Theoretical().Seconds() / b.Makespan.Seconds()
}

// Theoretical is the sum of run time x requested cores over all jobs, divided by the cluster's
// cores: the makespan of a perfect schedule if jobs were divisible.
func (b Bound) Theoretical() time.Duration {
	if b.cores == 0 {
		return 0
	}
	return whole(new(big.Int).Div(b.coreTime, big.NewInt(b.cores)))
}

// Makespan proves a bound for jobs on a cluster. Jobs that the cluster cannot
// run even when it is idle are left out.
func Makespan(c *model.Cluster, jobs []model.Job) Bound {
	b := Bound{coreTime: new(big.Int), cores: int64(c.TotalCores())}
	m := newMachine(c)
	var list []work
	first := time.Duration(math.MaxInt64)
	for i := range jobs {
		w, ok := m.workOf(&jobs[i])
		if !ok {
			continue
		}
		list = append(list, w)
		first = min(first, w.submit)
		r := &jobs[i].As(0).Request
		b.coreTime.Add(b.coreTime, product(int64(jobs[i].As(0).Run), int64(r.TotalCores())))
	}
	b.Jobs = len(list)
	if b.Jobs == 0 {
		return b
	}
	slices.SortStableFunc(list, func(x, y work) int { return cmp.Compare(x.submit, y.submit) })
	b.Arguments = []Argument{longest(list, first), m.areas(list, first), m.configurations(list, first), m.wide(list)}
	slices.SortStableFunc(b.Arguments, func(x, y Argument) int { return cmp.Compare(y.Makespan, x.Makespan) })
	b.Makespan, b.By, b.Why = b.Arguments[0].Makespan, b.Arguments[0].Name, b.Arguments[0].Why
	return b
}

// Decoupled are the same jobs with GPUs that may be on any node. Bounds for them also hold for
// policies that borrow GPUs.
func Decoupled(jobs []model.Job) []model.Job {
	loosen := func(r *model.Request) {
		if r.Nodes > 0 && r.GPUs > 0 && r.GPUMemory == 0 {
			// Remote devices that the job asks for in addition are dropped. That can only weaken
			// the bound.
			r.Remote = &model.RemoteGPUs{Count: r.Nodes * r.GPUs}
			r.GPUs = 0
		}
	}
	out := slices.Clone(jobs)
	for i := range out {
		loosen(&out[i].Request)
		out[i].Alternatives = slices.Clone(out[i].Alternatives)
		for k := range out[i].Alternatives {
			loosen(&out[i].Alternatives[k])
		}
	}
	return out
}

// work is a lower bound for what a job takes: the minimum over all requests that it may run with.
type work struct {
	id     string
	submit time.Duration
	hold   time.Duration
	// area is amount x time of each resource, the minimum over the job's requests.
	area [resources]*big.Int
	// units is the job's work by kind, if the job has only one request; nil otherwise.
	units []unit
	nodes int64 // number of nodes that it needs; 0 if not known
}

// unit is count units of a kind of work.
type unit struct {
	kind  int
	count int64
}

const (
	cores = iota
	devices
	memory
	resources
)

var resourceNames = [resources]string{"cores", "GPUs", "memory"}

// machine is the cluster as the arguments need it.
type machine struct {
	c        *model.Cluster
	capacity [resources]*big.Int
	// device is the memory of the largest device, at least 1. A whole device counts as this amount,
	// a share as its memory.
	device int64
	// speed of the fastest device in millionths, at least that of speed 1.
	speed int64
	nodes []prices.Nodes
	alike bool
	kinds []prices.Kind
	found map[prices.Kind]int
}

func newMachine(c *model.Cluster) *machine {
	m := &machine{c: c, device: 1, speed: million, found: map[prices.Kind]int{}}
	for _, t := range c.GPUTypes {
		m.device = max(m.device, t.Memory)
		m.speed = max(m.speed, int64(min(math.Round(t.Speed*million), 1<<50)))
	}
	for i := range m.capacity {
		m.capacity[i] = new(big.Int)
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		m.capacity[cores].Add(m.capacity[cores], big.NewInt(int64(n.Cores)))
		m.capacity[devices].Add(m.capacity[devices], product(int64(len(n.GPUs)), m.device))
		m.capacity[memory].Add(m.capacity[memory], big.NewInt(n.Memory))
		t := prices.Nodes{Cores: int32(n.Cores), GPUs: int32(len(n.GPUs))}
		k := slices.IndexFunc(m.nodes, func(o prices.Nodes) bool { return o.Cores == t.Cores && o.GPUs == t.GPUs })
		if k < 0 {
			k = len(m.nodes)
			m.nodes = append(m.nodes, t)
		}
		m.nodes[k].Count++
	}
	m.alike = len(m.nodes) == 1
	return m
}

const million = 1_000_000

// workOf is the least work of a job; false if the cluster cannot run it.
func (m *machine) workOf(j *model.Job) (work, bool) {
	w := work{id: j.ID, submit: j.Submit, hold: math.MaxInt64}
	ways := 0
	for a := range 1 + len(j.Alternatives) {
		as := j.As(a)
		r := &as.Request
		if !m.possible(r) {
			continue
		}
		ways++
		hold := as.Run
		if m.speed > million && (r.GPUs > 0 || r.Remote != nil) {
			// Slightly less than on the fastest device, so that it is a lower bound however the
			// simulator rounds.
			hold = max(0, whole(new(big.Int).Div(product(int64(hold), million), big.NewInt(m.speed)))-1)
		}
		if as.WallTime > 0 {
			hold = min(hold, as.WallTime)
		}
		w.hold = min(w.hold, hold)
		amounts := m.amounts(r)
		for i := range w.area {
			area := new(big.Int).Mul(big.NewInt(int64(hold)), amounts[i])
			if w.area[i] == nil || area.Cmp(w.area[i]) < 0 {
				w.area[i] = area
			}
		}
		w.units, w.nodes = m.unitsOf(r), int64(r.Nodes)
	}
	if len(j.Alternatives) > 0 {
		w.units, w.nodes = nil, 0 // it is not known which of them the job will run with
	}
	return w, ways > 0
}

// amounts is a lower bound for what a request holds of each resource.
func (m *machine) amounts(r *model.Request) (a [resources]*big.Int) {
	a[cores] = big.NewInt(int64(r.TotalCores()))
	if r.Nodes == 0 {
		a[memory] = product(r.MemoryPerCore, int64(r.Cores))
		a[memory].Add(a[memory], big.NewInt(r.Memory)) // it has at least one node
	} else {
		a[memory] = product(r.MemoryOnNode(r.CoresOnNode()), int64(r.Nodes))
	}
	each := m.device
	if r.GPUMemory > 0 {
		each = r.GPUMemory
	}
	a[devices] = product(each, int64(max(r.Nodes, min(1, r.GPUs)))*int64(r.GPUs))
	if r.Remote != nil {
		each = m.device
		if r.Remote.Shared {
			each = r.Remote.Memory
		}
		a[devices].Add(a[devices], product(each, int64(r.Remote.Count)))
	}
	return a
}

// unitsOf divides a request into units of work on single nodes. A unit is never more than what the
// job takes on the node.
func (m *machine) unitsOf(r *model.Request) []unit {
	gpus := int32(r.GPUs)
	if r.GPUMemory > 0 {
		gpus = 0 // other jobs may share the device
	}
	var list []unit
	switch {
	case r.Nodes == 0:
		g := max(1, r.CoresPerProcess)
		list = append(list, unit{m.kind(int32(g), 0), int64(r.Cores / g)})
	case r.Exclusive && m.alike && r.Remote == nil: // its remote devices may be on its own nodes
		list = append(list, unit{m.kind(m.nodes[0].Cores, m.nodes[0].GPUs), int64(r.Nodes)})
	default:
		list = append(list, unit{m.kind(int32(r.CoresOnNode()), gpus), int64(r.Nodes)})
	}
	if r.Remote != nil && !r.Remote.Shared {
		list = append(list, unit{m.kind(0, 1), int64(r.Remote.Count)})
	}
	return list
}

// kind is the index of a kind of work, which it registers if it is new.
func (m *machine) kind(cores, gpus int32) int {
	k := prices.Kind{Cores: cores, GPUs: gpus}
	i, ok := m.found[k]
	if !ok {
		i = len(m.kinds)
		m.found[k] = i
		m.kinds = append(m.kinds, k)
	}
	return i
}

// longest: a job cannot end earlier than its submission plus its run time.
func longest(list []work, first time.Duration) Argument {
	a := Argument{Name: "longest job", Makespan: -1}
	for i := range list {
		if end := list[i].submit - first + list[i].hold; end > a.Makespan {
			a.Makespan = end
			a.Why = fmt.Sprintf("job %s comes after %v and runs for %v", list[i].id, list[i].submit-first, list[i].hold)
		}
	}
	return a
}

// areas: the sum over jobs of what they hold x how long fits into capacity x time. That is true for
// all jobs, and also for those submitted from some time on, with the time counted from there.
func (m *machine) areas(list []work, first time.Duration) Argument {
	a := Argument{Name: "area", Why: "there is nothing to do"}
	for k := range resources {
		if m.capacity[k].Sign() == 0 {
			continue
		}
		sum := new(big.Int)
		for i := len(list) - 1; i >= 0; i-- {
			sum.Add(sum, list[i].area[k])
			if i > 0 && list[i-1].submit == list[i].submit {
				continue
			}
			if t := later(list[i].submit-first, above(sum, m.capacity[k])); t > a.Makespan {
				a.Makespan = t
				a.Name = resourceNames[k]
				a.Why = fmt.Sprintf("%d jobs from %v on would keep all %s busy for %v", len(list)-i, list[i].submit-first, resourceNames[k], t-(list[i].submit-first))
			}
		}
	}
	return a
}

// product is a x b with arbitrary precision.
func product(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// above is a / b, rounded up: times are whole nanoseconds.
func above(a, b *big.Int) *big.Int {
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

// later is the time d after t.
func later(t time.Duration, d *big.Int) time.Duration {
	return whole(new(big.Int).Add(big.NewInt(int64(t)), d))
}

// whole converts to a duration; values that are too large become the largest duration.
func whole(q *big.Int) time.Duration {
	if !q.IsInt64() {
		return math.MaxInt64
	}
	return time.Duration(q.Int64())
}
