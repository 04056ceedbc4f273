package slurm

import (
	"fmt"
	"time"

	"muster/policy"
)

// A policy may stop running jobs in favour of others: requeue, cancel or suspend them. Slurm does
// it, and listings show when it is done. Only then may the policy use their place.
//
// Of a suspended job, Slurm takes back only the processors: it keeps its memory and its GPUs, and a
// node that it has to itself. A job with GPUs, or with whole nodes, is therefore requeued instead.
// Slurm also resumes a job although others have its processors now, so the driver must ensure that
// none do.
//
// Before the driver suspends a job, it writes paused=yes into the comment. From that a restarted
// driver knows which suspended jobs it must resume; it leaves those alone that an administrator has
// suspended. Jobs of Slurm's own are never stopped.

// Stop asks for a job to be stopped.
type Stop struct {
	Job Ref
	How policy.How
	// Comment is written before the job is suspended.
	Comment string
}

// mayStop says whether the driver may stop a running job: only if it has placed it.
func (j *job) mayStop() bool { return j.managed && j.plan != nil }

// halt asks for a job to be stopped in favour of another.
func (c *Core) halt(st *policy.Stop) {
	j := c.numbered[st.Job]
	if j.halting {
		return // the job is stopped as a whole, and this is another part of it
	}
	if other := c.numbered[st.For]; other != nil {
		j.stopFor = other.Ref.String()
	}
	j.halting = true
	how := st.How
	if how == policy.Suspend && j.fact.State == "SUSPENDED" {
		c.cannotStop(j, "an administrator has suspended it, and Slurm keeps its place")
		return
	}
	if how == policy.Suspend && !c.freesWhenSuspended(j) {
		how = policy.Requeue
	}
	if how == policy.Requeue && j.fact.NoRequeue {
		if st.How == policy.Suspend {
			c.cannotStop(j, "suspended it would keep its GPUs or nodes, and it must not be requeued")
			return
		}
		how = policy.Cancel // as Slurm does
	}
	c.askToStop(j, how)
}

// cannotStop leaves a job running. After a while standing tells the policy that it was not stopped.
func (c *Core) cannotStop(j *job, why string) {
	c.note("job %s cannot make way: %s", j.Ref, why)
	j.until = c.now + c.pause(j)
}

func (c *Core) askToStop(j *job, how policy.How) {
	c.note("job %s is stopped (%s)%s", j.Ref, how, j.inFavour())
	j.halting, j.busy = true, true
	stop := Stop{Job: j.Ref, How: how}
	if how == policy.Suspend {
		stop.Comment = c.paused(j, true)
	}
	c.effects.Stops = append(c.effects.Stops, stop)
}

func (j *job) inFavour() string {
	if j.stopFor == "" {
		return ""
	}
	return " to make way for job " + j.stopFor
}

// paused is a job's comment with or without the mark that the driver has suspended it.
func (c *Core) paused(j *job, yes bool) string {
	say, request := j.comment, *j.comment.Request
	request.Paused = yes
	say.Request = &request
	return say.String()
}

// freesWhenSuspended says whether other jobs can have a job's place while it is suspended.
func (c *Core) freesWhenSuspended(j *job) bool {
	if j.number < 0 {
		return false
	}
	a := c.state.Allocation(j.number)
	for i := range a.Parts {
		if p := &a.Parts[i]; p.Exclusive || p.GPUs != 0 {
			return false
		}
	}
	return len(a.Grants) == 0 && !j.fact.Exclusive
}

// rouse asks for a suspended job to be resumed.
func (c *Core) rouse(j *job) {
	j.rousing, j.busy = true, true
	c.note("job %s goes on", j.Ref)
	c.effects.Resumes = append(c.effects.Resumes, Say{j.Ref, c.paused(j, false)})
}

// rouseIdle resumes suspended jobs whose place is free, under a policy that does not resume jobs
// itself. A driver before this one suspended them.
func (c *Core) rouseIdle() {
	if c.preempts || c.asleep == 0 {
		return
	}
	for _, id := range c.sorted(func(j *job) bool { return j.asleep && !j.rousing && !j.halting && !j.busy && j.until <= c.now }) {
		if j := c.jobs[id]; c.state.Resumed(j.number) == nil {
			c.rouse(j)
		}
	}
}

// standing updates what the policy knows about whether a job with nodes is suspended, being stopped
// or being resumed. While open is true, a request may still take effect, and the listing proves
// nothing.
func (c *Core) standing(j *job, asked time.Duration) {
	if !j.managed || j.number < 0 && len(j.parts) == 0 {
		return
	}
	open := asked <= j.told+c.cfg.Settle || c.now < j.until
	still := j.fact.State == "SUSPENDED" && j.comment.Request.Paused
	switch {
	case still && len(j.parts) > 0:
		// It cannot be resumed as a whole.
		if !j.halting {
			c.askToStop(j, policy.Requeue)
		}
	case still && !j.asleep && j.number >= 0:
		c.must(c.state.Suspended(j.number))
		c.setAsleep(j, true)
		j.halting, j.rousing = false, false
		c.stepDue = true
	case still && j.rousing && !open:
		j.rousing = false // the resume had no effect
		c.must(c.state.Suspended(j.number))
		c.stepDue = true
	case still && j.halting && !open:
		c.askToStop(j, policy.Requeue)
	case !still && j.asleep:
		c.goesOn(j)
	case !still && j.halting && !open && !j.fact.Completing:
		j.halting = false // the stop had no effect
		c.notStopped(j)
		c.stepDue = true
	}
}

// setAsleep notes whether the policy takes a job for suspended.
func (c *Core) setAsleep(j *job, yes bool) {
	if j.asleep != yes {
		j.asleep = yes
		if yes {
			c.asleep++
		} else {
			c.asleep--
		}
	}
}

// goesOn notes that a suspended job runs again, resumed by the driver or by a user of Slurm.
func (c *Core) goesOn(j *job) {
	c.stepDue = true
	if c.state.Resumed(j.number) == nil || !c.state.View().Suspended(j.number) {
		c.setAsleep(j, false)
		j.rousing = false
		return
	}
	// Other jobs have its place, because a user has resumed it by hand.
	grants := c.grantsOf(j)
	c.withdraw(j)
	c.enter(j, running)
	c.adopt(j, grants)
}

// notStopped tells the policy that a job which it wanted stopped still runs.
func (c *Core) notStopped(j *job) {
	for _, id := range append([]policy.JobID{j.number}, j.parts...) {
		if id >= 0 && c.state.View().Stopping(id) {
			c.must(c.state.Resumed(id))
		}
	}
}

// toldOfStop handles the outcome of a request to stop or resume a job.
func (c *Core) toldOfStop(j *job, fate Fate, err error) {
	switch {
	case fate == Refused:
		c.counts.Refused++
		c.note("job %s: %v", j.Ref, err)
		j.until = c.now + c.pause(j)
	case fate == Unknown:
		c.counts.Unknown++
		c.note("job %s: %v", j.Ref, err)
	case j.halting:
		c.counts.Stopped++
	}
}

// whyStopped says why a job is stopped and what it waits for; "" for others.
func (j *job) whyStopped() string {
	switch {
	case j.asleep && j.rousing:
		return "it is let go on"
	case j.asleep:
		return fmt.Sprintf("it is suspended%s, and goes on when its place is free", j.inFavour())
	case j.halting:
		return "it is being stopped" + j.inFavour()
	}
	return ""
}
