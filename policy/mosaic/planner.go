package mosaic

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
	"muster/policy/prices"
)

// planner turns the queue into a problem, and keeps what it learnt between plans.
type planner struct {
	p      *mosaic
	kinds  map[need]int32
	needs  []need
	search searcher
	prob   problem
	ids    []policy.JobID // by task
	best   answer
	try    answer
	known  map[policy.JobID]int // place in the order of the last plan
	plans  uint64

	// What the last plan rested on, for people.
	units []prices.Kind
	unit  []int32 // by kind: its unit; the devices of remote kinds are the next
	table *prices.Table
}

func (q *planner) init(p *mosaic) {
	q.p = p
	if q.kinds == nil {
		q.kinds = map[need]int32{}
	}
	q.known = map[policy.JobID]int{}
	q.search.problem = &q.prob
}

// classify is the kind of a request, or -1 if it is not planned: because
// the planner has no words for it, or because no block of the idle cluster would do.
func (q *planner) classify(m *machine, r *model.Request) int32 {
	n, ok := m.needOf(r)
	if !ok {
		return -1
	}
	t := taskOf(0, r)
	if !n.has(m.idle, &t) {
		return -1
	}
	if k, known := q.kinds[n]; known {
		return k
	}
	k := int32(len(q.needs))
	q.kinds[n] = k
	q.needs = append(q.needs, n)
	return k
}

// replan plans all jobs that wait.
func (p *mosaic) replan(v *policy.View) {
	q := &p.planner
	p.stale = false
	for _, id := range p.due {
		p.job(id).planned = false
	}
	p.due = p.due[:0]
	fresh := q.pose(v)
	if len(q.prob.tasks) == 0 {
		return
	}
	q.price()
	q.solve(fresh)
	for t, id := range q.ids {
		j := p.job(id)
		if q.best.start[t] < 0 {
			continue
		}
		j.planned, j.start = true, q.best.start[t]
		j.pieces = append(j.pieces[:0], q.best.pieces[t]...)
		p.due = append(p.due, id)
	}
	slices.SortFunc(p.due, func(a, b policy.JobID) int {
		return cmp.Or(cmp.Compare(p.jobs[a].start, p.jobs[b].start), cmp.Compare(a, b))
	})
}

// pose reads the problem, and counts the jobs that no plan has seen before.
func (q *planner) pose(v *policy.View) (fresh int) {
	pr := &q.prob
	pr.needs, pr.idle, pr.balance = q.needs, q.p.machine.idle, q.p.balance
	pr.tasks, q.ids = pr.tasks[:0], q.ids[:0]
	for queue := v.Queue(); q.p.depth == 0 || len(q.ids) < q.p.depth; {
		id, _, ok := queue.Next()
		if !ok {
			break
		}
		kind := q.p.kindOf(v, id)
		if kind < 0 || q.p.job(id).running {
			continue
		}
		t := taskOf(kind, &v.Shape(id).Request)
		t.run = max(1, estimate(v, id))
		t.first = q.p.age > 0 && v.Now()-v.Job(id).Submit >= q.p.age
		if _, seen := q.known[id]; !seen {
			fresh++
		}
		pr.tasks = append(pr.tasks, t)
		q.ids = append(q.ids, id)
	}
	if len(pr.tasks) == 0 {
		return 0
	}
	q.search.b.segs = q.p.machine.now(v, q.search.b.segs)
	pr.now.reset(v.Now(), q.search.b.segs)
	for ends := v.Ends(); ; {
		id, _, ok := ends.Next()
		if !ok {
			return fresh
		}
		q.search.scratch = q.p.machine.held(v.Cluster(), v.Held(id), q.search.scratch)
		pr.now.release(v.ExpectedEnd(id), q.search.scratch)
	}
}

