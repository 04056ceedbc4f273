// Package mosaic is a policy that plans ahead: it fits blocks of neighbouring
// nodes together in time so that no scarce node idles, short and small jobs
// start early, and every job is in one block.
//
// It rests on three ideas. Prices, from a small linear program over the ways to
// fill a node, separate the jobs that make the schedule long from those that
// fit beside them at no cost. The priced jobs are planned backwards, from the
// end of the schedule towards now, largest first. Read forwards that is
// smallest first, but without the ragged end that smallest first otherwise has.
// The jobs that cost nothing are put into the gaps, in the order of what their
// waiting costs.
//
// The exact rules are in docs/mosaic.md. The package knows neither the
// simulator nor a clock; its search is seeded and counts trials, not time.
package mosaic

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
)

// Entry makes the policy known.
var Entry = policy.Entry{
	Name:    "mosaic",
	Summary: "plans ahead: one block of nodes a job, short jobs early, no priced node idle",
	Options: []model.Option{
		{Name: "balance", Default: "50", Summary: "how much the end of all counts against waiting, in per cent"},
		{Name: "patience", Default: never, Summary: "how much later a job may start for being in one block, in per cent of its estimate; never: it always is"},
		{Name: "effort", Default: "500", Summary: "how many plans are tried when all jobs are new; 0 takes the first"},
		{Name: "depth", Default: "2000", Summary: "how many jobs are planned, in order of submission; 0 for all"},
		{Name: "age", Default: "1d", Summary: "a job that has waited so long is planned before all younger ones; 0 for never"},
		{Name: "seed", Default: "1", Summary: "of the search"},
	},
	New: newMosaic,
}

// never is the patience of jobs that wait for one block however long that takes.
const never = "never"

func newMosaic(s model.Settings) (policy.Policy, error) {
	p := &mosaic{patience: -1}
	var wrong error
	number := func(name string, most int64) int64 {
		n, err := strconv.ParseInt(s[name], 10, 64)
		if err != nil || n < 0 || n > most {
			wrong = fmt.Errorf("%s must be a whole number from 0 to %d, not %q", name, most, s[name])
		}
		return n
	}
	p.balance = number("balance", 100)
	if s["patience"] != never {
		p.patience = number("patience", 100_000) // times the longest run it still fits
	}
	p.effort = int(number("effort", 1_000_000))
	p.depth = int(number("depth", 1_000_000))
	p.seed = uint64(number("seed", 1<<62))
	if wrong != nil {
		return nil, wrong
	}
	age, err := units.ParseDuration(s["age"])
	if err != nil {
		return nil, fmt.Errorf("age: %w", err)
	}
	p.age = age
	return p, nil
}

type mosaic struct {
	balance       int64
	patience      int64
	effort, depth int
	age           time.Duration
	seed          uint64

	generation uint64 // the view's generation when machine was read
	machine    machine
	shapes     []int32 // by shape: its kind plus 1; 0 if it was not examined yet, -1 if it is not planned
	jobs       map[policy.JobID]*jobPlan
	planner    planner

	// due are the planned jobs that have not started, in the order of their
	// planned starts.
	due    []policy.JobID
	stale  bool // the plan must be made again
	beyond bool // more jobs wait than were planned (depth)
	// nextOld is when the next planned job will have waited longer than age.
	nextOld time.Duration
	// elsewhere are the waiting jobs that are not planned, because they ask for
	// something that the planner does not model. They are in the order of the
	// queue.
	elsewhere []policy.JobID
	// guarded is a job of elsewhere that has waited too long, and guard the
	// time at which it could start; 0 if there is none. Nothing younger that
	// would end after guard may start.
	guard   time.Duration
	guarded policy.JobID
	begun   []policy.JobID // the jobs that the latest step started
}

// jobPlan is what the policy plans and knows for a job.
type jobPlan struct {
	planned bool
	aside   bool // it could not start as planned, and is not planned again
	seen    bool // it was in an earlier plan, where it had this rank
	rank    int
	start   time.Duration
	pieces  []piece
	running bool
	end     time.Duration // of a running job, as expected
}

