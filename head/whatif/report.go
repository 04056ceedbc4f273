package whatif

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
	"muster/sim"
	"muster/wire/api"
)

// MaxUsers is how many users are listed for a policy.
const MaxUsers = 200

// Period is what is known before any policy is simulated.
func (w *Workload) Period() api.WhatIfPeriod {
	y := w.history
	p := api.WhatIfPeriod{Name: y.Name, From: y.From.Seconds(), To: y.To.Seconds(), Measured: w.measured(), Policies: []api.WhatIfPolicy{}, Notes: w.notes}
	for i := range y.items {
		if y.items[i].counts {
			p.Jobs++
		}
	}
	for _, c := range y.Policies {
		if c.InForce {
			p.Policy = c.Name
		}
	}
	return p
}

// Jobs is how many jobs the simulator gets.
func (w *Workload) Jobs() int { return len(w.config.Jobs) }

// life is what is counted of a job.
type life struct {
	wait, run  time.Duration
	end        time.Duration // never if it has not ended
	user       int32
	impossible bool
}

// measured computes the figures of what happened.
func (w *Workload) measured() api.WhatIfFigures {
	y := w.history
	f := &figures{workload: w}
	for i := range y.items {
		it := &y.items[i]
		if it.counts {
			f.add(w.lifeOf(it))
		}
		if it.start != never {
			// It held its allocation while it ran, not while it was suspended.
			until := min(it.end, y.to())
			held := max(0, until-max(it.start, y.from()))
			if it.start >= y.from() && it.end != never {
				held = min(held, it.elapsed)
			}
			f.cores += float64(held.Seconds() * float64(it.cores))
			f.gpus += float64(held.Seconds() * it.gpus)
		}
		if it.end != never && it.end <= y.to() && it.start != never {
			f.last = max(f.last, it.end)
		}
	}
	return f.sum()
}

// lifeOf is a job as it was measured.
func (w *Workload) lifeOf(it *item) life {
	return life{wait: max(0, min(it.start, w.history.to())-it.submit), run: it.elapsed, end: it.end, user: it.user}
}

// figures accumulates lives.
type figures struct {
	workload    *Workload
	waits       []float64
	slow        float64
	cores, gpus float64
	last        time.Duration
	unfinished  int
	impossible  int
}

func (f *figures) add(l life) {
	if l.impossible {
		f.impossible++
		return
	}
	f.waits = append(f.waits, l.wait.Seconds())
	f.slow += sim.Slowdown(l.wait, l.run)
	if l.end > f.workload.history.to() {
		f.unfinished++
	}
}

// sum computes the figures. They are rounded, since the last digits of sums depend on the order of
// addition.
func (f *figures) sum() api.WhatIfFigures {
	y := f.workload.history
	cores, gpus := 0.0, 0.0
	for n, up := range y.upTime {
		cores += up.Seconds() * float64(y.cluster.Nodes[n].Cores)
		gpus += up.Seconds() * float64(len(y.cluster.Nodes[n].GPUs))
	}
	wait := sim.StatsOf(f.waits)
	return api.WhatIfFigures{
		MeanWait: rounded(wait.Mean), MedianWait: rounded(wait.Median), P95Wait: rounded(wait.P95), MeanSlowdown: rounded(f.slow / float64(max(1, len(f.waits)))),
		Use: part(f.gpus, gpus), CoreUse: part(f.cores, cores), Makespan: rounded(max(0, f.last-y.from()).Seconds()), Unfinished: f.unfinished, Impossible: f.impossible,
	}
}

func part(of, all float64) float64 {
	if all <= 0 {
		return 0
	}
	return rounded(of / all)
}

