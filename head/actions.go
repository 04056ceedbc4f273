package head

import (
	"cmp"
	"slices"

	"muster/model/slurmopt"
	"muster/wire/agent"
	"muster/wire/api"
)

// cancel ends jobs, or sends them a signal. Jobs for which that is impossible are skipped; if the
// request names one job or array, and that is impossible for all of it, it is refused.
func (c *Core) cancel(ev Cancel) {
	w, err := c.mayDo(ev.Caller, ev.Jobs)
	if err != nil {
		c.out.answer(ev.Request, nil, err)
		return
	}
	reason := "cancelled by " + ev.User
	ch := c.ending(ev.User, ev.Jobs, func(j *job) { c.cancelJob(j, reason) })
	ch.walk = w
	if ev.Signal != 0 {
		ch.passes = []pass{allJobs}
		ch.visit = func(j *job) bool {
			if j.active() && j.starts <= ch.starts {
				ch.changed = append(ch.changed, j.id)
				c.signal(j, ev.Signal)
			}
			return true
		}
	}
	ch.finish = func(err *Refusal) {
		if err == nil && len(ch.changed) == 0 {
			err = c.nothingTo(ev.Jobs, ch.first, ev.Signal != 0)
		}
		c.answerChanged(ev.Request, ch, err)
	}
	c.do(ch)
}

// ending is a request that ends jobs. Those that wait come first, so that none of them starts in the
// place of one that is being stopped.
func (c *Core) ending(user string, ref Ref, end func(*job)) *chore {
	ch := &chore{user: user, ref: ref, passes: []pass{restsOnly, waitingOnly, untilNone}, finish: func(*Refusal) {}}
	ch.visit = func(j *job) bool {
		if j.of != nil && !j.over() {
			j = c.own(j)
		}
		if j == nil || j.over() {
			return true
		}
		ch.walk.waited = ch.walk.waited || j.state == api.Pending
		ch.changed = j.numbers(ch.changed)
		end(j)
		return true
	}
	return ch
}

// answerChanged answers a request with the numbers of the jobs that it has changed, or refuses it.
func (c *Core) answerChanged(r Request, ch *chore, err *Refusal) {
	if err != nil {
		c.out.answer(r, nil, err)
		return
	}
	if !slices.IsSorted(ch.changed) {
		slices.Sort(ch.changed)
	}
	c.out.answer(r, &api.Changed{Jobs: append([]uint64{}, slices.Compact(ch.changed)...)}, nil) // one that has come to wait again was visited twice
}

// nothingTo refuses a request for a job or array that has ended, or with signal one that does not run.
func (c *Core) nothingTo(ref Ref, found *job, signal bool) *Refusal {
	switch name := c.roster.nameOf(ref); {
	case name == "":
		return refusal(statusConflict, "job %s is %s", found.name(), found.state)
	case signal:
		return refusal(statusConflict, "no task of job %s is running", name)
	default:
		return refusal(statusConflict, "all tasks of job %s have ended", name)
	}
}

// signal sends a signal to all tasks of a job that have not ended.
func (c *Core) signal(j *job, number int) {
	for part := range j.tasks {
		if t := &j.tasks[part]; t.end == nil {
			c.send(t.node, agent.Signal{Task: j.taskName(part), Signal: number}, 0)
		}
	}
}

// late ends a job whose deadline has passed.
func (c *Core) late(j *job) {
	if j.active() {
		c.stopJob(j, stop{Cause: agent.TimedOut, Reason: "its deadline has passed", Outcome: api.Timeout})
		return
	}
	c.cancelJob(j, "its deadline has passed")
}

// setSignal sets the timer for the signal that a job's user wants some time before the time limit.
// If that instant has passed (the job is restored), no signal is sent, unless it is the start
// itself.
func (c *Core) setSignal(j *job) {
	s, limit := j.said.Batch.Signal, j.timeLimit(c.cfg.TimeLimit)
	if s == nil || limit == 0 {
		return
	}
	if at := j.start + max(0, limit-s.Before); at > c.now || at == j.start {
		c.setTimer(timer{at: at, what: ringSignal, job: j.id, attempt: j.nth})
	}
}

