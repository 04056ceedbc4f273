// Package mosaic is a policy that plans: it fits blocks of neighbouring nodes
// together in time so that no node that is worth something idles, short and
// small jobs come early, and every job sits in one block.
//
// Three ideas make it work. Prices, from a small linear program over node
// configurations, tell the jobs that make the schedule long from those that fit
// beside them for nothing. The priced jobs are planned backwards, from the end of all
// towards now, largest first: read the right way that is smallest first, without the
// ragged end that smallest first has otherwise. And what fits beside is put into
// the gaps, in order of what waiting costs.
//
// The exact rules are in docs/mosaic.md. The package knows neither the simulator nor
// a clock; its search is seeded and counts trials, not time.
package mosaic

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"time"

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
	age, err := model.ParseDuration(s["age"])
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

	generation uint64 // of the cluster that the machine is
	machine    machine
	shapes     []int32 // by shape: its kind plus 1; 0 is not known yet, -1 not planned
	jobs       map[policy.JobID]*jobPlan
	planner    planner

	// due are the planned jobs that have not started, in order of their start.
	due    []policy.JobID
	stale  bool // the plan must be made again
	beyond bool // more jobs wait than were planned
	// nextOld is when a planned job will have waited too long.
	nextOld time.Duration
	// elsewhere are the waiting jobs that are not planned, in the order of the queue:
	// they ask for what the planner does not model.
	elsewhere []policy.JobID
	// guard is when guarded could start, one of them that has waited too long; 0 if
	// there is none. Nothing younger may start that ends later.
	guard   time.Duration
	guarded policy.JobID
	begun   []policy.JobID // in the latest step
}

// jobPlan is what the policy has in mind for a job.
type jobPlan struct {
	planned bool
	aside   bool // it could not start as planned, and is not planned again
	seen    bool // in some plan, where it had this rank
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

// stuck says that nothing runs and nothing has started: then no plan that has a
// job start later can come true.
func (p *mosaic) stuck(v *policy.View) bool {
	ends := v.Ends()
	_, _, some := ends.Next()
	return !some && (p.beyond || len(p.due) > 0)
}

// readAgain follows a cluster that has changed: what was planned is void.
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

// notice compares what happened with what was expected.
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
	v.Sort(p.elsewhere) // a start that was refused comes back
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

// comesFirst says that a job is planned before others whatever that costs: it has
// waited too long, or it has a larger rank than the last of the queue.
func (p *mosaic) comesFirst(v *policy.View, id policy.JobID) bool {
	return p.old(v, id) || v.Rank(id) > v.LowestRank()
}

// isElsewhere says that a job is not planned: because of what it asks for, or
// because its own plan did not come true. Every waiting job is either in the list of
// those, or is read by the next plan.
func (p *mosaic) isElsewhere(v *policy.View, id policy.JobID) bool {
	return p.kindOf(v, id) < 0 || p.job(id).aside
}

// startDue starts the jobs whose time has come, where they were planned. False
// means that one could not be: the plan is not true any more. A fresh plan was made
// of what the view has free now, so there a place that is not free means that the
// planner has misread this job: it is put aside, and starts like those that
// are not planned. Others of its shape are none the worse for it.
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
	j.end = model.After(v.Now(), max(1, estimate(v, id))) // as it was planned
	p.begun = append(p.begun, id)
}

func estimate(v *policy.View, id policy.JobID) time.Duration { return v.Job(id).As(0).Estimate() }

// protect starts the jobs that are not planned and have waited too long, and
// finds the first of them that does not fit: nothing younger may delay it.
func (p *mosaic) protect(v *policy.View, plan *policy.Plan) {
	p.guard = 0
	for i := 0; i < len(p.elsewhere); {
		id := p.elsewhere[i]
		if !p.comesFirst(v, id) {
			break // those behind it are younger
		}
		if p.freeUntil(v, id) < policy.Never {
			i++ // one that is planned is older still
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

// mustWait says that a job would delay the guarded one, and is not older.
func (p *mosaic) mustWait(v *policy.View, id policy.JobID) bool {
	return p.guard > 0 && model.After(v.Now(), estimate(v, id)) > p.guard && !(!v.Precedes(p.guarded, id) && p.comesFirst(v, id))
}

// freeUntil is when the first of the planned jobs starts that have waited too
// long and are older than a job that is not planned.
func (p *mosaic) freeUntil(v *policy.View, id policy.JobID) time.Duration {
	at := policy.Never
	for _, other := range p.due {
		if v.Precedes(other, id) && p.comesFirst(v, other) {
			at = min(at, p.job(other).start)
		}
	}
	return at
}

// startElsewhere starts the jobs that are not planned wherever they fit.
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

// allocation makes pieces what the applier understands; nil if they are not free.
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

// grantDevices adds the remote devices: those of the job's own nodes are local,
// the others serve its nodes in turn.
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

// lowest are the count lowest devices of a set, or all.
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