// price works out what the waiting work makes of a node's time.
func (q *planner) price() {
	m := &q.p.machine
	q.units = q.units[:0]
	q.unit = q.unit[:0]
	for i := range q.needs {
		n := &q.needs[i]
		q.unit = append(q.unit, int32(len(q.units)))
		u := prices.Kind{Cores: n.cores, GPUs: n.gpus}
		q.units = append(q.units, u)
		if n.remote {
			q.units = append(q.units, prices.Kind{GPUs: 1})
		}
	}
	total := time.Duration(0)
	for i := range q.prob.tasks {
		t := &q.prob.tasks[i]
		u := q.unit[t.kind]
		ms := max(1, int64(t.run/time.Millisecond))
		q.units[u].Demand += ms * t.unitsOf(&q.needs[t.kind])
		if t.devices > 0 {
			q.units[u+1].Demand += ms * int64(t.devices)
		}
		total += t.run / time.Duration(len(q.prob.tasks))
	}
	q.search.meanRun = max(1, total)
	q.table = prices.Solve(q.units, m.nodes)
	// A little is lost on every node that is used, so that even what is free of
	// charge is kept together.
	tilted := make([]int64, len(q.units))
	for i, u := range q.units {
		tilted[i] = q.table.Kind[i] + prices.Unit/32*int64(u.Cores)/int64(m.cores)
		if m.gpus > 0 {
			tilted[i] += prices.Unit / 32 * int64(u.GPUs) / int64(m.gpus)
		}
	}
	q.prob.worth = prices.With(q.units, m.nodes, tilted)
	for i := range q.prob.tasks {
		t := &q.prob.tasks[i]
		t.area = q.worthOf(t) / 256 * max(1, int64(t.run/time.Millisecond))
	}
}

func (t *task) unitsOf(n *need) int64 {
	if n.spread {
		return int64(t.width / n.cores)
	}
	return int64(t.width)
}

// worthOf is the price of what a task holds.
func (q *planner) worthOf(t *task) int64 {
	u := q.unit[t.kind]
	w := q.prob.worth.Kind[u] * t.unitsOf(&q.needs[t.kind])
	if t.devices > 0 {
		w += q.prob.worth.Kind[u+1] * int64(t.devices)
	}
	return w
}

// free says that a kind fits beside the others for nothing, or nearly.
func (q *planner) free(t *task) bool {
	u := q.unit[t.kind]
	return q.table.Kind[u] < prices.Unit/64 && (t.devices == 0 || q.table.Kind[u+1] < prices.Unit/64)
}

// solve looks for a plan; fresh of its tasks are new.
func (q *planner) solve(fresh int) {
	s := &q.search
	var priced, beside []int32
	for i := range q.prob.tasks {
		if q.free(&q.prob.tasks[i]) {
			beside = append(beside, int32(i))
		} else {
			priced = append(priced, int32(i))
		}
	}
	cost := func(i int32) float64 {
		t := &q.prob.tasks[i]
		return float64(t.area) * float64(t.run)
	}
	slices.SortStableFunc(beside, func(a, b int32) int { return cmp.Compare(cost(a), cost(b)) })
	slices.SortStableFunc(priced, func(a, b int32) int { return cmp.Compare(cost(b), cost(a)) })

	q.plans++
	rng := rand.New(rand.NewPCG(q.p.seed, q.plans))
	n := max(1, len(priced))
	trials := q.p.effort * fresh / len(q.prob.tasks)
	trials = min(trials, trials*40_000/(n*n))

	s.forwards(s.mirrored(priced, beside), &q.best)
	order := priced
	if trials > 0 {
		order = s.improve(priced, trials, rng)
		s.forwards(s.mirrored(order, beside), &q.try)
		q.take()
	}
	clear(q.known)
	for place, t := range order {
		q.known[q.ids[t]] = place
	}
	for _, t := range beside {
		q.known[q.ids[t]] = 0
	}
}

// take keeps the latest try if it is better.
func (q *planner) take() bool {
	if q.try.cost >= q.best.cost {
		return false
	}
	q.best, q.try = q.try, q.best
	return true
}