// cancelJob ends a job that waits, or has a job that runs stopped.
func (c *Core) cancelJob(j *job, reason string) {
	if j.active() {
		if j.stop != nil { // its tasks are being stopped already: make sure that the job is not requeued
			j.stop.Requeue, j.stop.Outcome, j.stop.Reason = false, api.Cancelled, reason
			c.out.touch(j)
			return
		}
		c.stopJob(j, stop{Cause: agent.Stopped, Reason: reason, Outcome: api.Cancelled})
		return
	}
	c.leave(j)
	if a := c.roster.arrays[j.array]; a != nil && j.rest != nil {
		// The record of the array lists the rests that ended, and grows with each, so a small one ends
		// as its tasks do: of n tasks, less than the root of 2n can end in rests. If very many end in one
		// event, others would wait for long: then the small ones end as rests, too.
		c.readEnds(a)
		if few := j.size() <= len(a.ends.Rests) && c.singly+j.size() <= maxSingly; few {
			c.singly += j.size()
			j.unmet = nil
			for j.size() > 1 {
				c.cancelJob(c.bear(j, j.rest.First()), reason)
			}
			c.bear(j, j.rest.First())
		}
	}
	c.countPending(j, -1)
	j.state, j.reason, j.end = api.Cancelled, reason, c.now
	c.settleEnded(j)
}

// mayDo refuses a request that names jobs which there are not, or which the user may not touch, or if too
// many of the user's are under way: before anything is changed. It begins the walk through the jobs.
func (c *Core) mayDo(caller Caller, ref Ref) (*walk, *Refusal) {
	if len(c.chores[caller.User]) >= maxChores {
		return nil, refusal(statusTooManyRequests, "%d requests of %s are being carried out: send the next ones when some are answered", maxChores, caller.User)
	}
	w, err := c.walkOf(ref)
	if err != nil {
		return nil, err
	}
	j := w.one
	if j == nil { // the tasks of an array are all one user's
		o := w.a.members[0]
		j = &job{order: o.order, array: o.array, task: int64(w.a.tasks.At(w.runs[0].from))}
	}
	return w, c.mayTouch(caller.User, j)
}

// numbers appends the numbers of all tasks for which a job stands.
func (j *job) numbers(to []uint64) []uint64 {
	if j.rest == nil {
		return append(to, j.id)
	}
	to = slices.Grow(to, j.size())
	for place := range j.rest.All {
		to = append(to, j.array+uint64(place))
	}
	return to
}

// change applies one of the other actions to jobs. If several are named, such as the tasks of an
// array, it changes those that it can, and refuses only if it can change none.
func (c *Core) change(ev Change) {
	w, err := c.mayDo(ev.Caller, ev.Jobs)
	if err != nil {
		c.out.answer(ev.Request, nil, err)
		return
	}
	ch := &chore{user: ev.User, ref: ev.Jobs, passes: []pass{allJobs}}
	ch.walk = w
	if ev.Action == Hold {
		ch.passes = []pass{restsOnly, jobsOnly}
	}
	forRunning := ev.Action == SuspendJob || ev.Action == RequeueJob || ev.Action == LimitDevices
	var trouble *Refusal
	ch.visit = func(j *job) (more bool) {
		switch {
		case j.over(), forRunning && j.starts > ch.starts:
			return true
		// The other actions are for jobs that have started, and refused.
		case j.of != nil && (ev.Action == Hold || ev.Action == Release || ev.Action == Prioritise):
			a := c.roster.arrays[j.array]
			if a.apart++; a.apart > maxApart {
				trouble = refusal(statusConflict, "%d tasks of job %d were changed one by one before they started: change the whole array", maxApart, a.id)
				return false
			}
			if j = c.own(j); j == nil {
				return true
			}
		}
		if err := c.changeJob(j, &ev); err == nil {
			ch.changed = j.numbers(ch.changed)
		} else {
			trouble = cmp.Or(trouble, err)
			c.looked += perRequest
		}
		return true
	}
	ch.finish = func(err *Refusal) {
		switch {
		case err != nil || len(ch.changed) > 0:
		case trouble != nil:
			err = trouble
		case ch.found == 1 && ch.first.over():
			err = c.changeJob(ch.first, &ev)
		default:
			err = c.nothingTo(ev.Jobs, ch.first, false)
		}
		c.answerChanged(ev.Request, ch, err)
	}
	c.do(ch)
}

