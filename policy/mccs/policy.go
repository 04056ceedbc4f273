package mccs

import (
	"fmt"

	"muster/policy"
)

// Policy runs a program of Go as a policy.
type Policy struct {
	lib *Library
	err error
}

var _ policy.Policy = (*Policy)(nil)

// NewPolicy makes a policy of a program.
func NewPolicy(p Program) *Policy { return &Policy{lib: New(p)} }

// Traits of all policies of the library: jobs share nodes.
func (p *Policy) Traits() policy.Traits { return Traits() }

// Traits of all policies of the library: jobs share nodes. The order is for a policy
// that may have to decide in the program's place; the program has its own queue.
func Traits() policy.Traits {
	return policy.Traits{Mode: policy.Sharing, Order: policy.ByPriority}
}

// Step lets the program decide. After an error it begins anew in the next step; what
// it had proposed before stands, as each line of it is right by itself.
func (p *Policy) Step(v *policy.View, plan *policy.Plan) {
	if err := p.lib.Step(v, plan); err != nil {
		p.err = err
		p.lib.Reset()
	}
}

// Err is the latest error of the program.
func (p *Policy) Err() error { return p.err }

// Library is what the program works with.
func (p *Policy) Library() *Library { return p.lib }

// Why says why a job waits.
func (p *Policy) Why(v *policy.View, id policy.JobID) string { return p.lib.Why(v, id) }

// Why says why a job waits, as far as the library can know.
func (l *Library) Why(v *policy.View, id policy.JobID) string {
	j := l.jobs[id]
	switch {
	case j == nil:
		return "the policy has not heard of it yet"
	case j.queue != l.UnassignedJobQueue:
		return "the policy's program has put it into no queue"
	case j.limit == 0:
		return "the policy's program holds it with a limit of no GPUs"
	case !v.MayFit(j.shape, policy.Sharing) || v.Place(j.shape, policy.Sharing) == nil:
		return v.Shortage(j.shape, policy.Sharing)
	}
	return fmt.Sprintf("needs %s; the policy's program has put it back: no node has enough of its weight left, or others come first", j.shape)
}
