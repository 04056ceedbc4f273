package live

import (
	"math"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/internal/misuse"
	"muster/sim"
	"muster/slurm/release"
)

// ReleaseOf is the release of Slurm that the flag names; without the flag, the newest.
func ReleaseOf(o exp.Options) (*release.Release, error) {
	text, given := o.Flags["slurm"]
	if !given {
		return release.Newest(), nil
	}
	r, err := release.Of(text)
	if err != nil {
		return nil, misuse.Errorf("--slurm %s: %v", text, err)
	}
	return r, nil
}

// Outcomes are the measured jobs as the simulator's, so that an experiment can treat both alike.
func (o *Outcome) Outcomes() []sim.Outcome {
	list := make([]sim.Outcome, len(o.Jobs))
	for i, j := range o.Jobs {
		list[i] = sim.Outcome{Start: j.Start, End: j.End, State: sim.Finished}
		list[i].On(len(j.Nodes), func(k int) int32 { return j.Nodes[k] })
	}
	return list
}

// WithoutStart takes the cost of starting a job off simulated outcomes, half at each end: measured times go from a job's
// first command to its last.
func WithoutStart(list []sim.Outcome, start time.Duration) {
	for i := range list {
		list[i].Start += start / 2
		list[i].End -= start - start/2
	}
}

// Errors are by how much predictions are off, in per cent, one for each run with a number.
func Errors(real, predicted []float64) []float64 {
	var list []float64
	for i, was := range real {
		if was != 0 {
			list = append(list, 100*(predicted[i]/was-1))
		}
	}
	return list
}

// MeasuredNote describes the machine that ran what, and says whether other load disturbed one of the runs.
func MeasuredNote(what string, runs []*Outcome) string {
	worst := 0.0
	for _, o := range runs {
		worst = math.Max(worst, o.Load)
	}
	return "Measured on " + bench.Machine() + ", all " + what + " of the cluster on it." + BusyNote(worst)
}

// Cost is a number of what scheduling took, or of how exactly it was done.
type Cost struct {
	Metric, Unit string
	Of           func(*Outcome) float64
	Note         string
}

// perJob is a processor time in milliseconds for each job.
func perJob(of func(*Outcome) time.Duration) func(*Outcome) float64 {
	return func(o *Outcome) float64 { return 1e3 * of(o).Seconds() / float64(len(o.Jobs)) }
}

// The costs of scheduling.
var (
	ControllerPerJob = perJob(func(o *Outcome) time.Duration { return o.Controller })
	RESTPerJob       = perJob(func(o *Outcome) time.Duration { return o.REST })
	DriverPerJob     = perJob(func(o *Outcome) time.Duration { return o.Driver })
	Latency          = func(o *Outcome) float64 { return o.MedianLatency().Seconds() }
	Wrong            = func(o *Outcome) float64 { return float64(o.Counts.Wrong) }
	Recalled         = func(o *Outcome) float64 { return float64(o.Counts.Recalled) }
)

// CostRows are the costs of some runs. Where no driver scheduled, only the first of them is known.
func CostRows(part, key string, driven bool, runs []*Outcome, costs []Cost) []exp.Row {
	if !driven {
		costs = costs[:1]
	}
	var rows []exp.Row
	for _, c := range costs {
		values := exp.Values(runs, func(o **Outcome) float64 { return c.Of(*o) })
		rows = append(rows, exp.Over(part, c.Metric+"_"+key, c.Unit, values).Noting("%s", c.Note))
	}
	return rows
}
