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

// planner turns the queue into a problem for the searcher.
type planner struct {
	kinds  map[need]int32
	needs  []need
	search searcher
	ids    []policy.JobID // by task
	ranks  []int          // by task: its place in the order of the last plan, or -1
	plans  uint64
	held   []piece // scratch

	// What the last plan is based on. A kind of jobs is one kind of work or,
	// for remote jobs, two: their devices, which may be on any node, are work
	// of their own.
	works []prices.Kind
	work  []int32 // by kind: the index of its first work
	table *prices.Table
}

// classify is the kind of a request, or -1 if it is not planned: because the
// planner does not model it, or because it does not fit into one block of the
// idle cluster.
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
	if q.kinds == nil {
		q.kinds = map[need]int32{}
	}
	k := int32(len(q.needs))
	q.kinds[n] = k
	q.needs = append(q.needs, n)
	return k
}

// replan plans the jobs that wait.
func (p *mosaic) replan(v *policy.View) {
	q := &p.planner
	fresh := p.pose(v)
	for _, id := range p.due {
		p.job(id).planned = false
	}
	p.due, p.stale, p.nextOld = p.due[:0], false, policy.Never
	n := len(q.ids)
	if n == 0 {
		return
	}
	q.price(&p.machine)
	q.plans++
	if n > 1 || !q.search.alone(q.ranks, v.Now()) {
		p.foresee(v)
		// The trials are in proportion to the share of new jobs. A plan for a
		// long queue costs more, in proportion to about the square of its
		// length, so there are fewer trials then.
		trials := p.effort * fresh / n
		if n > fullQueue {
			trials = trials * fullQueue / n * fullQueue / n
		}
		q.search.solve(q.ranks, trials, rand.New(rand.NewPCG(p.seed, q.plans)))
	}
	for t, id := range q.ids {
		start := q.search.best.start[t]
		if start < 0 {
			p.noPlace(v, id)
			continue
		}
		j := p.job(id)
		j.planned, j.seen, j.rank, j.start = true, true, q.ranks[t], start
		j.pieces = append(j.pieces[:0], q.search.best.pieces[t]...)
		p.due = append(p.due, id)
		if p.age > 0 && !q.search.tasks[t].first {
			p.nextOld = min(p.nextOld, model.After(v.Job(id).Submit, p.age))
		}
	}
	slices.SortFunc(p.due, func(a, b policy.JobID) int {
		return cmp.Or(cmp.Compare(p.jobs[a].start, p.jobs[b].start), cmp.Compare(a, b))
	})
}

// noPlace handles a job that has no place even when all running jobs have
// ended. If the cluster is complete, something that is not modelled is in its
// way and will end: plan again later. If nodes or devices are missing, the
// planner may have misread what is left: the job starts like the unplanned
// ones.
func (p *mosaic) noPlace(v *policy.View, id policy.JobID) {
	if !v.Impaired() {
		p.stale = true
		return
	}
	p.job(id).aside = true
	p.elsewhere = append(p.elsewhere, id)
	v.Sort(p.elsewhere)
}

// fullQueue is the longest queue for which all of effort is spent.
const fullQueue = 800

// pose reads the tasks of the problem from the queue, and returns the number of
// jobs that no plan has contained yet. foresee adds the running jobs.
func (p *mosaic) pose(v *policy.View) (fresh int) {
	q := &p.planner
	pr := q.search.problem
	pr.needs, pr.balance, pr.patience = q.needs, p.balance, p.patience
	pr.tasks, q.ids, q.ranks = pr.tasks[:0], q.ids[:0], q.ranks[:0]
	p.beyond = false
	for queue := v.Queue(); ; {
		id, _, ok := queue.Next()
		if !ok {
			break
		}
		kind, j := p.kindOf(v, id), p.job(id)
		if p.isElsewhere(v, id) || j.running {
			continue
		}
		if p.depth > 0 && len(q.ids) == p.depth {
			p.beyond = true
			break
		}
		t := taskOf(kind, &v.Shape(id).Request)
		t.run = max(1, estimate(v, id))
		t.first = p.comesFirst(v, id)
		t.strict = v.Shape(id).Request.Contiguous
		pr.tasks = append(pr.tasks, t)
		q.ids = append(q.ids, id)
		if j.seen {
			q.ranks = append(q.ranks, j.rank)
		} else {
			q.ranks = append(q.ranks, -1)
			fresh++
		}
	}
	for i := range pr.tasks {
		pr.tasks[i].run = min(pr.tasks[i].run, longestOf(len(pr.tasks)))
	}
	if len(q.ids) > 0 {
		q.search.b.segs = p.machine.now(v, q.search.b.segs)
	}
	return fresh
}

