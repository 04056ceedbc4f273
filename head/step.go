package head

import (
	"cmp"
	"fmt"
	"time"

	"muster/model"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
)

// leastRest is the least time between two steps that the policy alone asked for.
const leastRest = 100 * time.Millisecond

// Step lets the policy decide if something has changed since its last step, or if the time has come
// at which it asked for another. Ranks come first: the policy must not decide with old ones.
func (c *Core) Step(now time.Duration) {
	c.allow(max(maxLoad, c.loadNow()+leastLoad))
	c.advance(now)
	c.catchUp()
	c.refill()
	c.rankAll()
	if !c.offerSome() || !c.stepDue && c.now < c.wake {
		return
	}
	c.stepDue = false
	plan := c.state.Step(c.policyTime(c.now))
	c.wake = policy.Never
	if at := c.policyTime(c.now); plan.Wake != policy.Never && plan.Wake > at {
		// A policy script may ask for any time, at every step: leastRest keeps it from making the
		// head step without pause.
		c.wake = model.After(max(plan.Wake, at+leastRest), c.began)
	}
	for i := range plan.Starts {
		if st := &plan.Starts[i]; st.Err == nil {
			c.begin(c.numbered[st.Job], st.Alloc, st.Alternative)
		} else {
			c.stepDue = true
		}
	}
	for _, l := range plan.Limits {
		if j := c.numbered[l.Job]; j.active() {
			j.limit = l.Devices
			c.out.touch(j)
			c.sendLimits(j)
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
	c.stepDue = c.stepDue || len(c.hungry) > 0 // there are more tasks that could start
}

// catchUp does some of what was left for later: of one kind, or of both if that is little.
func (c *Core) catchUp() {
	if c.choresFirst = !c.choresFirst; c.choresFirst {
		if c.doSome(); !c.Full() {
			c.wakeSome(maxWoken - c.waits.woken)
		}
	} else if c.wakeSome(maxWoken - c.waits.woken); c.waits.woken < maxWoken {
		c.doSome()
	}
}

// preempt stops a running job in favour of another, in the way that the policy chose.
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

// why says why a waiting job waits: one of Slurm's words, and a sentence. The policy is asked only
// if ask is true, since its answer may take a look at the whole queue.
func (c *Core) why(j *job, ask bool) (word, sentence string) {
	switch {
	case j.state != api.Pending:
		return "", j.reason
	case j.held&heldByAdmin != 0:
		return "JobHeldAdmin", "an administrator holds it, and can let it go with muster release"
	case j.held != 0:
		return "JobHeldUser", "its user holds it: muster release lets it go"
	case j.never:
		return "DependencyNeverSatisfied", c.neverMet(j)
	}
	switch j.gate {
	case atDependency:
		return "Dependency", "it waits for other jobs: " + j.said.Batch.Dependency.String()
	case atBegin:
		if !j.said.Batch.Begin.Set {
			return "BeginTime", "it waits until " + c.clock(j.notBefore) + ", as long after another job's start as it asked for"
		}
		return "BeginTime", "it was submitted for " + c.clock(c.beginOf(j)) + " (--begin)"
	case atArray:
		return "JobArrayTaskLimit", fmt.Sprintf("%d tasks of its array may run at a time, and as many do", c.roster.arrays[j.array].limit)
	case atLimit:
		u := c.user(j.user)
		return "AssocGrpLimit", u.full(u.waiting[0].need, c.limits(j.user)) + ": it starts when some of this user's jobs have ended"
	}
	if j.impossible != "" && len(c.byName) == 0 {
		return "Resources", "no node has come yet: an administrator starts muster node --head on each"
	}
	if j.impossible != "" {
		return "Resources", j.impossible
	}
	if r := cmp.Or(j.of, j); j.number < 0 && r.rest != nil {
		if j = c.roster.arrays[r.array].ahead(r); j == nil {
			return "Resources", ""
		} // what keeps the task before it waiting keeps it waiting
	}
	if j.number < 0 {
		return "None", ""
	}
	if !ask {
		return "Resources", ""
	}
	return "Resources", c.state.Why(j.number)
}

// neverMet says which term of a waiting job's dependency cannot happen any more.
func (c *Core) neverMet(j *job) string {
	for _, t := range j.unmet {
		if c.outcome(j, t) == cannot {
			return fmt.Sprintf("it waits for %s, which cannot happen any more: cancel it", t.String())
		}
	}
	return "what it depends on cannot happen any more: cancel it"
}

// clock formats an instant for users, in the head's time zone.
func (c *Core) clock(at time.Duration) string {
	zone := c.cfg.Zone
	if zone == nil {
		zone = time.UTC
	}
	return time.Unix(0, int64(at)).In(zone).Format("2006-01-02T15:04:05")
}

// policyClock formats an instant of the policy's clock for its sentences. It returns "" for
// instants so far away that they depend on the end of a job without a time limit, which the policy
// expects to run for a year.
func (c *Core) policyClock(t time.Duration) string {
	if t-c.policyTime(c.now) > aYear/2 {
		return ""
	}
	return c.clock(t + c.began)
}

// seconds converts a span or an instant for documents.
func seconds(d time.Duration) float64 { return d.Seconds() }
