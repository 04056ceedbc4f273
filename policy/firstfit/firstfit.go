// Package firstfit holds the policies that try every waiting job in order of
// submission and start each that fits: plain first fit, and the two queues of
// the TSUBAME paper. In the G queue a node serves one job at a time; in the R
// queue a job may also share nodes and borrow the GPUs of others.
package firstfit

import (
	"muster/model"
	"muster/policy"
)

// FirstFit lets jobs share nodes.
var FirstFit = policy.Entry{
	Name:    "first-fit",
	Summary: "every waiting job is tried in order, and started if it fits; jobs overtake freely",
	New:     maker(policy.Sharing),
}

// GQueue is TSUBAME's queue as it was.
var GQueue = policy.Entry{
	Name:    "g-queue",
	Summary: "TSUBAME's G queue: first fit over all waiting jobs, and a node serves one job at a time",
	New:     maker(policy.Alone),
}

// RQueue is the paper's proposal.
var RQueue = policy.Entry{
	Name:    "r-queue",
	Summary: "TSUBAME's R queue: as g-queue, and what does not fit so may share nodes and borrow GPUs",
	New:     maker(policy.Borrowing),
}

func maker(mode policy.Mode) func(model.Settings) (policy.Policy, error) {
	return func(model.Settings) (policy.Policy, error) {
		return &firstFit{mode: mode, lines: policy.NewLines(mode)}, nil
	}
}

// firstFit tries the first job of each shape, in the order of the queue.
type firstFit struct {
	mode  policy.Mode
	lines *policy.Lines
}

var _ policy.Policy = (*firstFit)(nil)

func (p *firstFit) Traits() policy.Traits { return policy.Traits{Mode: p.mode} }

func (p *firstFit) Step(v *policy.View, plan *policy.Plan) {
	p.lines.Begin(v)
	for {
		id, ok := p.lines.Next(v)
		if !ok {
			return
		}
		a := v.Place(v.Shape(id), p.mode)
		if a == nil || !plan.Start(id, a, policy.Reason{Code: policy.Overtook}) {
			p.lines.Failed()
		}
	}
}

func (p *firstFit) Why(v *policy.View, id policy.JobID) string {
	return v.Shortage(v.Shape(id), p.mode)
}
