package auction

import (
	"math/bits"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/winner"
)

// auction is the policy. Step says when it holds an auction.
type auction struct {
	window, perJob int
	most           int // bids of all jobs at most
	interval       time.Duration
	slurm, cut     bool
	classes, avoid [3]bool
	ipsched        bool
	limits         winner.Limits
	perBid         int64 // the solver's iterations for each bid at most
	solver         winner.Solver

	market market
	would  table   // what would be free if the Slurm bids made so far had won
	needs  []*need // by shape
	// generation is the view's generation for which needs was computed.
	generation uint64
	alloc      model.Allocation

	// pending says that something happened since the last auction.
	pending bool
	newest  policy.JobID  // the latest job that has arrived
	next    time.Duration // the time before which no auction is held
	held    []*round      // the auctions of the latest step
}

// round is one auction, with everything that Explain and Why need.
type round struct {
	jobs   []bidder
	sets   []Nodeset
	bids   []bid
	whole  int64 // a preference of 1, in units of bid.preference
	answer *winner.Answer
	note   string       // what was wrong with the solver, or ""
	capped int          // the number of jobs that could not bid because of the limit on all bids
	newest policy.JobID // the latest job that had arrived
	last   policy.Place // the place in the queue of the window's last job
	alone  policy.JobID // the job that startAlone started, or -1
	starts int
}

// bidder is a job of the window.
type bidder struct {
	id         policy.JobID
	priority   int64
	first, end int // its bids are bids[first:end]
	capped     bool
	// failed: its bid won, but what it asked for was not free after all. That
	// can happen because bids do not cover everything, for instance memory.
	failed bool
}

var (
	_ policy.Policy    = (*auction)(nil)
	_ policy.Explainer = (*auction)(nil)
)

func (p *auction) Traits() policy.Traits {
	return policy.Traits{Order: policy.ByPriority, Ends: true, Alternatives: true}
}

// Step holds an auction if the interval since the last one has passed and
// something has happened since: jobs arrived, left or were started. Without an
// interval it holds one auction after the other until one starts nothing.
func (p *auction) Step(v *policy.View, plan *policy.Plan) {
	if p.generation != v.Generation() {
		p.generation, p.needs = v.Generation(), nil // they name nodes
	}
	for _, id := range v.Arrived() {
		p.newest = max(p.newest, id)
	}
	if (len(v.Arrived()) > 0 || len(v.Left()) > 0 || v.Freed() || v.Reordered()) && !p.wouldBeTheSame(v) {
		p.pending = true
	}
	if !p.pending || v.Waiting() == 0 {
		plan.Skipped = true
		return
	}
	if p.next > v.Now() {
		plan.Skipped, plan.Wake = true, p.next
		return
	}
	p.next = model.After(v.Now(), p.interval)
	p.held = p.held[:0]
	for {
		r := p.hold(v, plan)
		p.held = append(p.held, r)
		if r.starts == 0 || p.interval > 0 {
			break
		}
	}
	// After these starts, jobs that could not bid may be able to, and jobs that
	// lost may find other nodes: hold another auction after the interval.
	if p.pending = len(plan.Starts) > 0 && p.interval > 0; p.pending {
		plan.Wake = p.next
	}
}

// wouldBeTheSame says that an auction now would have the same result as the
// latest, which started no job: the window was full, and only jobs behind it
// have arrived.
func (p *auction) wouldBeTheSame(v *policy.View) bool {
	if p.pending || v.Freed() || v.Reordered() || len(v.Left()) > 0 || len(p.held) == 0 {
		return false
	}
	r := p.held[len(p.held)-1]
	if len(r.jobs) < p.window {
		return false
	}
	for _, id := range v.Arrived() {
		if v.StandsBefore(id, r.last) {
			return false
		}
	}
	r.newest = p.newest
	return true
}

// hold holds one auction: invite, bid, evaluate, solve, start.
func (p *auction) hold(v *policy.View, plan *policy.Plan) *round {
	r := &round{alone: -1, newest: p.newest}
	p.market.open(v)
	if p.slurm && !p.ipsched {
		p.would.copy(v)
	}
	p.invite(v, r)
	p.bidAll(v, r)
	r.sets, r.bids, r.whole = p.market.sets, p.market.bids, p.market.prefer.whole
	if len(r.bids) > 0 {
		p.evaluate(v, r)
		p.solve(r)
		p.start(v, plan, r)
	}
	if r.starts == 0 && len(plan.Starts) == 0 {
		p.startAlone(v, plan, r)
	}
	return r
}

// invite lists the jobs of the window. If all have the same priority, or if
// ranks order the queue, a job's place in the window serves as its priority.
func (p *auction) invite(v *policy.View, r *round) {
	for queue := v.Queue(); len(r.jobs) < p.window; {
		id, _, ok := queue.Next()
		if !ok {
			break
		}
		if v.Held(id) == nil { // this step has not started it
			r.jobs = append(r.jobs, bidder{id: id, priority: v.Job(id).Priority})
			r.last = queue.Place()
		}
	}
	n := len(r.jobs)
	if n == 0 {
		return
	}
	if r.jobs[0].priority == r.jobs[n-1].priority || v.Rank(r.jobs[0].id) != v.Rank(r.jobs[n-1].id) {
		for i := range r.jobs {
			r.jobs[i].priority = int64(n - i)
		}
	}
}

// bidAll makes the bids of all jobs, in the order of the queue, until the limit
// is reached.
func (p *auction) bidAll(v *policy.View, r *round) {
	for i := range r.jobs {
		j := &r.jobs[i]
		j.first = len(p.market.bids)
		if j.capped = j.first >= p.most; j.capped {
			r.capped++
		}
		for request := 0; request < v.Requests(j.id) && !j.capped; request++ {
			sh := v.ShapeAs(j.id, request)
			if sh == nil || !v.MayFit(sh, policy.Sharing) {
				continue
			}
			p.bidFor(v, bid{job: int32(i), request: request}, sh)
		}
		p.would.settle()
		j.end = len(p.market.bids)
	}
}