func (c *Core) changeJob(j *job, ev *Change) *Refusal {
	wrong := func(what string) *Refusal {
		return refusal(statusConflict, "job %s is %s: %s", j.name(), j.state, what)
	}
	if j.over() {
		return wrong("nothing can be changed about it")
	}
	admin := c.IsAdmin(ev.User)
	switch ev.Action {
	case Hold:
		j.held |= by(admin, j, ev.User)
		c.out.touch(j)
		c.advanceJob(j)
	case Release:
		if j.held&heldByAdmin != 0 && !admin {
			return refusal(statusForbidden, "job %s is held by an administrator", j.name())
		}
		j.held = 0
		c.out.touch(j)
		c.advanceJob(j)
	case Prioritise:
		return c.prioritise(j, ev, admin)
	case SuspendJob:
		if j.state != api.Running || j.lending {
			return wrong("only running jobs are suspended")
		}
		c.suspendJob(j)
	case ResumeJob:
		if !j.suspend || j.state != api.Running && j.state != api.Suspended {
			return wrong("it is not suspended")
		}
		if !c.resumeJob(j) {
			return refusal(statusConflict, "job %s cannot go on yet: others have its cores or GPUs", j.name())
		}
	case RequeueJob:
		if j.state != api.Running && j.state != api.Suspended {
			return wrong("only running and suspended jobs are requeued")
		}
		c.stopJob(j, stop{Cause: agent.Stopped, Reason: "requeued by " + ev.User, Requeue: true})
	case LimitDevices:
		if ev.Limit < -1 || !j.active() {
			return wrong("a limit is a number of devices of a running job, or -1")
		}
		j.limit = ev.Limit
		c.out.touch(j)
		c.sendLimits(j)
	default:
		return refusal(statusBadRequest, "%q is nothing that can be done to a job", ev.Action)
	}
	return nil
}

// by says as whom a user holds a job. An administrator who holds his own job holds it as its user,
// so that he may release it as a user.
func by(admin bool, j *job, user string) heldBy {
	if admin && user != j.user {
		return heldByAdmin
	}
	return heldByUser
}

func (c *Core) prioritise(j *job, ev *Change, admin bool) *Refusal {
	if p := ev.Priority.Priority; p != nil {
		if !admin {
			return refusal(statusForbidden, "priorities are for administrators: use a nice value")
		}
		if *p < 0 || *p > slurmopt.MaxPriority {
			return refusal(statusBadRequest, "%d is no priority: give a number from 1 to %d, or 0 for the priority that the head computes", *p, slurmopt.MaxPriority)
		}
	}
	if n := ev.Priority.Nice; n != nil {
		if *n < 0 && !admin {
			return refusal(statusForbidden, "a nice value below 0 is for administrators")
		}
		if *n < -slurmopt.MaxNice || *n > slurmopt.MaxNice {
			return refusal(statusBadRequest, "%d is no nice value: give a number from -%[2]d to %[2]d", *n, slurmopt.MaxNice)
		}
	}
	if p := ev.Priority.Priority; p != nil {
		j.setPriority(*p)
	}
	if n := ev.Priority.Nice; n != nil {
		j.nice = *n
	}
	c.out.touch(j)
	c.rank(j)
	c.stepDue = true
	return nil
}

// setPriority sets a job's priority outright; 0 has the head compute it.
func (j *job) setPriority(number int64) {
	j.priority = nil
	if number != 0 {
		j.priority = &number
	}
}

func (c *Core) suspendJob(j *job) {
	j.suspend = true
	c.out.touch(j)
	c.sendLimits(j)
	for part := range j.tasks {
		if j.tasks[part].end == nil {
			c.steer(j, part)
		}
	}
	c.whenSuspended(j)
}

// resumeJob resumes a suspended job if the cores and GPUs that it had are free. A job whose tasks
// have not all been suspended yet still has them.
func (c *Core) resumeJob(j *job) bool {
	if j.state == api.Suspended {
		if err := c.state.Resumed(j.number); err != nil {
			return false
		}
	}
	c.goOn(j)
	return true
}

// goOn resumes the tasks of a job that has its cores and GPUs back.
func (c *Core) goOn(j *job) {
	j.awake(c.now)
	if j.state == api.Suspended {
		c.bookStarted(j, c.now)
	}
	j.state, j.suspend, j.asleep = api.Running, false, false
	c.out.touch(j)
	c.sendLimits(j)
	for part := range j.tasks {
		if t := &j.tasks[part]; t.end == nil {
			c.send(t.node, agent.Resume{Task: j.taskName(part)}, 0)
		}
	}
}

// sendLimits tells all nodes that lend to a job how many devices it may use.
func (c *Core) sendLimits(j *job) {
	for i := range j.loans {
		c.sendLimit(j, &j.loans[i])
	}
}

func (c *Core) sendLimit(j *job, l *loan) {
	g := c.grantOf(j, int(l.part))
	c.send(l.node, agent.Limit{ID: g.ID, Limit: g.Loan(l.node.name).Limit}, 0)
}
