package auction

import (
	"fmt"
	"math/bits"
	"time"

	"muster/policy"
	"muster/policy/winner"
)

// evaluate gives the bids their values. If a job has several requests, the
// preferences of the one with the shortest estimate stay as they are; those of
// a request that takes twice as long are halved.
func (p *auction) evaluate(v *policy.View, r *round) {
	for i := range r.bids {
		if b := &r.bids[i]; v.Requests(r.jobs[b.job].id) > 1 {
			shortest, own := estimates(v, r.jobs[b.job].id, b.request)
			high, low := bits.Mul64(uint64(b.preference), uint64(shortest))
			f, _ := bits.Div64(high, low, uint64(own))
			b.preference = int64(max(1, f))
		}
	}
	priorities := make([]int64, len(r.jobs))
	for i := range r.jobs {
		priorities[i] = r.jobs[i].priority
	}
	s := scaleFor(priorities, r.whole)
	for i := range r.bids {
		b := &r.bids[i]
		b.value = s.value(r.jobs[b.job].priority, b.preference)
	}
}

// estimates is the estimate of a job's shortest request that can be granted at
// all, and the estimate of the given request; both are at least 1.
func estimates(v *policy.View, id policy.JobID, request int) (shortest, own time.Duration) {
	job := v.Job(id)
	own = max(1, job.As(request).Estimate())
	shortest = own
	for i := range v.Requests(id) {
		if v.ShapeAs(id, i) != nil {
			shortest = min(shortest, max(1, job.As(i).Estimate()))
		}
	}
	return shortest, own
}

// solve asks the solver for the winners. If the solver fails, Greedy answers,
// so that there always is an answer. With the setting cut, an answer that is
// not proven lowers the limit on bids for later auctions.
func (p *auction) solve(r *round) {
	m := &p.market
	problem := &winner.Problem{Cores: m.cores, GPUs: m.gpus, Jobs: len(r.jobs), Bids: make([]winner.Bid, len(r.bids))}
	for i := range r.bids {
		b := &r.bids[i]
		w := winner.Bid{Job: b.job, Value: b.value, Nodes: b.nodes, Count: b.count, PerNode: b.perNode, GPUs: b.gpus}
		if b.perNode == 0 {
			w.Total = b.total
		}
		problem.Bids[i] = w
	}
	limits := p.limits
	limits.Iterations = min(limits.Iterations, p.perBid*int64(len(r.bids)))
	if r.answer, r.note = ask(p.solver, problem, limits); r.answer == nil {
		r.answer = winner.Greedy(problem)
	}
	for _, w := range r.answer.Won {
		r.bids[w.Bid].won = true
	}
	if p.cut && !r.answer.Proven {
		least := min(p.most, p.perJob, len(r.bids))
		p.most = max(1, least, int(float64(min(p.most, len(r.bids)))/1.5))
	}
}

// ask returns the solver's answer if it is valid, or else what was wrong. It
// also catches a panic of the solver.
func ask(solver winner.Solver, problem *winner.Problem, limits winner.Limits) (a *winner.Answer, wrong string) {
	defer func() {
		if e := recover(); e != nil {
			a, wrong = nil, fmt.Sprintf("the solver broke down: %v", e)
		}
	}()
	a, err := solver.Solve(problem, limits)
	if err == nil && a == nil {
		return nil, "the solver gave no answer"
	}
	if err == nil {
		err = winner.Check(problem, a)
	}
	if err != nil {
		return nil, fmt.Sprintf("the solver failed: %v", err)
	}
	return a, ""
}