// needOf is what a shape asks for. It is computed once.
func (p *auction) needOf(sh *policy.Shape, c *model.Cluster) *need {
	for sh.ID() >= len(p.needs) {
		p.needs = append(p.needs, nil)
	}
	if p.needs[sh.ID()] == nil {
		p.needs[sh.ID()] = needOf(sh, c)
	}
	return p.needs[sh.ID()]
}

// bidFor makes the bids of one request.
func (p *auction) bidFor(v *policy.View, b bid, sh *policy.Shape) {
	m := &p.market
	nd := p.needOf(sh, m.cluster)
	first := len(m.bids)
	left := func() int { return min(p.perJob-(len(m.bids)-first), p.most-len(m.bids)) }

	var slurm []int32
	if p.slurm && !p.ipsched && left() > 0 && p.would.choose(sh, &p.alloc) && p.mayUse(nd, &p.alloc) {
		b.class = Slurm
		m.placed(b, nd, &p.alloc)
		slurm = m.bids[first].nodes
		p.would.keep(&p.alloc)
	}
	if !nd.odd {
		m.gather(nd)
		if p.ipsched && !nd.contiguous {
			m.any(b, nd, left())
		} else {
			p.bidByClass(b, nd, left, slurm)
		}
	}
	// Bid with one placement for what the classes do not cover: special
	// requests, and spread cores on nodes with little memory.
	if len(m.bids) == first && left() > 0 && (nd.odd || nd.spread() && nd.perCore > 0) {
		if a := v.Place(sh, policy.Sharing); a != nil && p.mayUse(nd, a) {
			b.class = Placed
			m.placed(b, nd, a)
		}
	}
}

func (p *auction) bidByClass(b bid, nd *need, left func() int, slurm []int32) {
	m := &p.market
	find := [3]func(*need){m.aligned, m.inside, m.joined}
	for class, made := range p.classes {
		if !made || left() <= 0 || Class(class) == Joined && nd.contiguous {
			continue
		}
		find[class](nd)
		b.class = Class(class)
		m.take(b, nd, left(), p.avoid[class], slurm)
	}
}

// mayUse says whether a placement is allowed: it must be one block if the job
// or the setting of classes demands that.
func (p *auction) mayUse(nd *need, a *model.Allocation) bool {
	if p.classes[Joined] && !nd.contiguous {
		return true
	}
	n := len(a.Parts)
	return int(a.Parts[n-1].Node-a.Parts[0].Node) == n-1
}

// start turns the bids that won into starts, in the order of the queue.
func (p *auction) start(v *policy.View, plan *policy.Plan, r *round) {
	won := policy.Reason{Code: policy.Won}
	for _, w := range r.answer.Won {
		b := &r.bids[w.Bid]
		j := &r.jobs[b.job]
		sh := v.ShapeAs(j.id, b.request)
		nd := p.needOf(sh, p.market.cluster)
		a := p.allocation(v, nd, b, &w)
		if a != nil && plan.StartAs(j.id, b.request, a, won) {
			r.starts++
			continue
		}
		// Bids do not cover memory, shares and remote devices: a job with a
		// larger priority may have taken what this one counted on. Try any
		// other place.
		if a = v.Place(sh, policy.Sharing); a != nil && p.mayUse(nd, a) && plan.StartAs(j.id, b.request, a, won) {
			r.starts++
			continue
		}
		j.failed = true
	}
}

// allocation is what a winning bid asks for; nil if it is no longer free.
func (p *auction) allocation(v *policy.View, nd *need, b *bid, w *winner.Win) *model.Allocation {
	if nd.odd || b.exact != nil && nd.perCore > 0 {
		return b.exact
	}
	p.alloc.Parts, p.alloc.Grants = p.alloc.Parts[:0], p.alloc.Grants[:0]
	for i, n := range w.Nodes {
		cores := w.Cores[i]
		part := model.Part{Node: n, Cores: cores, Memory: nd.memory + nd.perCore*int64(cores)}
		free := v.FreeGPUs(n)
		if nd.gpuType >= 0 {
			free &= typeMask(p.market.cluster, n, nd.gpuType)
		}
		if part.GPUs = lowest(free, nd.gpus); bits.OnesCount64(part.GPUs) < int(nd.gpus) {
			return nil
		}
		p.alloc.Parts = append(p.alloc.Parts, part)
	}
	return &p.alloc
}

// lowest is the k lowest devices of a set, or all if there are fewer.
func lowest(set uint64, k int32) uint64 {
	rest := set
	for ; k > 0 && rest != 0; k-- {
		rest &= rest - 1
	}
	return set &^ rest
}

// startAlone keeps the policy from waiting for ever: if nothing runs and no bid
// won, it starts the first job that fits. That can happen if classes of bids
// are left out.
func (p *auction) startAlone(v *policy.View, plan *policy.Plan, r *round) {
	ends := v.Ends()
	if _, _, some := ends.Next(); some {
		return
	}
	for queue := v.Queue(); ; {
		id, _, ok := queue.Next()
		if !ok {
			return
		}
		for request := range v.Requests(id) {
			sh := v.ShapeAs(id, request)
			if sh == nil {
				continue
			}
			if a := v.Place(sh, policy.Sharing); a != nil && plan.StartAs(id, request, a, policy.Reason{Code: policy.InTurn}) {
				r.alone, r.starts = id, 1
				return
			}
		}
	}
}
