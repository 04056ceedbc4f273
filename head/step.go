package head

import (
	"time"

	"muster/head/api"
	"muster/policy"
	"muster/wire/agent"
)

// Step lets the policy decide, if anything has changed since it last did or it asked
// for it.
func (c *Core) Step(now time.Duration) {
	c.advance(now)
	c.rankAll()
	if !c.stepDue && c.now < c.wake {
		return
	}
	c.stepDue = false
	plan := c.state.Step(c.policyTime(c.now))
	c.wake = policy.Never
	if plan.Wake != policy.Never && plan.Wake > c.policyTime(c.now) {
		c.wake = plan.Wake + c.began
	}
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			c.begin(c.numbered[st.Job], st.Alloc, st.Alternative)
		} else {
			c.stepDue = true
		}
	}
	for _, st := range plan.Stops {
		c.preempt(c.numbered[st.Job], st)
	}
	for _, r := range plan.Resumes {
		if r.Err == nil {
			j := c.numbered[r.Job]
			c.mustState(c.state.Resumed(r.Job))
			c.goOn(j)
		}
	}
}

// preempt stops a running job for another, as the policy wants it.
func (c *Core) preempt(j *job, st policy.Stop) {
	reason := "preempted"
	if o := c.numbered[st.For]; o != nil {
		reason = "preempted by job " + o.name()
	}
	switch st.How {
	case policy.Suspend:
		c.suspendJob(j)
	case policy.Requeue:
		c.stopJob(j, stop{Cause: agent.Stopped, Reason: reason, Requeue: true})
	default:
		c.stopJob(j, stop{Cause: agent.Stopped, Reason: reason, Outcome: api.Preempted})
	}
}

// why says why a waiting job waits: one of Slurm's words, and a sentence. Only with
// ask is the policy asked, which may look at the whole queue.
func (c *Core) why(j *job, ask bool) (word, sentence string) {
	switch {
	case j.state != api.Pending:
		return "", j.reason
	case j.held&heldByAdmin != 0:
		return "JobHeldAdmin", "an administrator holds it"
	case j.held != 0:
		return "JobHeldUser", "its user holds it: muster release lets it go"
	case j.never:
		return "DependencyNeverSatisfied", "what it depends on cannot happen any more: cancel it"
	}
	switch j.gate {
	case atDependency:
		return "Dependency", "it waits for other jobs: " + j.said.Batch.Dependency.String()
	case atBegin:
		return "BeginTime", "it was submitted for later"
	case atArray:
		return "JobArrayTaskLimit", "as many tasks of its array run as may"
	case atLimit:
		return "AssocGrpLimit", j.user + " has as much as the limits of a user allow"
	}
	if j.impossible != "" {
		return "Resources", j.impossible
	}
	if j.number < 0 {
		return "None", ""
	}
	if !ask {
		return "Resources", ""
	}
	return "Resources", c.state.Why(j.number)
}

// seconds is a span or an instant as documents have it.
func seconds(d time.Duration) float64 { return d.Seconds() }
