// Package easy is EASY backfilling: the first job that does not fit gets a
// reservation, and jobs behind it may start now if they do not delay it.
package easy

import (
	"fmt"
	"time"

	"muster/model"
	"muster/policy"
)

// Entry makes the policy known.
var Entry = policy.Entry{
	Name:    "easy",
	Summary: "EASY backfilling: jobs overtake if they do not delay the first job that waits",
	Options: policy.BackfillOptions("how many jobs behind the first are tried"),
	New: func(s model.Settings) (policy.Policy, error) {
		depth, window, err := policy.Backfill(s)
		return &easy{depth: depth, window: window, head: -1}, err
	},
}

type easy struct {
	depth  int
	window time.Duration

	// head waits with a reservation for at.
	head policy.JobID
	at   time.Duration
	// The last step tried the jobs up to tried; untried more it would have
	// tried if there had been any, or if none had left the queue.
	tried   policy.Place
	untried int
	again   bool // the next step must try all

	steps   uint64
	misfits []misfit // by class
}

var _ policy.Policy = (*easy)(nil)

func (p *easy) Traits() policy.Traits {
	return policy.Traits{Order: policy.ByPriority, Ends: true}
}

func (p *easy) Step(v *policy.View, plan *policy.Plan) {
	queue := v.Queue()
	head, ok := p.startInTurn(v, plan, &queue)
	if !ok {
		p.head = -1
		return
	}
	untried := p.depth
	if p.onlyBehind(v, head) {
		untried = p.untried
		queue.Seek(p.tried)
	}
	p.head, p.at, p.again = head, -1, false
	p.steps++
	started := 0
	for {
		id, ok := queue.NextThatMayFit(v, policy.Sharing, &untried)
		if !ok {
			break
		}
		sh := v.Shape(id)
		if p.at < 0 {
			p.at = v.ReserveEarliest(v.Shape(head), p.window)
		}
		if p.backfill(v, plan, id, sh) {
			started++
		} else if sh.Request.Remote != nil {
			p.again = true // it may fit once others have started: try all again
		}
	}
	p.tried, p.untried = queue.Place(), min(untried, p.depth-started)+started
}

// startInTurn starts jobs from the front while they fit, and returns the
// first that does not.
func (p *easy) startInTurn(v *policy.View, plan *policy.Plan, queue *policy.Cursor) (head policy.JobID, waits bool) {
	for {
		id, _, ok := queue.Next()
		if !ok {
			return -1, false
		}
		sh := v.Shape(id)
		if !v.MayFit(sh, policy.Sharing) {
			return id, true
		}
		a := v.Place(sh, policy.Sharing)
		if a == nil || !plan.Start(id, a, policy.Reason{Code: policy.InTurn}) {
			return id, true
		}
	}
}

// onlyBehind says whether the jobs that the last step tried need not be tried
// again: the same job waits at the head, nothing was freed, no job was
// cancelled or outlived its estimate, and all new jobs are behind those tried.
func (p *easy) onlyBehind(v *policy.View, head policy.JobID) bool {
	if head != p.head || p.again || v.Freed() || v.Reordered() || len(v.Left()) > 0 {
		return false
	}
	ends := v.Ends()
	if _, end, ok := ends.Next(); ok && time.Duration(end) <= v.Now() {
		return false
	}
	for _, id := range v.Arrived() {
		if v.StandsBefore(id, p.tried) {
			return false
		}
	}
	return true
}

func (p *easy) backfill(v *policy.View, plan *policy.Plan, id policy.JobID, sh *policy.Shape) bool {
	why := policy.Reason{Code: policy.EndsBefore, Job: p.head, At: p.at}
	if p.at == policy.Never {
		why = policy.Reason{Code: policy.Overtook}
	}
	if model.After(v.Now(), v.Job(id).Estimate()) <= p.at {
		a := v.Place(sh, policy.Sharing)
		return a != nil && plan.Start(id, a, why)
	}
	if p.hopeless(sh) {
		return false
	}
	a := v.PlaceBeside(sh, policy.Sharing)
	if a == nil {
		p.failed(sh)
		return false
	}
	why.Code = policy.Beside
	if !plan.Start(id, a, why) {
		return false
	}
	v.Charge(a)
	return true
}

// misfit is the smallest number of nodes that a class of shapes did not get
// beside the reservation in one step: more it cannot get either.
type misfit struct {
	step  uint64
	nodes int
}

func (p *easy) hopeless(sh *policy.Shape) bool {
	c := sh.Class()
	return c < len(p.misfits) && p.misfits[c].step == p.steps && sh.Nodes() >= p.misfits[c].nodes
}

func (p *easy) failed(sh *policy.Shape) {
	if !sh.Plain() {
		return
	}
	for sh.Class() >= len(p.misfits) {
		p.misfits = append(p.misfits, misfit{})
	}
	p.misfits[sh.Class()] = misfit{p.steps, sh.Nodes()}
}

func (p *easy) Why(v *policy.View, id policy.JobID) string {
	ahead, first := v.Ahead(id)
	sh := v.Shape(id)
	if ahead == 0 {
		at := v.ReserveEarliest(sh, p.window)
		if at == policy.Never {
			return v.Shortage(sh, policy.Sharing)
		}
		return v.Shortage(sh, policy.Sharing) + v.Reserved(at)
	}
	if ahead > p.depth {
		return fmt.Sprintf("%d jobs ahead, and only the first %d are tried (depth)", ahead, p.depth)
	}
	if v.Place(sh, policy.Sharing) == nil {
		return v.Shortage(sh, policy.Sharing)
	}
	return fmt.Sprintf("it fits, but would delay job %s, reserved for %s",
		v.Job(first).ID, v.Clock(v.ReserveEarliest(v.Shape(first), p.window)))
}
