// Package inorder holds the policies in which nothing overtakes: first come
// first served, and shortest job first. The queue is served from the front
// until a job does not fit; it waits, and all behind it that may use its nodes.
package inorder

import (
	"fmt"
	"slices"

	"muster/model"
	"muster/policy"
)

// FCFS is first come, first served.
var FCFS = policy.Entry{
	Name:    "fcfs",
	Summary: "first come, first served: nothing overtakes the first job of the queue",
	New:     func(model.Settings) (policy.Policy, error) { return &inOrder{}, nil },
}

// SJF is shortest job first, by the user's estimate.
var SJF = policy.Entry{
	Name:    "sjf",
	Summary: "shortest job first, by wall-time estimate: nothing overtakes the shortest",
	New: func(model.Settings) (policy.Policy, error) {
		return &inOrder{order: func(j *model.Job) int64 { return int64(j.Estimate()) }}, nil
	},
}

type inOrder struct {
	order func(*model.Job) int64
	// blocked did not fit in the last step; while nothing is freed they still do not.
	blocked []policy.JobID
}

var _ policy.Policy = (*inOrder)(nil)

func (p *inOrder) Traits() policy.Traits { return policy.Traits{Order: p.order} }

// Step starts jobs until one does not fit. It holds up those behind it that may use a node which it may use, too:
// jobs that are confined to other nodes cannot be in its way.
func (p *inOrder) Step(v *policy.View, plan *policy.Plan) {
	was := p.blocked
	p.blocked = nil
	var waiting policy.Claim
	for queue := v.Queue(); !waiting.Everything(); {
		id, _, ok := queue.Next()
		if !ok {
			return
		}
		sh := v.Shape(id)
		if !waiting.Meets(sh) {
			if v.Freed() || !slices.Contains(was, id) {
				a := v.Place(sh, policy.Sharing)
				if a != nil && plan.Start(id, a, policy.Reason{Code: policy.InTurn}) {
					continue
				}
			}
			p.blocked = append(p.blocked, id)
		}
		waiting.Add(sh)
	}
}

func (p *inOrder) Why(v *policy.View, id policy.JobID) string {
	ahead, first := before(v, id)
	if ahead == 0 {
		return v.Shortage(v.Shape(id), policy.Sharing)
	}
	return fmt.Sprintf("%d ahead in the queue, and nothing overtakes; the first, job %s, %s",
		ahead, v.Job(first).ID, v.Shortage(v.Shape(first), policy.Sharing))
}

// before is how many jobs hold up a job, directly or through others, and the first of them.
func before(v *policy.View, id policy.JobID) (count int, first policy.JobID) {
	var list []policy.JobID
	for queue := v.Queue(); ; {
		at, _, ok := queue.Next()
		if !ok || at == id {
			break
		}
		list = append(list, at)
	}
	var claim policy.Claim
	claim.Add(v.Shape(id))
	for _, at := range slices.Backward(list) {
		if sh := v.Shape(at); claim.Meets(sh) {
			claim.Add(sh)
			count, first = count+1, at
		}
	}
	return count, first
}
