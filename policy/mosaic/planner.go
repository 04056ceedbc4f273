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

// planner turns the queue into a problem.
type planner struct {
	kinds  map[need]int32
	needs  []need
	search searcher
	ids    []policy.JobID // by task
	ranks  []int          // by task: its place in the order of the last plan, or -1
	plans  uint64
	held   []piece // scratch

	// What the last plan rests on. A kind of jobs is one kind of work, or two: the
	// devices of jobs that may have them anywhere are work of their own.
	works []prices.Kind
	work  []int32 // by kind
	table *prices.Table
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
		// New jobs are worth looking for a better plan, in proportion. A longer queue
		// costs more for each.
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

// noPlace notes a job that has no place even when all that runs has ended. On a
// cluster that is whole something that is not modelled is in its way, and will end.
// Where nodes or devices are missing the planner may have misread what is left: the
// job starts like those that are not planned.
func (p *mosaic) noPlace(v *policy.View, id policy.JobID) {
	if !v.Impaired() {
		p.stale = true
		return
	}
	p.job(id).aside = true
	p.elsewhere = append(p.elsewhere, id)
	v.Sort(p.elsewhere)
}

// fullQueue is a queue for which effort plans are tried.
const fullQueue = 800

// pose reads the problem but for what runs, and counts the jobs that no plan has
// seen before.
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

// foresee reads what will be free when running jobs have ended.
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

// longest is the longest run that is planned for: of longer ones a plan would
// only say that they last.
const longest = 30 * 24 * time.Hour

// longestPlan bounds the length of a plan in which all jobs run one after the
// other, so that every instant of it fits into a Duration.
const longestPlan = 100 * 365 * 24 * time.Hour

// longestOf is the longest run that is planned for among so many jobs.
func longestOf(jobs int) time.Duration { return min(longest, longestPlan/time.Duration(max(1, jobs))) }

// units is how often a node's part of a task is done.
func (t *task) units(n *need) int64 {
	if n.spread {
		return int64(t.width / n.cores)
	}
	return int64(t.width)
}

// price works out what the waiting work makes of a node's time.
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
	// Even what is free of charge takes something, so that it is kept together
	// and small jobs are told from large ones.
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

// cheap is a price that is as good as none.
const cheap = prices.Unit / 64

// tilt is the least that a whole node is worth to any work.
const tilt = prices.Unit / 32
