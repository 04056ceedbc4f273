// Package conservative is conservative backfilling: each of the first depth
// waiting jobs holds a reservation, and no start delays any of them.
package conservative

import (
	"fmt"
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// Entry makes the policy known.
var Entry = policy.Entry{
	Name:    "conservative",
	Summary: "conservative backfilling: jobs overtake if they delay nobody's reservation",
	Options: policy.BackfillOptions("how many waiting jobs hold a reservation"),
	New: func(s model.Settings) (policy.Policy, error) {
		depth, window, err := policy.Backfill(s)
		return &conservative{depth: depth, window: window, promises: map[policy.JobID]*promise{}}, err
	},
}

type conservative struct {
	depth  int
	window time.Duration

	generation uint64 // of the cluster that the profile is for
	profile    *policy.Profile
	promises   map[policy.JobID]*promise // of waiting and running jobs
	reserved   int                       // promises of waiting jobs
	next       time.Duration             // no promise of a waiting job is earlier
}

// promise is a reservation, and what a running job holds.
type promise struct {
	at    time.Duration
	alloc model.Allocation
	// mark is how far the job has looked at what others gave up.
	mark    int
	started bool
}

var _ policy.Policy = (*conservative)(nil)

func (p *conservative) Traits() policy.Traits { return policy.Traits{Order: policy.ByPriority} }

func (p *conservative) Step(v *policy.View, plan *policy.Plan) {
	if p.generation != v.Generation() {
		p.readAgain(v)
	}
	p.profile.At(v.Now())
	for _, id := range v.Left() {
		p.drop(id)
	}
	if p.next < v.Now() {
		p.dropLapsed(v.Now())
	}
	if v.Reordered() {
		p.dropReserved()
	}
	p.dropPushedOut(v)
	queue := v.Queue()
	for tried := 0; tried < p.depth; tried++ {
		id, _, ok := queue.Next()
		if !ok {
			break
		}
		p.try(v, plan, id)
	}
	p.forget()
}

// readAgain draws the future anew from what runs. All reservations are given up:
// they may be on nodes that are gone, or not on nodes that came.
func (p *conservative) readAgain(v *policy.View) {
	p.generation = v.Generation()
	p.profile = policy.NewProfile(v)
	clear(p.promises)
	p.reserved, p.next = 0, math.MaxInt64
	for _, id := range v.Running() {
		r := &promise{at: v.Now(), alloc: clone(v.Held(id)), started: true}
		p.promises[id] = r
		p.profile.Hold(id, &r.alloc, v.Now(), v.ExpectedEnd(id))
	}
}

func (p *conservative) drop(id policy.JobID) {
	if r := p.promises[id]; r != nil {
		p.profile.Drop(id, &r.alloc)
		delete(p.promises, id)
		if !r.started {
			p.reserved--
		}
	}
}

// dropLapsed gives up reservations whose time has passed, because a running job
// outlived its estimate.
func (p *conservative) dropLapsed(now time.Duration) {
	p.next = math.MaxInt64
	var lapsed []policy.JobID
	for id, r := range p.promises {
		switch {
		case r.started:
		case r.at < now:
			lapsed = append(lapsed, id)
		default:
			p.next = min(p.next, r.at)
		}
	}
	slices.Sort(lapsed)
	for _, id := range lapsed {
		p.drop(id)
	}
}

// dropReserved gives up all reservations: they were made in an order that the
// ranks have changed, so that they are made again in the new one.
func (p *conservative) dropReserved() {
	var waiting []policy.JobID
	for id, r := range p.promises {
		if !r.started {
			waiting = append(waiting, id)
		}
	}
	slices.Sort(waiting)
	for _, id := range waiting {
		p.drop(id)
	}
}

// dropPushedOut takes their reservations from jobs that are no longer among the first.
func (p *conservative) dropPushedOut(v *policy.View) {
	if v.Waiting() <= p.depth || len(v.Arrived()) == 0 {
		return
	}
	among, holding := 0, 0
	queue := v.Queue()
	for id, _, ok := queue.Next(); ok && holding < p.reserved; id, _, ok = queue.Next() {
		among++
		r := p.promises[id]
		if r == nil || r.started {
			continue
		}
		if among > p.depth {
			p.drop(id)
		} else {
			holding++
		}
	}
}

// try looks for the earliest reservation of one job, and starts it if that is now.
func (p *conservative) try(v *policy.View, plan *policy.Plan, id policy.JobID) {
	now, sh := v.Now(), v.Shape(id)
	d := max(v.Job(id).Estimate(), 1)
	before := time.Duration(math.MaxInt64)
	if p.window < before-now {
		before = now + p.window + 1
	}
	r := p.promises[id]
	if r != nil && r.at == now && !v.Holds(&r.alloc) {
		p.drop(id) // a running job outlived its estimate: look for another place
		r = nil
	}
	if r != nil && r.at > now {
		before = min(before, r.at)
		if !p.profile.MayGain(sh, d, now, before, r.mark, &r.alloc) {
			r.mark = p.profile.Drops()
			return
		}
		p.profile.Lift(id, &r.alloc)
	}
	if r == nil || r.at > now {
		at, a := p.profile.Earliest(sh, d, now, before)
		switch {
		case a != nil && r == nil:
			r = &promise{at: at, alloc: clone(a)}
			p.promises[id] = r
			p.reserved++
			p.profile.Hold(id, &r.alloc, at, model.After(at, d))
		case a != nil:
			p.profile.GiveUp(&r.alloc) // what it leaves others may take
			r.at, r.alloc = at, clone(a)
			p.profile.Hold(id, &r.alloc, at, model.After(at, d))
		case r != nil:
			p.profile.PutBack(id, &r.alloc, r.at, model.After(r.at, d))
		default:
			return
		}
		r.mark = p.profile.Drops()
	}
	if r.at == now && plan.Start(id, &r.alloc, policy.Reason{Code: policy.Reserved}) {
		r.started = true
		p.reserved--
		return
	}
	p.next = min(p.next, r.at)
}

func clone(a *model.Allocation) model.Allocation {
	return model.Allocation{
		Parts:  append([]model.Part(nil), a.Parts...),
		Grants: append([]model.Grant(nil), a.Grants...),
	}
}

// forget clears the record of what was given up once it is long.
func (p *conservative) forget() {
	const long = 1 << 16
	if p.profile.Drops() < long {
		return
	}
	for _, r := range p.promises {
		r.mark = -1
	}
	p.profile.Forget()
}

func (p *conservative) Why(v *policy.View, id policy.JobID) string {
	sh := v.Shape(id)
	lacks := "it fits now, but would delay the reservations of others"
	if v.Place(sh, policy.Sharing) == nil {
		lacks = v.Shortage(sh, policy.Sharing)
	}
	if r := p.promises[id]; r != nil {
		return lacks + v.Reserved(r.at)
	}
	if ahead, _ := v.Ahead(id); ahead >= p.depth {
		return fmt.Sprintf("%d jobs ahead, and only the first %d hold reservations (depth)", ahead, p.depth)
	}
	return lacks + ", and there is no reservation within bf_window"
}