// foresee reads what will be free when running jobs end into the problem's
// timeline.
func (p *mosaic) foresee(v *policy.View) {
	q := &p.planner
	pr := q.search.problem
	pr.now.reset(v.Now(), q.search.b.segs)
	for ends := v.Ends(); ; {
		id, _, ok := ends.Next()
		if !ok {
			return
		}
		q.held = held(v, v.Held(id), q.held)
		pr.now.release(min(v.ExpectedEnd(id), model.After(v.Now(), longest)), q.held)
	}
}

// longest is the longest run that is planned for. Longer runs count as this
// long.
const longest = 30 * 24 * time.Hour

// longestPlan bounds a plan in which all jobs run one after the other, so that
// every instant in it fits into a Duration.
const longestPlan = 100 * 365 * 24 * time.Hour

// longestOf is the longest run that is planned for if there are this many jobs.
func longestOf(jobs int) time.Duration { return min(longest, longestPlan/time.Duration(max(1, jobs))) }

// units is how many nodes' parts a task consists of.
func (t *task) units(n *need) int64 {
	if n.spread {
		return int64(t.width / n.cores)
	}
	return int64(t.width)
}

// price computes what a node's time is worth to the waiting work, and from that
// the cost of each task and whether it is free.
func (q *planner) price(m *machine) {
	q.works, q.work = q.works[:0], q.work[:0]
	for i := range q.needs {
		n := &q.needs[i]
		q.work = append(q.work, int32(len(q.works)))
		q.works = append(q.works, prices.Kind{Cores: n.cores, GPUs: n.gpus})
		if n.remote {
			q.works = append(q.works, prices.Kind{GPUs: 1})
		}
	}
	pr := q.search.problem
	pr.meanRun = 0
	for i := range pr.tasks {
		t := &pr.tasks[i]
		w, length := q.work[t.kind], max(1, int64(t.run/time.Millisecond))
		q.works[w].Demand += length * t.units(&q.needs[t.kind])
		if t.devices > 0 {
			q.works[w+1].Demand += length * int64(t.devices)
		}
		pr.meanRun += t.run / time.Duration(len(pr.tasks))
	}
	pr.meanRun = max(1, pr.meanRun)
	q.table = prices.Solve(q.works, m.nodes)
	// A small price is added to all work, in proportion to its cores and
	// devices. So placement keeps free work together, too, and free tasks have
	// an order by size.
	tilted := make([]int64, len(q.works))
	for i, w := range q.works {
		tilted[i] = q.table.Kind[i] + tilt*int64(w.Cores)/int64(m.cores)
		if m.gpus > 0 {
			tilted[i] += tilt * int64(w.GPUs) / int64(m.gpus)
		}
	}
	pr.worth = prices.With(q.works, m.nodes, tilted)
	for i := range pr.tasks {
		t := &pr.tasks[i]
		w := q.work[t.kind]
		each, total := q.table.Kind[w], pr.worth.Kind[w]*t.units(&q.needs[t.kind])
		if t.devices > 0 {
			each = max(each, q.table.Kind[w+1])
			total += pr.worth.Kind[w+1] * int64(t.devices)
		}
		t.free = each < cheap
		run := t.run.Seconds()
		t.cost = float64(float64(total)*run) * run
	}
}

// cheap is the price below which work counts as free.
const cheap = prices.Unit / 64

// tilt is the price that is added for a whole node's cores, and for its
// devices.
const tilt = prices.Unit / 32