var (
	_ policy.Policy    = (*mosaic)(nil)
	_ policy.Explainer = (*mosaic)(nil)
)

func (p *mosaic) Traits() policy.Traits { return policy.Traits{Ends: true} }

func (p *mosaic) job(id policy.JobID) *jobPlan {
	j := p.jobs[id]
	if j == nil {
		if p.jobs == nil {
			p.jobs = map[policy.JobID]*jobPlan{}
		}
		j = new(jobPlan)
		p.jobs[id] = j
	}
	return j
}

// Step follows the plan while it is true: it starts the jobs whose planned time
// has come. It makes a new plan when something happened that the plan did not
// foresee, when a due job could not start, or when nothing runs although jobs
// wait.
func (p *mosaic) Step(v *policy.View, plan *policy.Plan) {
	p.begun = p.begun[:0]
	if p.generation != v.Generation() {
		p.readAgain(v)
	} else {
		p.notice(v)
	}
	p.protect(v, plan)
	if p.stale || !p.startDue(v, plan, false) || p.stuck(v) {
		p.replan(v)
		p.startDue(v, plan, true)
	}
	p.startElsewhere(v, plan)
}

// stuck says that nothing runs and nothing was started. Then no running job's
// end will bring the planned starts about, so the plan must be made again.
func (p *mosaic) stuck(v *policy.View) bool {
	ends := v.Ends()
	_, _, some := ends.Next()
	return !some && (p.beyond || len(p.due) > 0)
}

// readAgain reads the cluster anew after it has changed, and drops the plan.
func (p *mosaic) readAgain(v *policy.View) {
	p.generation = v.Generation()
	p.machine = machine{}
	p.machine.read(v.Cluster())
	p.shapes, p.jobs = nil, nil
	p.planner = planner{plans: p.planner.plans}
	p.planner.search.problem = new(problem)
	p.due, p.elsewhere = nil, nil
	p.stale, p.beyond, p.nextOld = false, false, policy.Never
	for _, id := range v.Running() {
		j := p.job(id)
		j.running, j.end = true, v.ExpectedEnd(id)
	}
	for queue := v.Queue(); ; {
		id, _, ok := queue.Next()
		if !ok {
			return
		}
		if p.isElsewhere(v, id) {
			p.elsewhere = append(p.elsewhere, id)
		} else {
			p.stale = true
		}
	}
}

// notice compares what happened with what the plan expected, and marks the plan
// stale if they differ.
func (p *mosaic) notice(v *policy.View) {
	for _, id := range v.Left() {
		j := p.job(id)
		if !j.running || j.end != v.Now() {
			p.stale = true
		}
		p.due, p.elsewhere = without(p.due, id), without(p.elsewhere, id)
		j.planned, j.running = false, false
		if !slices.Contains(v.Arrived(), id) {
			delete(p.jobs, id)
		}
	}
	for _, id := range v.Arrived() {
		if slices.Contains(v.Refused(), id) {
			p.job(id).aside = true
		}
		if p.isElsewhere(v, id) {
			p.elsewhere = append(p.elsewhere, id)
		} else {
			p.stale = true
		}
	}
	v.Sort(p.elsewhere) // a refused job comes back at the end of the list
	if v.Reordered() || v.Now() >= p.nextOld || p.beyond && len(p.due) <= p.depth/2 {
		p.stale = true
	}
}

