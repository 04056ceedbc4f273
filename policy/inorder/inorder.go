// Package inorder holds the policies in which nothing overtakes: first come
// first served, and shortest job first. The queue is served from the front
// until a job does not fit; it and all behind it wait.
package inorder

import (
	"fmt"

	"muster/model"
	"muster/policy"
)

// FCFS is first come, first served.
var FCFS = policy.Entry{
	Name:    "fcfs",
	Summary: "first come, first served: nothing overtakes the first job of the queue",
	New:     func(model.Settings) (policy.Policy, error) { return &inOrder{blocked: -1}, nil },
}

// SJF is shortest job first, by the user's estimate.
var SJF = policy.Entry{
	Name:    "sjf",
	Summary: "shortest job first, by wall-time estimate: nothing overtakes the shortest",
	New: func(model.Settings) (policy.Policy, error) {
		return &inOrder{blocked: -1, order: func(j *model.Job) int64 { return int64(j.Estimate()) }}, nil
	},
}

type inOrder struct {
	order func(*model.Job) int64
	// blocked did not fit in the last step; while nothing is freed it still does not.
	blocked policy.JobID
}

var _ policy.Policy = (*inOrder)(nil)

func (p *inOrder) Traits() policy.Traits { return policy.Traits{Order: p.order} }

func (p *inOrder) Step(v *policy.View, plan *policy.Plan) {
	for queue := v.Queue(); ; {
		id, _, ok := queue.Next()
		if !ok {
			p.blocked = -1
			return
		}
		if id == p.blocked && !v.Freed() {
			return
		}
		a := v.Place(v.Shape(id), policy.Sharing)
		if a == nil || !plan.Start(id, a, policy.Reason{Code: policy.InTurn}) {
			p.blocked = id
			return
		}
	}
}

func (p *inOrder) Why(v *policy.View, id policy.JobID) string {
	ahead, first := v.Ahead(id)
	if ahead == 0 {
		return v.Shortage(v.Shape(id), policy.Sharing)
	}
	return fmt.Sprintf("%d ahead in the queue, and nothing overtakes; the first, job %s, %s",
		ahead, v.Job(first).ID, v.Shortage(v.Shape(first), policy.Sharing))
}
