package simpage

import (
	"cmp"
	"slices"
	"time"

	"muster/report"
	"muster/sim"
)

// maxPoints limits the points of a line over time.
const maxPoints = 2000

// usage is the use of the cluster over time: fractions of its cores and GPUs, and the number of
// waiting jobs.
type usage struct{ cores, gpus, waiting report.Series }

// change is the change of a run's state at one instant.
type change struct {
	at          time.Duration
	cores, gpus float32
	waiting     int32
}

// usageOf computes the usage of a run. The recorder knows what each job held.
func usageOf(name string, res *sim.Result, rec *Recorder) usage {
	changes := make([]change, 0, 3*len(res.Outcomes))
	for i := range res.Outcomes {
		o := &res.Outcomes[i]
		if !o.Ran() {
			continue
		}
		h := &rec.held[i]
		changes = append(changes,
			change{at: res.Jobs[i].Submit, waiting: 1},
			change{at: o.Start, cores: float32(h.cores), gpus: float32(h.gpus), waiting: -1},
			change{at: o.End, cores: -float32(h.cores), gpus: -float32(h.gpus)})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	changes = together(changes)
	sums(changes, float64(max(1, res.Cluster.TotalCores())), float64(max(1, res.Cluster.TotalGPUs())))
	u := usage{cores: report.Series{Name: name, Step: true}, gpus: report.Series{Name: name, Step: true}, waiting: report.Series{Name: name, Step: true}}
	for _, line := range []struct {
		to *report.Series
		of func(*change) float64
	}{
		{&u.cores, func(c *change) float64 { return float64(c.cores) }},
		{&u.gpus, func(c *change) float64 { return float64(c.gpus) }},
		{&u.waiting, func(c *change) float64 { return float64(c.waiting) }},
	} {
		line.to.X, line.to.Y = sampled(changes, line.of, maxPoints)
	}
	return u
}

// together adds up the changes at the same instant.
func together(changes []change) []change {
	out := changes[:0]
	for _, c := range changes {
		if n := len(out); n > 0 && out[n-1].at == c.at {
			last := &out[n-1]
			last.cores += c.cores
			last.gpus += c.gpus
			last.waiting += c.waiting
			continue
		}
		out = append(out, c)
	}
	return out
}

// sums turns changes into the state from each instant on, as fractions of the capacity.
func sums(changes []change, allCores, allGPUs float64) {
	cores, gpus, waiting := 0.0, 0.0, int32(0)
	for i := range changes {
		c := &changes[i]
		cores += float64(c.cores)
		gpus += float64(c.gpus)
		waiting += c.waiting
		c.cores, c.gpus, c.waiting = float32(cores/allCores), float32(max(0, gpus)/allGPUs), waiting
	}
}

// sampled returns a line unchanged if it has few points, and otherwise the time-weighted averages
// of that many equal periods.
func sampled(states []change, of func(*change) float64, points int) (x, y []float64) {
	if len(states) == 0 {
		return nil, nil
	}
	if len(states) <= points {
		for i := range states {
			x = append(x, states[i].at.Seconds())
			y = append(y, of(&states[i]))
		}
		return x, y
	}
	first, last := states[0].at, states[len(states)-1].at
	width := (last - first + time.Duration(points) - 1) / time.Duration(points)
	at := 0 // index of the current state
	for from := first; from < last; from += width {
		to := min(from+width, last)
		sum := 0.0
		for t := from; t < to; {
			until := to
			if at+1 < len(states) {
				until = min(to, states[at+1].at)
			}
			sum += of(&states[at]) * float64(until-t)
			if t = until; at+1 < len(states) && states[at+1].at == t {
				at++
			}
		}
		x = append(x, from.Seconds())
		y = append(y, sum/float64(to-from))
	}
	return append(x, last.Seconds()), append(y, of(&states[len(states)-1]))
}
