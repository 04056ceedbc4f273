package clusterscheduler

import (
	"cmp"
	"slices"
)

// least is a lower bound of the time until all jobs that are submitted at once have ended on a cluster, in
// seconds, whatever places them and wherever nodes bind their processes, again and again: the bound of the
// hardware. It follows from the profile, the kernels and the GPUs alone:
//
//   - A process has its kernels on one GPU at a time, one after the other. What a job takes besides comes before
//     them, is what a job of one process takes alone, and other jobs do not lengthen it.
//   - The network takes no time, and moves take none.
//
// The k processes with most to do take at least as long as the k fastest GPUs do for them together, and all at
// least as long as all GPUs do (Horvath, Lam and Sethi's bound for preemptive schedules).
func (p *profile) least(hosts []host, jobs []job) float64 {
	speeds, longest := p.speeds(hosts, jobs), 0.0
	work, speed := 0.0, 0.0
	for k, w := range p.works(hosts, jobs) {
		if work += w; k < len(speeds) {
			speed += speeds[k]
		}
		longest = max(longest, work/speed)
	}
	return p.Start + p.EachStarts + longest
}

// works is how long the kernels of each process take on the card of the first host, the longest first.
func (p *profile) works(hosts []host, jobs []job) (works []float64) {
	for i := range jobs {
		j := &jobs[i]
		units := float64(j.app.units) / float64(j.processes)
		if j.app.rounds > 0 {
			units *= float64(j.app.rounds)
		}
		works = append(works, slices.Repeat([]float64{units * p.unit(j.app, hosts[0].cards[0].Name)}, j.processes)...)
	}
	slices.SortFunc(works, func(a, b float64) int { return cmp.Compare(b, a) })
	return works
}

// speeds are those of all GPUs relative to the first one, the fastest first. If programs gain differently by a
// card, all are taken to gain as much as the one that gains most.
func (p *profile) speeds(hosts []host, jobs []job) (speeds []float64) {
	base := hosts[0].cards[0].Name
	for _, h := range hosts {
		for _, c := range h.cards {
			most := 0.0
			for i := range jobs {
				most = max(most, p.unit(jobs[i].app, base)/p.unit(jobs[i].app, c.Name))
			}
			speeds = append(speeds, most)
		}
	}
	slices.SortFunc(speeds, func(a, b float64) int { return cmp.Compare(b, a) })
	return speeds
}

// needed is how long the kernels of the jobs take all GPUs together, if none is ever idle.
func (p *profile) needed(hosts []host, jobs []job) float64 {
	work, speed := 0.0, 0.0
	for _, w := range p.works(hosts, jobs) {
		work += w
	}
	for _, s := range p.speeds(hosts, jobs) {
		speed += s
	}
	return work / speed
}