func without(list []policy.JobID, id policy.JobID) []policy.JobID {
	if i := slices.Index(list, id); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// old says that a job has waited too long.
func (p *mosaic) old(v *policy.View, id policy.JobID) bool {
	return p.age > 0 && v.Now()-v.Job(id).Submit >= p.age
}

// comesFirst says that a job is planned before others at any cost: it has
// waited too long, or its rank is above the lowest in the queue.
func (p *mosaic) comesFirst(v *policy.View, id policy.JobID) bool {
	return p.old(v, id) || v.Rank(id) > v.LowestRank()
}

// isElsewhere says that a job is not planned: because of what it asks for, or
// because it could not start as planned. Every waiting job is either in
// p.elsewhere or part of the next plan.
func (p *mosaic) isElsewhere(v *policy.View, id policy.JobID) bool {
	return p.kindOf(v, id) < 0 || p.job(id).aside
}

// startDue starts the jobs whose time has come, where they were planned. It
// returns false if one of them could not start: the plan is no longer true.
//
// A fresh plan was made from what is free in the view, so if a place is not
// free there, the planner has misread this job. Then startDue puts the job
// aside, to start like the jobs that are not planned; other jobs of its shape
// stay planned.
func (p *mosaic) startDue(v *policy.View, plan *policy.Plan, fresh bool) bool {
	keep, held := 0, true
	for k, id := range p.due {
		j := p.job(id)
		if j.start > v.Now() {
			keep += copy(p.due[keep:], p.due[k:])
			break
		}
		if p.mustWait(v, id) {
			p.stale = true
			p.due[keep] = id
			keep++
			continue
		}
		a := p.allocation(v, &v.Shape(id).Request, j.pieces)
		if a != nil && plan.Start(id, a, policy.Reason{Code: policy.Fitted}) {
			p.start(v, id)
			continue
		}
		if !fresh {
			keep += copy(p.due[keep:], p.due[k:])
			held = false
			break
		}
		j.planned, j.aside = false, true
		p.elsewhere = append(p.elsewhere, id)
		v.Sort(p.elsewhere)
	}
	p.due = p.due[:keep]
	return held
}

func (p *mosaic) start(v *policy.View, id policy.JobID) {
	j := p.job(id)
	j.planned, j.running, j.pieces = false, true, nil
	j.end = model.After(v.Now(), max(1, estimate(v, id))) // the end that the plan assumes
	p.begun = append(p.begun, id)
}

func estimate(v *policy.View, id policy.JobID) time.Duration { return v.Job(id).As(0).Estimate() }

// protect starts unplanned jobs that have waited too long. The first that does
// not fit becomes the guarded job: nothing younger may delay it.
func (p *mosaic) protect(v *policy.View, plan *policy.Plan) {
	p.guard = 0
	for i := 0; i < len(p.elsewhere); {
		id := p.elsewhere[i]
		if !p.comesFirst(v, id) {
			break // the later ones are younger
		}
		if p.freeUntil(v, id) < policy.Never {
			i++ // an older planned job comes before it
			continue
		}
		if a := v.Place(v.Shape(id), policy.Sharing); a != nil && plan.Start(id, a, policy.Reason{Code: policy.InTurn}) {
			p.elsewhere = slices.Delete(p.elsewhere, i, i+1)
			p.start(v, id)
			continue
		}
		if at := v.ReserveEarliest(v.Shape(id), policy.Never); at != policy.Never {
			p.guard, p.guarded = at, id
			return
		}
		i++
	}
}

// mustWait says that a job would delay the guarded one and has no right to:
// only jobs that come first and are before the guarded job in the queue may.
func (p *mosaic) mustWait(v *policy.View, id policy.JobID) bool {
	return p.guard > 0 && model.After(v.Now(), estimate(v, id)) > p.guard && !(!v.Precedes(p.guarded, id) && p.comesFirst(v, id))
}

// freeUntil is the earliest planned start among the jobs that come first and
// are before an unplanned job in the queue. The unplanned job must not run
// beyond it.
func (p *mosaic) freeUntil(v *policy.View, id policy.JobID) time.Duration {
	at := policy.Never
	for _, other := range p.due {
		if v.Precedes(other, id) && p.comesFirst(v, other) {
			at = min(at, p.job(other).start)
		}
	}
	return at
}

// startElsewhere starts the unplanned jobs wherever they fit.
func (p *mosaic) startElsewhere(v *policy.View, plan *policy.Plan) {
	keep := 0
	for _, id := range p.elsewhere {
		sh := v.Shape(id)
		if !p.mustWait(v, id) && v.MayFit(sh, policy.Sharing) && model.After(v.Now(), estimate(v, id)) <= p.freeUntil(v, id) {
			if a := v.Place(sh, policy.Sharing); a != nil && plan.Start(id, a, policy.Reason{Code: policy.Overtook}) {
				p.start(v, id)
				continue
			}
		}
		p.elsewhere[keep] = id
		keep++
	}
	p.elsewhere = p.elsewhere[:keep]
}

// allocation turns pieces into an allocation; nil if they are not free in the
// view. Pieces with cores become parts. Devices are chosen only here: the plan
// counts them without naming them.
func (p *mosaic) allocation(v *policy.View, r *model.Request, pieces []piece) *model.Allocation {
	a := &p.machine.alloc
	a.Parts, a.Grants = a.Parts[:0], a.Grants[:0]
	for i := range pieces {
		if q := &pieces[i]; q.cores > 0 {
			for n := q.from; n < q.to; n++ {
				part := model.Part{Node: n, Cores: q.cores, Memory: q.memory, Exclusive: r.Exclusive}
				gpus := q.gpus
				if r.Exclusive {
					gpus = int32(r.GPUs)
				}
				if part.GPUs = lowest(v.FreeGPUs(n), gpus); bits.OnesCount64(part.GPUs) < int(gpus) {
					return nil
				}
				a.Parts = append(a.Parts, part)
			}
		}
	}
	slices.SortFunc(a.Parts, func(x, y model.Part) int { return cmp.Compare(x.Node, y.Node) })
	if r.Remote != nil && !p.grantDevices(v, a, pieces) {
		return nil
	}
	if !v.Holds(a) {
		return nil
	}
	return a
}

// grantDevices adds the remote devices, the pieces without cores: those on the
// job's own nodes become local, the others serve the job's nodes in rotation.
func (p *mosaic) grantDevices(v *policy.View, a *model.Allocation, pieces []piece) bool {
	for i := range pieces {
		q := &pieces[i]
		if q.cores > 0 {
			continue
		}
		for n := q.from; n < q.to; n++ {
			devices := lowest(v.FreeGPUs(n), q.gpus)
			if bits.OnesCount64(devices) < int(q.gpus) || v.Closed(n) {
				return false
			}
			if own := partOn(a.Parts, n); own >= 0 {
				a.Parts[own].GPUs |= devices
				continue
			}
			for ; devices != 0; devices &= devices - 1 {
				a.Grants = append(a.Grants, model.Grant{
					For: int32(len(a.Grants) % len(a.Parts)), Node: n, Device: int32(bits.TrailingZeros64(devices)),
				})
			}
		}
	}
	return true
}

// partOn is the part on a node, or -1; parts are in node order.
func partOn(parts []model.Part, node int32) int {
	i, found := slices.BinarySearchFunc(parts, node, func(p model.Part, n int32) int { return cmp.Compare(p.Node, n) })
	if !found {
		return -1
	}
	return i
}

// lowest is the count lowest devices of a set, or all if there are fewer.
func lowest(free uint64, count int32) uint64 {
	rest := free
	for range count {
		rest &= rest - 1
	}
	return free &^ rest
}

func (p *mosaic) Why(v *policy.View, id policy.JobID) string {
	sh := v.Shape(id)
	j := p.job(id)
	switch {
	case j.planned:
		from, to := block(j.pieces)
		return fmt.Sprintf("needs %s; planned for %s on %s", sh, v.Clock(j.start), p.names(v, from, to))
	case p.mustWait(v, id):
		return "a job that has waited too long comes first, and this one would delay it"
	case !p.isElsewhere(v, id):
		return fmt.Sprintf("needs %s; the plan does not reach as far (depth)", sh)
	}
	return v.Shortage(sh, policy.Sharing)
}