func rounded(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// holdings accumulates what jobs hold in a simulation, per job, so that the sum does not depend on
// the order in which they end.
type holdings struct {
	workload    *Workload
	from        []time.Duration
	cores, gpus []float64
	has         [][2]float64
}

func (h *holdings) Started(now time.Duration, job int, a *model.Allocation) {
	cores, gpus := sim.Held(h.workload.history.cluster, a)
	h.from[job], h.has[job] = now, [2]float64{float64(cores), gpus}
}

func (h *holdings) Ended(now time.Duration, job int) {
	held := (now - h.from[job]).Seconds()
	h.cores[job] += float64(held * h.has[job][0])
	h.gpus[job] += float64(held * h.has[job][1])
	h.from[job] = -1
}

// Try simulates the period under a policy, which must serve this call only. progress, if it is not
// nil, is called now and then with the number of jobs that are over.
func (w *Workload) Try(ctx context.Context, p policy.Policy, progress func(done int)) (*Trial, error) {
	n := len(w.config.Jobs)
	h := &holdings{workload: w, from: slices.Repeat([]time.Duration{-1}, n), cores: make([]float64, n), gpus: make([]float64, n), has: make([][2]float64, n)}
	cfg := w.config
	cfg.Policy, cfg.Progress, cfg.Observe = p, progress, h
	r, err := sim.Run(ctx, cfg)
	if err != nil {
		return nil, err
	}
	for i := range h.from {
		if h.from[i] >= 0 {
			h.Ended(w.history.to(), i)
		}
	}
	return w.trial(r, h), nil
}

// Trial is the result of simulating a policy.
type Trial struct {
	Figures      api.WhatIfFigures
	Users        []api.WhatIfUser
	UsersLeftOut int
	// StartedTogether is the fraction of the jobs that started when they really did, to a second.
	StartedTogether float64
}

func (w *Workload) trial(r *sim.Result, h *holdings) *Trial {
	y := w.history
	f := &figures{workload: w}
	users := make([]api.WhatIfUser, len(y.users))
	same, counted := 0, 0
	for i := range y.items {
		it, o := &y.items[i], &r.Outcomes[i]
		f.cores += h.cores[i]
		f.gpus += h.gpus[i]
		started := o.State != sim.Pending && o.State != sim.Impossible
		if started && o.State != sim.Running && o.State != sim.Withdrawn {
			f.last = max(f.last, o.End)
		}
		if !it.counts {
			continue
		}
		l := life{wait: max(0, y.to()-it.submit), run: it.elapsed, end: never, user: it.user, impossible: o.State == sim.Impossible}
		start := never
		if started {
			start = o.Start
			l.wait = start - it.submit
			if o.State == sim.Finished || o.State == sim.Killed {
				l.end = o.End
			}
		}
		f.add(l)
		if l.impossible {
			continue
		}
		counted++
		if closeTo(start, it.start) {
			same++
		}
		u := &users[it.user]
		u.Jobs++
		u.MeanWait += l.wait.Seconds()
		u.MeanWaitMeasured += w.lifeOf(it).wait.Seconds()
	}
	t := &Trial{Figures: f.sum(), StartedTogether: rounded(float64(same) / float64(max(1, counted)))}
	t.Users, t.UsersLeftOut = w.list(users)
	return t
}

func closeTo(a, b time.Duration) bool {
	return a == b || a != never && b != never && max(a, b)-min(a, b) <= time.Second
}

// list returns the users with most jobs.
func (w *Workload) list(users []api.WhatIfUser) (list []api.WhatIfUser, left int) {
	for i := range users {
		if u := users[i]; u.Jobs > 0 {
			u.User = w.history.users[i]
			u.MeanWait = rounded(u.MeanWait / float64(u.Jobs))
			u.MeanWaitMeasured = rounded(u.MeanWaitMeasured / float64(u.Jobs))
			list = append(list, u)
		}
	}
	slices.SortFunc(list, func(a, b api.WhatIfUser) int { return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), cmp.Compare(a.User, b.User)) })
	if left = max(0, len(list)-MaxUsers); left > 0 {
		list = list[:MaxUsers:MaxUsers]
	}
	return list, left
}

// Accuracy is how far the simulation of the policy in force is from what was measured.
func Accuracy(measured api.WhatIfFigures, t *Trial) *api.WhatIfAccuracy {
	s := t.Figures
	return &api.WhatIfAccuracy{
		MeanWait: rounded(s.MeanWait - measured.MeanWait), MedianWait: rounded(s.MedianWait - measured.MedianWait), P95Wait: rounded(s.P95Wait - measured.P95Wait),
		MeanSlowdown: rounded(s.MeanSlowdown - measured.MeanSlowdown), Use: rounded(s.Use - measured.Use), CoreUse: rounded(s.CoreUse - measured.CoreUse),
		Unfinished: s.Unfinished - measured.Unfinished, StartedTogether: t.StartedTogether,
	}
}
