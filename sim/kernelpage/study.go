package kernelpage

import (
	"math"
	"time"

	"muster/model"
	"muster/report"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// Study is a set of runs of one workload under several mappers, with their results.
type Study struct {
	// Asked has the inputs: names and values, in the order of the page.
	Asked [][2]string
	// Command is the command line that makes the page again.
	Command string

	// Policies, Nodes and Seeds are in the order in which they were given. All other policies are
	// compared with the first.
	Policies []string
	Nodes    []int
	Seeds    []uint64
	Runs     []Run // ordered by seed, then size, then policy
}

// Run is one run of a study.
type Run struct {
	Policy string
	Seed   uint64
	// Cluster and Workload are those of its size.
	Cluster  *model.Cluster
	Workload *phased.Workload
	Result   *kernels.Result
	// Recorder observed the run; nil if none did.
	Recorder *Recorder
}

// NewStudy makes the study of a completed sweep. recorders has one recorder per run, or nil.
func NewStudy(sweep *kernels.Sweep, runs []kernels.RunOf, recorders []*Recorder) *Study {
	s := &Study{Policies: sweep.Mappers, Seeds: sweep.Seeds, Runs: make([]Run, len(runs))}
	for _, size := range sweep.Sizes {
		s.Nodes = append(s.Nodes, len(size.Cluster.Nodes))
	}
	for i, r := range runs {
		s.Runs[i] = Run{Policy: r.Mapper, Seed: r.Seed, Cluster: r.Cluster, Workload: r.Workload, Result: r.Result}
		if recorders != nil {
			s.Runs[i].Recorder = recorders[i]
		}
	}
	return s
}

// Record makes recorders for the runs that the pictures show: those of the first seed and size.
func Record(sweep *kernels.Sweep) []*Recorder {
	points := sweep.Points()
	recorders := make([]*Recorder, len(points))
	for i, p := range points {
		if sweep.First(i) {
			recorders[i] = NewRecorder(p.Cluster, p.Workload, blocks(len(sweep.Mappers), p.Cluster.TotalGPUs()))
		}
	}
	sweep.Observe = func(p kernels.Point) kernels.Observer {
		if r := recorders[p.Index]; r != nil {
			return r
		}
		return nil
	}
	return recorders
}

// Nodes is the number of nodes in the cluster of a run.
func (r *Run) Nodes() int { return len(r.Cluster.Nodes) }

// base is the run of the first policy with the same seed and size.
func (s *Study) base(index int) *Run { return &s.Runs[index-index%len(s.Policies)] }

// Measure is a number of a run.
type Measure func(*Run) float64

// Utilisation is the fraction of all GPUs' time that was spent in kernels.
func Utilisation(r *Run) float64 { return r.Result.Utilisation() }

// ForData is the fraction of all GPUs' time in which they were held while data travelled.
func ForData(r *Run) float64 {
	sum := 0.0
	for i := range r.Result.Devices {
		d := &r.Result.Devices[i]
		sum += (d.Held - d.Busy).Seconds()
	}
	return ratio(sum, float64(len(r.Result.Devices))*r.Result.End.Seconds())
}

// Turnaround is the mean time from the launch of a call until its results have arrived, in seconds:
// the wait plus the kernel. Like all means over calls it includes only calls that are done, and is
// NaN if there are none.
func Turnaround(r *Run) float64 { return Wait(r) + KernelTime(r) }

// Wait is the mean time of a call without the kernel: Queue and Transfer.
func Wait(r *Run) float64 { return Queue(r) + Transfer(r) }

// Queue is the mean time until a call gets its device.
func Queue(r *Run) float64 {
	return perCall(r, func(a *kernels.AppResult) time.Duration { return a.Queue })
}

// Transfer is the mean time in which the data of a call travel, including the latency.
func Transfer(r *Run) float64 {
	return perCall(r, func(a *kernels.AppResult) time.Duration { return a.Transfer })
}

// KernelTime is the mean time that a kernel runs.
func KernelTime(r *Run) float64 {
	return perCall(r, func(a *kernels.AppResult) time.Duration { return a.Run })
}

func perCall(r *Run, of func(*kernels.AppResult) time.Duration) float64 {
	sum := 0.0
	for i := range r.Result.Apps {
		sum += of(&r.Result.Apps[i]).Seconds()
	}
	return mean(sum, Kernels(r))
}

// Kernels is the number of calls that are done.
func Kernels(r *Run) float64 {
	return overApps(r, func(a *kernels.AppResult) int64 { return a.Done })
}

// Launched is the number of calls, done or not.
func Launched(r *Run) float64 {
	return overApps(r, func(a *kernels.AppResult) int64 { return a.Launched })
}

// Remote is the fraction of the finished calls that ran on another node.
func Remote(r *Run) float64 {
	return mean(overApps(r, func(a *kernels.AppResult) int64 { return a.Remote }), Kernels(r))
}

func overApps(r *Run, of func(*kernels.AppResult) int64) float64 {
	sum := int64(0)
	for i := range r.Result.Apps {
		sum += of(&r.Result.Apps[i])
	}
	return float64(sum)
}

// Moved is the number of bytes moved between nodes.
func Moved(r *Run) float64 {
	sum := int64(0)
	for i := range r.Result.Nodes {
		sum += r.Result.Nodes[i].Received
	}
	return float64(sum)
}

// End is the length of the run, in seconds.
func End(r *Run) float64 { return r.Result.End.Seconds() }

// mean divides a sum over calls or GPUs by their number. Without any it is NaN, because 0 would be
// the best of all waits.
func mean(sum, of float64) float64 {
	if of == 0 {
		return math.NaN()
	}
	return sum / of
}

// ratio is a / b, or 0 if b is 0 (no device, no time).
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// CallMeasures are the measures that exist for all calls together and for each application.
type CallMeasures struct {
	Kernels, Launched, Turnaround, Wait, Queue, Transfer, KernelTime, Remote Measure
}

// OfAll are the measures of all calls.
var OfAll = CallMeasures{Kernels, Launched, Turnaround, Wait, Queue, Transfer, KernelTime, Remote}

// AppMeasures are the measures of one application.
type AppMeasures struct {
	CallMeasures
	// Rate is kernels per second, until the application's end if it has ended.
	Rate Measure
	// OwnGPUs is the utilisation of the GPUs on its own nodes by all applications; NaN if there are
	// none.
	OwnGPUs Measure
	// End is when the last of its processes ended; NaN if some have not.
	End Measure
}

// OfApp are the measures of an application, by its index.
func OfApp(app int) AppMeasures {
	of := func(f func(*kernels.AppResult) float64) Measure {
		return func(r *Run) float64 { return f(&r.Result.Apps[app]) }
	}
	timeOf := func(f func(*kernels.AppResult) time.Duration) Measure {
		return of(func(a *kernels.AppResult) float64 { return mean(f(a).Seconds(), float64(a.Done)) })
	}
	calls := CallMeasures{
		Kernels:    of(func(a *kernels.AppResult) float64 { return float64(a.Done) }),
		Launched:   of(func(a *kernels.AppResult) float64 { return float64(a.Launched) }),
		Turnaround: timeOf(func(a *kernels.AppResult) time.Duration { return a.Queue + a.Transfer + a.Run }),
		Wait:       timeOf(func(a *kernels.AppResult) time.Duration { return a.Queue + a.Transfer }),
		Queue:      timeOf(func(a *kernels.AppResult) time.Duration { return a.Queue }),
		Transfer:   timeOf(func(a *kernels.AppResult) time.Duration { return a.Transfer }),
		KernelTime: timeOf(func(a *kernels.AppResult) time.Duration { return a.Run }),
		Remote:     of(func(a *kernels.AppResult) float64 { return mean(float64(a.Remote), float64(a.Done)) }),
	}
	return AppMeasures{CallMeasures: calls, Rate: appRate(app), OwnGPUs: utilisationOf(app), End: of(appEnd)}
}

func appRate(app int) Measure {
	return func(r *Run) float64 {
		a := &r.Result.Apps[app]
		if a.Ended == a.Processes && a.LastEnd > 0 {
			return float64(a.Done) / a.LastEnd.Seconds()
		}
		return ratio(float64(a.Done), r.Result.End.Seconds())
	}
}

func appEnd(a *kernels.AppResult) float64 {
	if a.Ended < a.Processes {
		return math.NaN()
	}
	return a.LastEnd.Seconds()
}

func utilisationOf(app int) Measure {
	return func(r *Run) float64 {
		owners := r.owners()
		busy, devices := 0.0, 0
		for i := range r.Result.Devices {
			if d := &r.Result.Devices[i]; owners[d.Node] == app {
				busy += d.Busy.Seconds()
				devices++
			}
		}
		return mean(busy, float64(devices)*r.Result.End.Seconds())
	}
}

// owners are the applications to which the nodes belong; -1 for none.
func (r *Run) owners() []int {
	owners := make([]int, r.Nodes())
	for n := range owners {
		owners[n] = -1
	}
	n := 0
	for app := range r.Workload.Apps {
		for range r.Workload.Apps[app].Nodes {
			owners[n] = app
			n++
		}
	}
	return owners
}

// change is the relative change of a measure against the first policy.
func (s *Study) change(of Measure) func(index int) float64 {
	return func(index int) float64 {
		base := of(s.base(index))
		if base == 0 {
			return math.NaN()
		}
		return of(&s.Runs[index])/base - 1
	}
}

// margin is the difference of a measure from that under the first policy.
func (s *Study) margin(of Measure) func(index int) float64 {
	return func(index int) float64 { return of(&s.Runs[index]) - of(s.base(index)) }
}

// Over is a measure over all seeds for one policy and size, given by index.
func (s *Study) Over(size, policy int, of Measure) report.Interval {
	return s.overRuns(size, policy, func(index int) float64 { return of(&s.Runs[index]) })
}

// Against is the relative change of a measure against the first policy, seed by seed.
func (s *Study) Against(size, policy int, of Measure) report.Interval {
	return s.overRuns(size, policy, s.change(of))
}

// Margin is the difference of a measure from that under the first policy, seed by seed.
func (s *Study) Margin(size, policy int, of Measure) report.Interval {
	return s.overRuns(size, policy, s.margin(of))
}

func (s *Study) overRuns(size, policy int, of func(index int) float64) report.Interval {
	values := make([]float64, len(s.Seeds))
	for k := range s.Seeds {
		values[k] = of((k*len(s.Nodes)+size)*len(s.Policies) + policy)
	}
	return report.IntervalOf(values)
}
